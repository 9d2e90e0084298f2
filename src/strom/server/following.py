"""Clients that read along with a stream that is kept, each from some frame on, at its own pace.

A reader writes what is there, as fast as its client takes it, and is told by the stream when there is more. What a slow client
has not taken stays where it is kept: nothing is buffered twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from strom.core.errors import BadRequest
from strom.transport.types import Exchange, Headers

SLICE_BYTES = 65_536


class Followed(Protocol):
    """A stream that is kept. The place of a frame in `frames` is its number."""

    @property
    def frames(self) -> list[bytes]: ...

    @property
    def ended(self) -> bool: ...

    @property
    def broken(self) -> bool:
        """It ended without its end: its readers must not take it for whole."""
        ...

    def joined(self, reader: Reader) -> None: ...

    def left(self, reader: Reader) -> None:
        """It reads no more: its client has all, or is gone."""
        ...


class Outlet(Protocol):
    """The part of an Exchange that a reader needs, from its head on."""

    on_disconnect: Callable[[], None] | None
    on_pause: Callable[[], None] | None
    on_resume: Callable[[], None] | None

    @property
    def closed(self) -> bool: ...

    @property
    def paused(self) -> bool: ...

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None: ...

    def write(self, data: bytes) -> None: ...

    def finish(self, data: bytes = b"") -> None: ...

    def abort(self) -> None: ...


class Reader:
    """Attached to a running stream, or to one that has just ended. It finishes its outlet after the last frame."""

    __slots__ = ("_next", "_outlet", "_source")

    def __init__(self, outlet: Outlet, source: Followed, first: int) -> None:
        self._outlet = outlet
        self._source = source
        self._next = first

    def attach(self, headers: Headers) -> None:
        """Begin an answer of its own."""
        self._outlet.start(200, headers)
        self._outlet.write(b"")  # the head leaves at once
        self.join()

    def join(self) -> None:
        """Go on with an answer whose head is written."""
        outlet = self._outlet
        outlet.on_resume = self.pump
        outlet.on_pause = None
        outlet.on_disconnect = self._leave
        self._source.joined(self)
        self.pump()

    def pump(self) -> None:
        """Write what is there and not written yet, as fast as the client takes it."""
        source, outlet = self._source, self._outlet
        frames = source.frames
        while self._next < len(frames) and not outlet.paused and not outlet.closed:
            outlet.write(self._slice(frames))
        if outlet.closed:
            self._leave()
        elif source.ended and self._next >= len(frames):
            self._leave()
            if source.broken:
                outlet.abort()
            else:
                outlet.finish()

    def remark(self, data: bytes) -> None:
        """What is no frame: a comment, for whoever waits for the next one."""
        if self._next >= len(self._source.frames) and not self._outlet.paused:
            self._outlet.write(data)

    def cut(self) -> None:
        """The stream is forgotten."""
        self._leave()
        self._outlet.abort()

    def _slice(self, frames: list[bytes]) -> bytes:
        begin = self._next
        if begin == len(frames) - 1:
            self._next = begin + 1
            return frames[begin]  # what nearly every read of a client that keeps up is
        end, size_bytes = begin, 0
        while end < len(frames) and size_bytes < SLICE_BYTES:
            size_bytes += len(frames[end])
            end += 1
        self._next = end
        return b"".join(frames[begin:end])

    def _leave(self) -> None:
        self._source.left(self)


def last_event_id(exchange: Exchange) -> int:
    """0: from the start. Raises BadRequest."""
    values = exchange.head.header_all(b"last-event-id")
    if not values:
        return 0
    text = values[0].strip()
    if len(values) > 1 or not text.isdigit() or len(text) > 15:
        raise BadRequest(
            "Last-Event-ID: expected the number of the last frame that came, one time.", param="Last-Event-ID"
        )
    return int(text)
