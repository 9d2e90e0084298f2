"""Newline-delimited JSON: bytes in, lines out.

Only LF ends a line: CR is white space of JSON, and U+2028 or U+0085 may stand in a string. Bytes are split, never text. Every
byte of the input comes out again in some line (but for a leading BOM), so a relay can pass lines on as they came. Work is
linear in the input. A JSON object is self-delimiting: no proper beginning of one is an object, so what is `pending` at
the end of a body is whole exactly when it parses.
Source: github.com/ndjson/ndjson-spec, section 3; streams.md section 10.
"""

from __future__ import annotations

from strom.core.errors import InvalidStreamEvent

MAX_LINE_BYTES = 16 * 1024 * 1024
BOM = b"\xef\xbb\xbf"


class NdjsonParser:
    """Feed it reads of any size; it returns the lines that are complete, each with its LF."""

    __slots__ = ("_at_start", "_buffer", "_max_line_bytes", "_search")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._buffer = bytearray()
        self._search = 0  # no LF stands before here
        self._at_start = True
        self._max_line_bytes = max_line_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raises InvalidStreamEvent for a line over the limit."""
        if self._at_start:
            data = self._trim_start(data)
        if not self._buffer and data.endswith(b"\n") and len(data) <= self._max_line_bytes:
            if data.find(b"\n") == len(data) - 1:
                return [data]  # one line: what most reads are
            return [line + b"\n" for line in data[:-1].split(b"\n")]
        self._buffer += data
        lines = self._take_lines()
        most = self._max_line_bytes
        if len(self._buffer) > most or any(len(line) > most for line in lines):
            raise InvalidStreamEvent(f"The upstream sent a line of more than {self._max_line_bytes} bytes.")
        return lines

    @property
    def idle(self) -> bool:
        """No byte of a line that is not ended yet has come: the next read begins a new one."""
        return not self._buffer

    @property
    def pending(self) -> bytes:
        """Bytes of a line whose LF has not come yet."""
        return bytes(self._buffer)

    def _trim_start(self, data: bytes) -> bytes:
        """Keeps back what may become a BOM, and takes a whole one away."""
        head = bytes(self._buffer) + data
        if len(head) < len(BOM) and BOM.startswith(head):
            return data
        self._at_start = False
        if not head.startswith(BOM):
            return data
        self._buffer.clear()
        self._search = 0
        return head[len(BOM) :]

    def _take_lines(self) -> list[bytes]:
        buffer = self._buffer
        lines: list[bytes] = []
        start = 0
        at = buffer.find(b"\n", self._search)
        while at >= 0:
            lines.append(bytes(buffer[start : at + 1]))
            start = at + 1
            at = buffer.find(b"\n", start)
        del buffer[:start]
        self._search = len(buffer)
        return lines
