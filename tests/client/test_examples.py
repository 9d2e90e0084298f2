"""The examples run as they stand, against a scripted backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.loopback import Loopback

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "stream": "[stop, first token after",
    "tools": "[f {'a': 1}]",
    "structured": "none:",
    "session": "5 messages",
    "many": "moon.",
    "agent": "[f]",
    "async_stream": "[stop, Usage(",
    "fallback": "nobody: upstream_unreachable\nm: ok",
    "workflow_stream": "[stop, ",
    "workflow_agent": "[1 rounds, ",
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAYS.keys() | {"models"}


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str, backend: Loopback) -> None:
    environment = {**os.environ, "STROM_MODEL": "m", "STROM_BASE_URL": backend.url}
    environment["PYTHONPATH"] = str(EXAMPLES.parent / "src")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
