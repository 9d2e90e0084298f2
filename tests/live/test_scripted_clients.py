"""Claude Code and the official SDKs, with text and with tools, before a backend that answers from a script.

Every client's own script judges: the text has to arrive, and in tool mode the tool must really have run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live import programs

pytestmark = pytest.mark.live

CLIENTS = [
    ("claude_code.sh", ()),
    ("python_sdk.sh", ("openai-chat",)),
    ("python_sdk.sh", ("anthropic",)),
    ("js_sdk.sh", ("openai-chat",)),
    ("js_sdk.sh", ("anthropic",)),
    ("js_sdk.sh", ("ai-chat",)),
    ("js_sdk.sh", ("ai-anthropic",)),
]


Run = Callable[..., str]
"""Runs a client's script with its arguments behind the gateway's URL."""


@pytest.fixture(scope="module", params=["openai-chat", "anthropic"])
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
@pytest.mark.parametrize(("script", "sub_client"), CLIENTS, ids=str)
def test_client(run_client: Run, script: str, sub_client: tuple[str, ...], mode: str) -> None:
    run_client(script, mode, *sub_client)
