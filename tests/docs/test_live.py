"""The examples before the embedded model, as a newcomer runs them. What it says is not judged; that it comes, and ends, is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.docs.snippets import ROOT
from tests.live import programs

pytestmark = pytest.mark.live

ENDS = {"stream": "[", "async_stream": "[", "session": "bytes to keep", "structured": ":", "tools": "\n"}
"""What stands at the end of the output in any case, whether or not the small model could do it."""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with programs.serving(tmp_path_factory.mktemp("embedded")) as gateway:
        if "smollm2" not in gateway.program.output:
            pytest.skip("a model server runs on this machine's usual ports: the embedded model is not used")
        yield gateway.url


@pytest.mark.parametrize("name", ENDS)
def test_example(name: str, embedded: str) -> None:
    environment = {**os.environ, "STROM_MODEL": "smollm2", "STROM_BASE_URL": embedded, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ENDS[name] in done.stdout[-200:]
    assert len(done.stdout) > 20
