"""Captured bytes to frames, each with the time at which it was complete.

Order of work: lines first (only LF, CR and CRLF end one), then events. Everything that is legal but rare (comments, BOM,
CRLF, several data lines) is read in silence; what a reader has to guess about is a flaw.
Source: WHATWG HTML, section 9.2 "Server-sent events"; ndjson.org; streams.md section 10.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

import msgspec

from strom.conformance.asking import Capture

_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|$)")
_FIELDS = (b"data", b"event", b"id", b"retry")


class Frame(msgspec.Struct, frozen=True):
    """`event`: "" when it has no name. `at_ms`: when its last byte was here."""

    data: str
    event: str
    at_ms: float


class Framing(msgspec.Struct, frozen=True):
    """`heartbeats`: times of comments (server-sent events only)."""

    frames: list[Frame] = []
    heartbeats: list[float] = []
    flaws: list[str] = []


class _Line(msgspec.Struct, frozen=True):
    text: bytes
    ended: bool
    at_ms: float


def split_events(capture: Capture) -> Framing:
    """Server-sent events."""
    framing = Framing([], [], [])
    event, data = b"", list[bytes]()
    last: _Line | None = None
    for last in _lines(capture):
        if not last.ended:
            break
        if not last.text:
            if data:
                framing.frames.append(_frame(data, event, last.at_ms, framing))
            event, data = b"", []
            continue
        name, colon, value = last.text.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not name:
            framing.heartbeats.append(last.at_ms)
        elif name not in _FIELDS or not colon:
            framing.flaws.append(f"a line is no field of an event: {_shown(last.text)}")
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    if data or event or (last is not None and last.text and not last.ended):
        framing.flaws.append("the body ends inside an event (no blank line after it)")
        _keep_unfinished(framing, data, last)
    return framing


def split_lines(capture: Capture) -> Framing:
    """One JSON value per line."""
    framing = Framing([], [], [])
    for line in _lines(capture):
        if not line.ended and line.text:
            framing.flaws.append("the last line has no line end")
        if line.text:
            framing.frames.append(_frame([line.text], b"", line.at_ms, framing))
        elif line.ended:
            framing.flaws.append("a blank line")
    return framing


def _keep_unfinished(framing: Framing, data: list[bytes], last: _Line | None) -> None:
    """The sentinel is proof even without its line ends."""
    if last is not None and last.text.startswith(b"data:"):
        data = [*data, last.text[5:].strip()] if not last.ended else data
    if data == [b"[DONE]"] and last is not None:
        framing.frames.append(Frame("[DONE]", "", last.at_ms))


def _frame(data: list[bytes], event: bytes, at_ms: float, framing: Framing) -> Frame:
    try:
        return Frame(b"\n".join(data).decode(), event.decode(), at_ms)
    except UnicodeDecodeError:
        framing.flaws.append(f"a frame is no UTF-8: {_shown(data[0])}")
        return Frame(b"\n".join(data).decode(errors="replace"), event.decode(errors="replace"), at_ms)


def _lines(capture: Capture) -> Iterator[_Line]:
    body = capture.body
    start = len(_BOM) if body.startswith(_BOM) else 0
    ends: list[int] = []
    for read in capture.reads:
        ends.append((ends[-1] if ends else 0) + len(read.data))
    while start < len(body):
        match = _LINE.match(body, start)
        if match is None:  # pragma: no cover - the pattern matches everywhere
            return
        start = match.end()
        at = bisect.bisect_left(ends, start)
        yield _Line(match[1], bool(match[2]), capture.reads[at].at_ms)


def _shown(data: bytes) -> str:
    text = data[:60].decode(errors="replace")
    return text + "…" if len(data) > 60 else text
