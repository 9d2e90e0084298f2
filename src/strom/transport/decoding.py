"""Content codings of responses (gzip, deflate), removed as the bytes come.

Invariants: what a sync flush completes leaves at once; one step yields at most `MAX_STEP_BYTES`, and between steps a pause
of the receiver is obeyed, so that a few compressed bytes cannot become unbounded memory; an end or a failure that
arrives while output is held back waits behind it. A coding unknown, broken or cut is a failure of kind `decoding`.

Source: RFC 9110 section 8.4.1; RFC 1950, 1951, 1952. "deflate" without the zlib wrapper is read too: RFC 9110 notes that
some implementations send it so.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

from strom.transport.types import Headers, ResponseReceiver, TransportFailure

MAX_STEP_BYTES = 65_536

_GZIP, _ZLIB, _RAW = 31, 15, -15


class CodingError(Exception):
    """The body is not what its content-encoding says."""


class Decoder:
    """Decodes one body, step by step. `pending` is input not yet decoded."""

    __slots__ = ("_first", "_inflate", "_more", "_window", "pending", "started")

    def __init__(self, coding: str) -> None:
        if coding not in ("gzip", "deflate"):
            raise CodingError(f"unknown content coding {coding[:40]!r}")
        self._window = _GZIP if coding == "gzip" else _ZLIB
        self._inflate = zlib.decompressobj(self._window)
        self._first = b""
        self._more = False
        self.pending = b""
        self.started = False

    @property
    def idle(self) -> bool:
        """Whether a step would yield nothing without further input."""
        return not self.pending and not self._more

    @property
    def complete(self) -> bool:
        """Whether the body may end here."""
        return self.idle and (self._inflate.eof or not self.started)

    def feed(self, data: bytes) -> None:
        if data:
            self.pending = self.pending + data if self.pending else data
            self.started = True

    def step(self) -> bytes:
        """At most MAX_STEP_BYTES of output; b"" with `idle` false is possible (a header, a member's end)."""
        if self._inflate.eof:
            self._next_member()
        data, self.pending = self.pending, b""
        out = self._decompress(data)
        self.pending = self._inflate.unconsumed_tail or self._inflate.unused_data
        # A full step may leave output inside zlib without any input left.
        self._more = len(out) == MAX_STEP_BYTES and not self._inflate.eof
        return out

    def _decompress(self, data: bytes) -> bytes:
        try:
            out = self._inflate.decompress(data, MAX_STEP_BYTES)
        except zlib.error as error:
            if self._window != _ZLIB or len(self._first) >= 2:
                raise CodingError(str(error)) from None
            self._window = _RAW
            self._inflate = zlib.decompressobj(_RAW)
            return self._decompress(self._first + data)
        if len(self._first) < 2:
            self._first += data[:2]
        return out

    def _next_member(self) -> None:
        if self._window != _GZIP:
            raise CodingError("data after the compressed body")
        self._inflate = zlib.decompressobj(_GZIP)


def content_coding(declared: list[bytes]) -> str | None:
    """The content coding of these header values; None for none. Several come out joined, which no decoder knows."""
    coding = b", ".join(declared).decode("latin-1").strip().lower()
    return None if coding in ("", "identity") else coding.removeprefix("x-")


class Breakable(Protocol):
    """The request whose response is decoded."""

    def fail(self, failure: TransportFailure) -> None: ...


class DecodingReceiver:
    """Stands between a connection and a receiver. Told of pauses, since it can hold much more than it was given."""

    __slots__ = ("_call", "_decoder", "_over", "_paused", "_receiver", "_running", "_terminal")

    def __init__(self, coding: str, receiver: ResponseReceiver, call: Breakable) -> None:
        """Raises CodingError for a coding that is not known."""
        self._call = call
        self._receiver = receiver
        self._decoder: Decoder | None = Decoder(coding)
        self._terminal: Callable[[], None] | None = None
        self._over = self._paused = self._running = False

    def on_response(self, status: int, headers: Headers) -> None:
        if not self._over:
            plain = [field for field in headers if field[0] not in (b"content-encoding", b"content-length")]
            self._receiver.on_response(status, plain)

    def on_body(self, data: bytes) -> None:
        if not self._over and self._decoder is not None:
            self._decoder.feed(data)
            self._run()

    def on_read_end(self) -> None:
        if not self._over and not self._paused:
            self._receiver.on_read_end()

    def on_end(self, *, delimited_by_close: bool) -> None:
        self._finish_with(lambda: self._end(delimited_by_close=delimited_by_close))

    def on_failure(self, failure: TransportFailure) -> None:
        self._finish_with(lambda: self._call.fail(failure))

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._running or self._over:
            return
        self._run()
        if not self._over and not self._paused:
            self._receiver.on_read_end()

    def stop(self) -> None:
        """The request is over; nothing more is told."""
        self._over = True
        self._terminal = None
        self._decoder = None

    def _finish_with(self, terminal: Callable[[], None]) -> None:
        self._terminal = terminal
        self._run()

    def _run(self) -> None:
        """Steps until there is nothing to decode, the receiver pauses, or the request is over."""
        if self._running:
            return
        self._running = True
        try:
            while not self._over and not self._paused and self._decoder is not None and not self._decoder.idle:
                piece = self._decoder.step()
                if piece:
                    self._receiver.on_body(piece)
        except CodingError as error:
            self._broken(error)
        except BaseException:  # the receiver's own: it is to hear of the end, and of no more body
            self._decoder = None
            raise
        finally:
            self._running = False
        terminal = self._terminal
        if terminal is not None and not self._over and (self._decoder is None or self._decoder.idle):
            self._terminal = None
            terminal()

    def _end(self, *, delimited_by_close: bool) -> None:
        if self._decoder is None or not self._decoder.complete:
            self._broken(CodingError("the compressed body is cut"))
            return
        receiver = self._receiver
        self.stop()
        receiver.on_end(delimited_by_close=delimited_by_close)

    def _broken(self, error: CodingError) -> None:
        self._call.fail(TransportFailure("decoding", str(error), sent=True))
