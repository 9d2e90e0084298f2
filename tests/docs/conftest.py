"""A scripted model for the documentation and the examples, in an empty folder with a few small files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agreement.backend import ScriptedBackend
from tests.docs.script import script

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@pytest.fixture(scope="session")
def backend() -> Iterator[ScriptedBackend]:
    with ScriptedBackend(script) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cat.png").write_bytes(base64.b64decode(_PIXEL))
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")
    (tmp_path / "question.wav").write_bytes(b"RIFF\x24\x00\x00\x00WAVEfmt ")
    monkeypatch.chdir(tmp_path)
    return tmp_path
