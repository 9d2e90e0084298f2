"""Server-sent events: bytes in, frames out.

Only LF, CR and CRLF end a line; an event ends at a blank line, whatever its line end. Bytes are split, never text, so a
character torn over two reads is whole again before anybody decodes it. Every byte of the input comes out again in some
frame's `raw` (but for a leading BOM), so a relay can pass frames on as they came. Work is linear in the input.
Source: WHATWG HTML, section 9.2 "Server-sent events"; streams.md section 10.
"""

from __future__ import annotations

from typing import NamedTuple

from strom.core.errors import InvalidStreamEvent

MAX_FRAME_BYTES = 16 * 1024 * 1024
BOM = b"\xef\xbb\xbf"


_OTHER_FIELDS = frozenset((b"", b"id", b"retry"))
_SHORT_LINE_BYTES = 64


class Frame(NamedTuple):
    """`data`: the data lines joined with LF, None where the block has none (comments, ids). `event`: b"" when unnamed.

    A block of nothing but fields that do not exist (a server that writes bare JSON, or `error: …`) has its text as `data`:
    the protocol then says what it is, and that is never a keep-alive (streams.md section 10).

    `raw`: the block's bytes including its closing blank line.
    """

    data: bytes | None
    event: bytes
    raw: bytes


class SseParser:
    """Feed it reads of any size; it returns the frames that are complete."""

    __slots__ = ("_at_start", "_buffer", "_line_start", "_max_frame_bytes", "_search", "_swallow_lf")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._line_start = 0  # where the first line whose end is not known yet begins
        self._search = 0  # no line end stands between _line_start and here
        self._at_start = True
        self._swallow_lf = False  # a block was closed by a CR at the end of a read: its LF may still come
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[Frame]:
        """Raises InvalidStreamEvent for a frame over the limit."""
        if self._at_start or self._swallow_lf:
            data = self._trim_start(data)
        if not self._buffer and data.endswith(b"\n\n") and len(data) <= self._max_frame_bytes and data.find(b"\r") < 0:
            if data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2:
                return [Frame(data[6:-2], b"", data)]  # one event, one line: what most reads are
            if data.startswith(b"event: "):  # or two
                at = data.find(b"\n") + 1
                if data.startswith(b"data: ", at) and data.find(b"\n", at) == len(data) - 2:
                    return [Frame(data[at + 6 : -2], data[7 : at - 1], data)]
            if (
                data[0] != 10 and b"\n\n\n" not in data
            ):  # else a blank line more is a block of its own, as in any other cut
                return [_frame(block + b"\n\n") for block in data[:-2].split(b"\n\n")]
        self._buffer += data
        frames = self._take_frames()
        most = self._max_frame_bytes
        if len(self._buffer) > most or any(len(frame.raw) > most for frame in frames):
            raise InvalidStreamEvent(f"The upstream sent an event of more than {self._max_frame_bytes} bytes.")
        return frames

    @property
    def idle(self) -> bool:
        """The next read begins a new event: no byte of one that is not closed has come, nor the first half of a CRLF."""
        return not (self._buffer or self._swallow_lf)

    @property
    def pending(self) -> bytes:
        """Bytes of an event that is not closed by a blank line yet."""
        return bytes(self._buffer)

    @property
    def pending_line(self) -> bytes:
        """The first line of an event that is not closed yet, when it is short and has come whole; else b""."""
        head = bytes(self._buffer[:_SHORT_LINE_BYTES])
        ends = [at for at in (head.find(b"\n"), head.find(b"\r")) if at >= 0]
        return head[: min(ends)] if ends else b""

    def _trim_start(self, data: bytes) -> bytes:
        if self._swallow_lf and data:
            self._swallow_lf = False
            data = data[1:] if data[0] == 10 else data
        if self._at_start:
            head = bytes(self._buffer) + data
            if len(head) < len(BOM) and BOM.startswith(head):
                return data  # stays in the buffer: it may become a BOM
            self._at_start = False
            if head.startswith(BOM):
                self._buffer.clear()
                self._line_start = self._search = 0
                return head[len(BOM) :]
        return data

    def _take_frames(self) -> list[Frame]:
        """Cut off all complete events; remember how far the rest has been searched."""
        buffer = self._buffer
        frames: list[Frame] = []
        start, line_start, search = 0, self._line_start, self._search
        next_cr = buffer.find(b"\r", search)
        while True:
            if -1 < next_cr < search:
                next_cr = buffer.find(b"\r", search)
            at = buffer.find(b"\n", search, next_cr if next_cr >= 0 else len(buffer))
            at = at if at >= 0 else next_cr
            if at < 0:
                search = len(buffer)
                break
            cr_is_last = buffer[at] == 13 and at + 1 == len(buffer)
            if cr_is_last and at > line_start:
                search = at  # its LF may still come: then both are one line end
                break
            after = at + 2 if buffer[at] == 13 and buffer[at + 1 : at + 2] == b"\n" else at + 1
            if at == line_start:
                raw = bytes(buffer[start:after])
                self._swallow_lf = cr_is_last
                frames.append(_frame(raw + b"\n" if cr_is_last else raw))
                start = after
            line_start = search = after
        del buffer[:start]
        self._line_start, self._search = line_start - start, search - start
        return frames


def _frame(raw: bytes) -> Frame:
    """Reads one block. The common ones, `data: …` alone or after `event: …`, without splitting them."""
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and raw[-1] == 10 and raw.find(b"\r") < 0:
        return Frame(raw[6:-2], b"", raw)
    if raw.startswith(b"event: ") and raw.endswith(b"\n\n") and raw.count(b"\n") == 3 and raw.find(b"\r") < 0:
        at = raw.find(b"\n")
        if raw.startswith(b"\ndata: ", at):
            return Frame(raw[at + 7 : -2], raw[7:at], raw)
    return _frame_by_lines(raw)


def _frame_by_lines(raw: bytes) -> Frame:
    event, data, foreign = b"", None, False
    for line in raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            data = value if data is None else data + b"\n" + value
        elif name == b"event":
            event = value
        else:
            foreign = foreign or name not in _OTHER_FIELDS
    if data is None and foreign:
        data = raw.strip()  # no event by the letter; but what somebody wrote there must not vanish unseen
    return Frame(data, event, raw)
