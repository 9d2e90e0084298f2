"""The file format of recordings: JSON lines, one recording after the other (docs/reference/recording-format.md).

    {"strom_recording": 1, "method": …, "target": …, "headers": […], "body": …}     what was asked
    {"t_ms": …, "status": …, "headers": […]}                                        the head of the response, at most once
    {"t_ms": …, "text": …} or {"t_ms": …, "base64": …}                              one line per read of its body
    {"t_ms": …, "end": …}                                                           how it ended, always last

Invariants: whole lines only; a recording begins with its first line and ends with its end line, so files can be joined with
`cat`. A reader refuses a version that it does not know, and ignores members that it does not know.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from strom.replay.recording import Asked, BadRecording, End, Ending, Fields, Head, Piece, Recording

VERSION = 1


class _Line(msgspec.Struct):
    """Any of the four kinds of line; the members tell which one it is."""

    strom_recording: int | None = None
    method: str = ""
    target: str = ""
    recorded_at: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: msgspec.Raw = msgspec.Raw(b"")
    body_text: str | None = None
    body_base64: str | None = None
    t_ms: float = 0.0
    status: int | None = None
    text: str | None = None
    base64: str | None = None
    end: End | None = None
    detail: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


def encode(recording: Recording) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in _lines(recording))


def _lines(recording: Recording) -> Iterator[dict[str, Any]]:
    asked, head, ending = recording.asked, recording.head, recording.ending
    yield {
        "strom_recording": VERSION,
        "recorded_at": recording.recorded_at,
        "method": asked.method,
        "target": asked.target,
        "headers": asked.headers,
        **_body_member(asked.body),
    }
    if head is not None:
        yield {"t_ms": head.t_ms, "status": head.status, "headers": head.headers}
    for piece in recording.pieces:
        yield {"t_ms": piece.t_ms, **_data_member(piece.data)}
    detail = {} if ending.detail is None else {"detail": ending.detail}
    yield {"t_ms": ending.t_ms, "end": ending.kind, **detail}


def _body_member(body: bytes) -> dict[str, Any]:
    """JSON on one line stands in the file as it is, byte for byte; anything else as text or base64."""
    if not body:
        return {}
    if b"\n" not in body and b"\r" not in body and body == body.strip():
        try:
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return {"body": msgspec.Raw(body)}
    return {f"body_{kind}": value for kind, value in _data_member(body).items()}


def _data_member(data: bytes) -> dict[str, str]:
    """A read may split a character: then it is kept as base64."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def decode(data: bytes, source: str) -> list[Recording]:
    """Every recording in a file. Raises BadRecording."""
    recordings = []
    reader: _Reader | None = None
    for number, line in _numbered(data, source):
        if line.strom_recording is not None:
            _check_version(line.strom_recording, f"{source}, line {number}")
            if reader is not None:
                raise BadRecording(f"{source}, line {number}: the recording before this one has no end line")
            reader = _Reader(line, source)
            continue
        if reader is None:
            raise BadRecording(f'{source}, line {number}: a recording begins with {{"strom_recording": {VERSION}, …}}')
        reader.read(line, number)
        if reader.ending is not None:
            recordings.append(reader.finish(reader.ending))
            reader = None
    if reader is not None:
        raise BadRecording(f"{source}: the last recording has no end line; was the recorder stopped by force?")
    if not recordings:
        raise BadRecording(f"{source}: no recording in it")
    return recordings


def _numbered(data: bytes, source: str) -> Iterable[tuple[int, _Line]]:
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            yield number, _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRecording(f"{source}, line {number}: {error}") from None


def _check_version(version: int, place: str) -> None:
    if version != VERSION:
        raise BadRecording(f"{place}: format version {version}; this Strom reads version {VERSION}")


class _Reader:
    """Takes the lines of one recording after its first."""

    def __init__(self, first: _Line, source: str) -> None:
        self._source = source
        self._recorded_at = first.recorded_at
        self._asked = Asked(first.method or "GET", first.target or "/", _lower(first.headers), self._asked_body(first))
        self._head: Head | None = None
        self._pieces: list[Piece] = []
        self.ending: Ending | None = None

    def read(self, line: _Line, number: int) -> None:
        if line.end is not None:
            self.ending = Ending(line.t_ms, line.end, line.detail)
        elif line.status is not None:
            if self._head is not None or self._pieces or not 200 <= line.status <= 999:
                raise self._wrong(number, "a final status between 200 and 999 stands once, before the body")
            self._head = Head(line.t_ms, line.status, _lower(line.headers))
        elif line.text is not None:
            self._pieces.append(Piece(line.t_ms, line.text.encode()))
        elif line.base64 is not None:
            self._pieces.append(Piece(line.t_ms, self._from_base64(line.base64, number)))
        else:
            raise self._wrong(number, "neither a status, nor text or base64, nor an end")

    def finish(self, ending: Ending) -> Recording:
        if self._head is None and self._pieces:
            raise BadRecording(f"{self._source}: a body without the status line before it")
        return Recording(self._asked, self._head, tuple(self._pieces), ending, self._recorded_at, self._source)

    def _asked_body(self, line: _Line) -> bytes:
        if line.body_text is not None:
            return line.body_text.encode()
        if line.body_base64 is not None:
            return self._from_base64(line.body_base64, 1)
        return bytes(line.body)

    def _from_base64(self, text: str, number: int) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise self._wrong(number, "no base64") from None

    def _wrong(self, number: int, what: str) -> BadRecording:
        return BadRecording(f"{self._source}, line {number}: {what}")


def _lower(headers: tuple[tuple[str, str], ...]) -> Fields:
    return tuple((name.lower(), value) for name, value in headers)
