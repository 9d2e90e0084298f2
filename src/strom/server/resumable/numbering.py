"""The frames of a resumable stream, each with its number.

Number n is the n-th frame that a call wrote, from 1. In an event stream it stands in the frame, as its `id:` line in front;
lines of NDJSON are counted, as a client counts them. Every frame with data has a number, also those that a protocol sends
to stay alive (Anthropic's `ping`, Responses' `keepalive`, Ollama's empty line). Comments have none, and are not kept.
Source: WHATWG HTML, section 9.2.6 (`id`); an upstream's own ids make room, since of two the last one counts.
"""

from __future__ import annotations

import re
from typing import Protocol

from strom.wire.ndjson import NdjsonParser
from strom.wire.sse import SseParser

_OWN_IDS = re.compile(rb"(?:(?<=\n)|(?<=\r)|\A)id(?::[^\r\n]*)?(?:\r\n|\n|\r)")


Numbered = tuple[list[bytes], bytes]
"""Frames, and bytes that are none."""


class Numbering(Protocol):
    def feed(self, data: bytes) -> Numbered:
        """The frames that are complete. Raises InvalidStreamEvent for one over the limit."""
        ...

    def finish(self) -> list[bytes]:
        """What stands at the end without having been closed."""
        ...


class EventNumbering:
    __slots__ = ("_count", "_parser")

    def __init__(self, max_frame_bytes: int) -> None:
        self._parser = SseParser(max_frame_bytes)
        self._count = 0

    def feed(self, data: bytes) -> Numbered:
        if self._count and self._parser.idle and is_one_line(data):  # what most writes are
            self._count += 1
            return [b"id: %d\n%b" % (self._count, data)], b""
        frames: list[bytes] = []
        remarks = b""
        for frame in self._parser.feed(data):
            if frame.data is None:
                remarks += frame.raw
            else:
                frames.append(self._number(frame.raw))
        return frames, remarks

    def finish(self) -> list[bytes]:
        rest = self._parser.pending
        return [self._number(rest)] if rest.strip() else []

    def _number(self, raw: bytes) -> bytes:
        if raw.startswith(b"id") or b"\nid" in raw or b"\rid" in raw:
            raw = _OWN_IDS.sub(b"", raw)
        self._count += 1
        return b"id: %d\n%b" % (self._count, raw)


def is_one_line(data: bytes) -> bool:
    """One event of one line, and nothing else."""
    plain = data.startswith(b"data: ") and data.endswith(b"\n\n")
    return plain and data.find(b"\n") == len(data) - 2 and b"\r" not in data


class LineNumbering:
    __slots__ = ("_parser",)

    def __init__(self, max_frame_bytes: int) -> None:
        self._parser = NdjsonParser(max_frame_bytes)

    def feed(self, data: bytes) -> Numbered:
        return self._parser.feed(data), b""

    def finish(self) -> list[bytes]:
        rest = self._parser.pending
        return [rest] if rest else []


def numbering(content_type: bytes, max_frame_bytes: int) -> Numbering:
    """By the kind of stream."""
    return LineNumbering(max_frame_bytes) if b"ndjson" in content_type else EventNumbering(max_frame_bytes)
