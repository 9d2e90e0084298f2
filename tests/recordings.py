"""Raw bytes of real servers, for the tests that replay them.

They lie outside the repository: in the folder `recordings` of STROM_SHARED, by default `../shared` beside the repository.
A test that needs them is skipped where they are missing, and fails there with CI set.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest


class Recording(msgspec.Struct, frozen=True):
    """One exchange. `response` is the body without chunked framing; `timing` has one entry per chunk as it came."""

    engine: str
    case: str
    index: dict[str, Any]
    request: dict[str, Any]
    response: bytes
    status_line: str
    headers: list[tuple[str, str]]
    timing: list[dict[str, Any]]

    @property
    def chunks(self) -> list[bytes]:
        """The body in the pieces in which it came."""
        return [self.response[t["offset"] : t["offset"] + t["len"]] for t in self.timing if "offset" in t]


def recordings_root() -> Path:
    """The folder of the recordings; skips (or, with CI set, fails) the test that asks when there is none."""
    root = _shared_folder() / "recordings"
    if not (root / "index.json").is_file():
        reason = "the recordings are missing: STROM_SHARED names the folder above them"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return root


def load(engine: str, case: str) -> Recording:
    """One recording by its names."""
    folder = recordings_root() / engine / case
    status_line, *fields = (folder / "headers.txt").read_text("latin-1").splitlines()
    pairs = [field.partition(":") for field in fields if field]
    return Recording(
        engine=engine,
        case=case,
        index=next(entry for entry in index() if (entry["engine"], entry["case"]) == (engine, case)),
        request=msgspec.json.decode((folder / "request.json").read_bytes()),
        response=(folder / "response.raw").read_bytes(),
        status_line=status_line,
        headers=[(name.lower(), value.strip()) for name, _, value in pairs],
        timing=[msgspec.json.decode(line) for line in (folder / "timing.jsonl").read_bytes().splitlines()],
    )


def index() -> list[dict[str, Any]]:
    """All entries of index.json."""
    return _index(recordings_root())


def names(**wanted: object) -> list[tuple[str, str]]:
    """(engine, case) of the entries with these values, e.g. `protocol="chat", streamed=True`; for parametrize.

    Empty where the recordings are missing: pair it with a test that calls `recordings_root`, so that this is noticed.
    """
    root = _shared_folder() / "recordings"
    if not (root / "index.json").is_file():
        return []
    found = [entry for entry in _index(root) if all(entry.get(name) == value for name, value in wanted.items())]
    return [(entry["engine"], entry["case"]) for entry in found]


def _shared_folder() -> Path:
    return Path(os.environ.get("STROM_SHARED") or Path(__file__).resolve().parents[2] / "shared")


@functools.cache
def _index(root: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = msgspec.json.decode((root / "index.json").read_bytes())
    return entries
