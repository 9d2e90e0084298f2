"""The examples run as they stand, in this process, with a scripted model that answers what they ask."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import pytest

from tests.agreement.backend import ScriptedBackend
from tests.docs.snippets import ROOT, matches

EXAMPLES = ROOT / "examples"
PRINTS = {
    "agent": "Let me look.\n[weather]\n[opening_hours]\n[opening_hours]\n…[finish]…9:00 Forum\n11:00 Pantheon",
    "async_stream": "The sea is wide. The sea is deep.\n[stop…]",
    "fallback": "The sea is wide. The sea is deep.\nnobody: upstream_unreachable\n…: ok",
    "many": "…cat…\n…tree…\n…moon…",
    "session": "Hello Ann.\nYour name is Ann.\n5 messages, … bytes to keep",
    "stream": "You said: Tell me a story in three sentences.\n[stop, first token after … ms]",
    "structured": "…person: Person(name='Ada', age=36)",
    "tools": "I look it up. [weather {'city': 'Rome'}]\n[sunny and 21 degrees in Rome]\nIt is sunny and 21 degrees in Rome.",
}
ELSEWHERE = {"models", "workflow_agent", "workflow_stream"}
"""What is no example, and what needs an optional package: those run in tests/client/test_examples.py."""


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PRINTS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", PRINTS)
def test_example(name: str, backend: ScriptedBackend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STROM_MODEL", "m")
    monkeypatch.setenv("STROM_BASE_URL", backend.url)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "models", raising=False)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    monkeypatch.delitem(sys.modules, "models", raising=False)
    assert matches(PRINTS[name], output.getvalue()), output.getvalue()
