"""Between the transport and a stream: every read becomes one signal with its time, and goes into the stream's inbox.

A mailbox serves one exchange. It is written to on the event loop and never refers to the stream, so that a stream nobody holds
any more can go, and takes its exchange with it. What the reader has not taken yet is bounded: beyond `HIGH_WATER_BYTES` the
socket is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strom.client.signals import BodyEnded, Broke, Received, Responded, Send, Sent, Signal
from strom.transport.types import Headers, TransportFailure, UpstreamClient, UpstreamExchange

HIGH_WATER_BYTES = 262_144
LINGER_S = 1.0
"""How long a connection may take to end a body whose end is already proven."""

Clock = Callable[[], float]


class Mailbox:
    """A ResponseReceiver. `post` puts a signal into the inbox; after `over` nothing is posted."""

    __slots__ = (
        "_clock", "_exchange", "_paused", "_post", "_read", "_received", "_taken", "ended", "loop", "over",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, post: Callable[[tuple[Mailbox, Signal]], None]
    ) -> None:
        self.loop = loop
        self._clock = clock
        self._post = post
        self._exchange: UpstreamExchange | None = None
        self._read = b""
        self._received = self._taken = 0
        self._paused = False
        self.ended = False
        self.over = False

    # -- on the loop

    def send(self, client: UpstreamClient, wanted: Send) -> None:
        if self.over:
            return
        self._post((self, Sent(self._clock())))
        try:
            self._exchange = client.send(
                wanted.origin, wanted.request, self, connect_timeout_s=wanted.connect_timeout_s
            )
        except ValueError as error:  # a header that is none, from the caller's own settings
            self.on_failure(TransportFailure("protocol", str(error), sent=False))

    def on_response(self, status: int, headers: Headers) -> None:
        if not self.over:
            self._post((self, Responded(self._clock(), status, headers)))

    def on_body(self, data: bytes) -> None:
        self._read = self._read + data if self._read else data

    def on_read_end(self) -> None:
        data = self._read
        if not data or self.over:
            return
        self._read = b""
        self._received += len(data)
        self._post((self, Received(self._clock(), data)))
        if self._received - self._taken > HIGH_WATER_BYTES and self._exchange is not None:
            self._paused = True
            self._exchange.pause_reading()
            if self._received - self._taken <= HIGH_WATER_BYTES // 2:
                self._resume()  # the reader caught up just now, and did not see the pause

    def on_end(self, *, delimited_by_close: bool) -> None:  # the protocol's own proof counts, not HTTP's
        self.on_read_end()
        self.ended = True
        if not self.over:
            self._post((self, BodyEnded(self._clock())))

    def on_failure(self, failure: TransportFailure) -> None:
        self.on_read_end()
        self.ended = True
        if not self.over:
            self._post((self, Broke(self._clock(), failure)))

    def abort(self) -> None:
        self.over = True
        self._read = b""
        if not self.ended and self._exchange is not None:
            self.ended = True
            self._exchange.abort()

    def linger(self) -> None:
        """The answer is whole: its body may end by itself, so that the connection can serve again."""
        self.over = True
        if not self.ended:
            self._resume()
            self.loop.call_later(LINGER_S, self.abort)

    def _resume(self) -> None:
        if self._paused and self._exchange is not None and not self.ended:
            self._paused = False
            self._exchange.resume_reading()

    # -- for the reader, in whatever thread

    def taken(self, size: int) -> bool:
        """The reader has used so many bytes. True when that lets the socket be read again."""
        self._taken += size
        if not self._paused or self._received - self._taken > HIGH_WATER_BYTES // 2:
            return False
        self.loop.call_soon_threadsafe(self._resume)
        return True

    def let_go_threadsafe(self, *, whole: bool) -> None:
        if self.ended or self.over:
            self.over = True
            return
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.linger if whole else self.abort)

    def drop(self) -> None:
        """Nobody holds the stream any more."""
        self.let_go_threadsafe(whole=False)

    def let_go(self, *, whole: bool) -> None:
        """On the loop itself."""
        if whole:
            self.linger()
        else:
            self.abort()
