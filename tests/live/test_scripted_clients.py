"""Claude Code and the official SDKs, with text and with tools, before a backend that answers from a script.

Every client's own script judges: the text has to arrive, and in tool mode the tool must really have run.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(scope="module", params=["openai-chat", "anthropic"])
def gateway(
    request: pytest.FixtureRequest, scripted: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[programs.Gateway]:
    """One gateway for each protocol that the backend is asked in."""
    folder = tmp_path_factory.mktemp("gateway")
    with programs.serving(folder, "--backend", scripted, "--protocol", request.param) as running:
        yield running


@pytest.mark.parametrize("mode", ["text", "tool"])
@pytest.mark.parametrize(("script", "sub_client"), CLIENTS, ids=str)
def test_client(
    gateway: programs.Gateway,
    scripted: str,
    shared: Path,
    clients: Path,
    script: str,
    sub_client: tuple[str, ...],
    mode: str,
) -> None:
    programs.run_client_script(
        shared, script, gateway.url, mode, *sub_client, CLIENTS=str(clients), BACKEND_URL=scripted
    )
