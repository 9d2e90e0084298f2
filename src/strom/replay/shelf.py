"""The recordings that are served, and which of them answers a request.

Candidates have the request's method and path. Among them the most alike goes first: equal bodies before anything else, then
the same wish to stream, then the share of equal top-level members; among equals the one that was played least, then the order
of loading. A shelf that does not loop plays each recording once to requests that are not equal to its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strom.replay import lines, raw
from strom.replay.recording import Asked, BadRecording, Recording

SUFFIX = ".jsonl"
_STREAMS_BY_DEFAULT = ("/api/chat", "/api/generate", "/api/pull")
_EQUAL = 10.0


def load(*paths: Path | str) -> list[Recording]:
    """Recordings from files, from folders of files, and from folders made with a raw socket. Raises BadRecording."""
    return [recording for path in paths for recording in _load(Path(path))]


def _load(path: Path) -> list[Recording]:
    if path.is_dir():
        return _load_folder(path)
    try:
        return lines.decode(path.read_bytes(), str(path))
    except OSError as error:
        raise BadRecording(f"{path}: {error.strerror or error}") from None


def _load_folder(folder: Path) -> list[Recording]:
    if (folder / raw.MARK).is_file():
        return [raw.read_folder(folder)]
    made_raw = sorted(mark.parent for mark in folder.rglob(raw.MARK))
    files = sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.parent not in set(made_raw))
    found = [recording for path in files for recording in _load(path)]
    found += [raw.read_folder(inner) for inner in made_raw]
    if not found:
        raise BadRecording(f"{folder}: no recording in it")
    return found


class Shelf:
    def __init__(self, recordings: Iterable[Recording], *, loop: bool = True) -> None:
        self.recordings = list(recordings)
        self._played = [0] * len(self.recordings)
        self._bodies = [_parse(recording.asked.body) for recording in self.recordings]
        self._loop = loop

    def paths(self) -> list[str]:
        """Method and path of each recording, without repetition."""
        return list(dict.fromkeys(f"{r.asked.method} {r.asked.path}" for r in self.recordings))

    def models(self) -> list[str]:
        """Names that were asked for."""
        names = (body.get("model") for body in self._bodies if isinstance(body, dict))
        return list(dict.fromkeys(name for name in names if isinstance(name, str)))

    def knows(self, asked: Asked) -> bool:
        return any(_same_place(recording.asked, asked) for recording in self.recordings)

    def take(self, asked: Asked) -> Recording | None:
        """None when nothing fits, or all that fits was played."""
        body = _parse(asked.body)
        best: tuple[float, int, int] | None = None
        for at, recording in enumerate(self.recordings):
            if not _same_place(recording.asked, asked):
                continue
            likeness = _likeness(recording.asked, self._bodies[at], asked, body)
            if likeness < _EQUAL and self._played[at] and not self._loop:
                continue
            rank = (likeness, -self._played[at], -at)
            best = rank if best is None else max(best, rank)
        if best is None:
            return None
        self._played[-best[2]] += 1
        return self.recordings[-best[2]]


def _same_place(recorded: Asked, asked: Asked) -> bool:
    return (recorded.method, recorded.path) == (asked.method, asked.path)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _likeness(recorded: Asked, recorded_body: Any, asked: Asked, body: Any) -> float:
    """Looping recordings of one likeness take turns; `_EQUAL` and more is the same request again."""
    if not isinstance(recorded_body, dict) or not isinstance(body, dict):
        return _EQUAL if recorded.body == asked.body else 0.0
    if recorded_body == body:
        return _EQUAL + float(recorded.target == asked.target)
    names = recorded_body.keys() | body.keys()
    equal = sum(name in recorded_body and name in body and recorded_body[name] == body[name] for name in names)
    same_wish = _wants_stream(recorded, recorded_body) == _wants_stream(asked, body)
    return float(equal) / len(names) + (2.0 if same_wish else 0.0)


def _wants_stream(asked: Asked, body: dict[str, Any]) -> bool:
    wish = body.get("stream")
    return asked.path.endswith(_STREAMS_BY_DEFAULT) if wish is None else wish is True
