"""Real clients of every kind, with text and with tools, before a backend that answers from a script in each protocol.

Every client's own script judges: the text has to arrive, and in tool mode the tool must really have run. The agents and the
official SDKs meet all four protocols behind; the frameworks one, or with STROM_LIVE_CLIENTS=all also all four (half an hour).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live import programs

pytestmark = pytest.mark.live

BEHIND = ("openai-chat", "anthropic", "openai-responses", "ollama")
EVERYWHERE = [
    ("claude_code.sh", ()),
    ("codex.sh", ()),
    *(("python_sdk.sh", (each,)) for each in ("openai-chat", "openai-responses", "anthropic", "ollama")),
    *(("js_sdk.sh", (each,)) for each in ("openai-chat", "openai-responses", "anthropic")),
]
ONCE = [
    *(("opencode.sh", (each,)) for each in ("chat", "anthropic", "responses")),
    *(("js_sdk.sh", (each,)) for each in ("ai-chat", "ai-anthropic", "ai-responses")),
    *(("llm_cli.sh", (each,)) for each in ("chat", "anthropic")),
    *(("python_sdk.sh", (each,)) for each in ("pydantic-ai", "mojentic")),
]
ALL = os.environ.get("STROM_LIVE_CLIENTS") == "all"


Run = Callable[..., str]
"""Runs a client's script with its arguments behind the gateway's URL."""


@pytest.fixture(scope="module", params=BEHIND)
def run_client(
    request: pytest.FixtureRequest, scripted: str, shared: Path, clients: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """Against one gateway for each protocol that the backend is asked in."""
    folder = tmp_path_factory.mktemp("gateway")
    with programs.serving(folder, "--backend", scripted, "--protocol", request.param) as gateway:

        def run(script: str, *arguments: str) -> str:
            where = {"CLIENTS": str(clients), "BACKEND_URL": scripted}
            return programs.run_client_script(shared, script, gateway.url, *arguments, **where)

        yield run


@pytest.mark.parametrize("mode", ["text", "tool"])
@pytest.mark.parametrize(("script", "sub_client"), EVERYWHERE, ids=str)
def test_client(run_client: Run, script: str, sub_client: tuple[str, ...], mode: str) -> None:
    run_client(script, mode, *sub_client)


@pytest.mark.parametrize("run_client", BEHIND if ALL else BEHIND[:1], indirect=True)
@pytest.mark.parametrize("mode", ["text", "tool"])
@pytest.mark.parametrize(("script", "sub_client"), ONCE, ids=str)
def test_framework(run_client: Run, script: str, sub_client: tuple[str, ...], mode: str) -> None:
    run_client(script, mode, *sub_client)
