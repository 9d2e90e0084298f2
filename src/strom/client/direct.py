"""One exchange over plain HTTP whose reader reads the socket itself: an event costs one wake-up of one thread.

The loop's thread opens a new connection (name lookup, proxy, deadline) and hands its socket over; from then on everything
happens in the thread that reads the stream. Encrypted connections stay with the loop, whose TLS they need
(docs/decisions/0023-sync-streams-read-their-own-socket.md). A mailbox never refers to the stream, so that a stream nobody
holds any more can go, and takes its exchange with it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from strom.client.lines import Line, Lines
from strom.client.mailbox import Clock
from strom.client.signals import BodyEnded, Broke, Received, Responded, Send, Signal
from strom.transport.connect import ConnectError, TlsContexts, connect
from strom.transport.connection import NativeUpstreamExchange
from strom.transport.heads import request_head
from strom.transport.types import Headers, TransportFailure

_TLS = TlsContexts()  # `connect` asks for it; plain HTTP never uses it


class Opened(msgspec.Struct, frozen=True):
    """A new connection stands: see `DirectMailbox.opened`."""


Post = Callable[[tuple[Any, Any]], None]
"""Puts (mailbox, Opened or Broke) into the stream's inbox."""


class DirectMailbox:
    """A ResponseReceiver. `signals`: what came and was not taken yet. `line`: None until a connection stands."""

    __slots__ = (
        "_call", "_clock", "_fresh", "_lines", "_lock", "_opening", "_post", "_read", "_wanted", "line", "loop", "over",
        "signals",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, lines: Lines, clock: Clock, post: Post, wanted: Send) -> None:
        self.loop = loop
        self._lines = lines
        self._clock = clock
        self._post = post
        self._wanted = wanted
        self._lock = threading.Lock()
        self._call: NativeUpstreamExchange | None = None
        self.line: Line | None = None
        self._fresh: Line | None = None
        self._opening: concurrent.futures.Future[None] | None = None
        self._read = b""
        self.signals: deque[Signal] = deque()
        self.over = False

    # -- for the reader

    def send(self) -> None:
        """Over an idle line, or over a new one."""
        wanted = self._wanted
        request = wanted.request
        try:
            head = request_head(self._lines.route(wanted.origin)[1], request)
        except ValueError as error:  # a header that is none, from the caller's own settings
            self.on_failure(TransportFailure("protocol", str(error), sent=False))
            return
        self._call = NativeUpstreamExchange(request.method, head, request.body, self)
        line = self._lines.take(wanted.origin)
        if line is not None:
            self._begin(line, reused=True)
        else:
            self._opening = asyncio.run_coroutine_threadsafe(self._open(), self.loop)

    def opened(self) -> None:
        self._opening = None
        line, self._fresh = self._fresh, None
        if line is not None:
            self._begin(line, reused=False)

    def wait(self, seconds: float) -> None:
        """Until something came, or `wake`, or the time is over."""
        line = self.line
        if line is not None:
            line.read(seconds)
            if line.again:
                self._detach()
                line.close()
                self.send()

    def let_go(self, *, whole: bool) -> None:
        """A line whose message ended may serve again, and if `whole` one whose message is about to end."""
        self._leave()
        line = self._detach()
        if line is None:
            return
        if line.settle() or (whole and not line.closed):
            self._lines.put(line, self.loop)
        else:
            line.close()

    def drop(self) -> None:
        """Nobody holds the stream any more. Takes no lock of the pool: this may run in the middle of anything."""
        self._leave()
        if self.line is not None:
            self.line.close()

    # -- from any thread

    def wake(self) -> None:
        """`wait` returns at once; the exchange is of no more use."""
        with self._lock:
            if self.line is not None:
                self.line.wake()

    # -- ResponseReceiver, inside `wait`

    def on_response(self, status: int, headers: Headers) -> None:
        if not self.over:
            self.signals.append(Responded(self._clock(), status, headers))

    def on_body(self, data: bytes) -> None:
        self._read = self._read + data if self._read else data

    def on_read_end(self) -> None:
        data = self._read
        if data:
            self._read = b""
            if not self.over:
                self.signals.append(Received(self._clock(), data))

    def on_end(self, *, delimited_by_close: bool) -> None:  # the protocol's own proof counts, not HTTP's
        self.on_read_end()
        if not self.over:
            self.signals.append(BodyEnded(self._clock()))

    def on_failure(self, failure: TransportFailure) -> None:
        self.on_read_end()
        if not self.over:
            self.signals.append(Broke(self._clock(), failure))

    # -- inside

    def _begin(self, line: Line, *, reused: bool) -> None:
        assert self._call is not None
        with self._lock:
            self.line = line
        line.begin(self._call, self, reused=reused)

    def _leave(self) -> None:
        with self._lock:
            self.over = True
            fresh, self._fresh = self._fresh, None
        if self._opening is not None:
            self._opening.cancel()
        if fresh is not None:
            fresh.close()

    def _detach(self) -> Line | None:
        """From here on `wake` cannot reach the line."""
        with self._lock:
            line, self.line = self.line, None
        return line

    async def _open(self) -> None:
        """On the loop."""
        wanted = self._wanted
        proxy = self._lines.route(wanted.origin)[0]
        try:
            protocol = await connect(wanted.origin, proxy, _TLS, _Opening, timeout_s=wanted.connect_timeout_s)
        except ConnectError as error:
            self._post((self, Broke(self._clock(), error.failure)))
            return
        line = Line(wanted.origin, protocol.take())
        with self._lock:
            if not self.over:
                self._fresh = line
        if self._fresh is line:
            self._post((self, Opened()))
        else:
            line.close()


class _Opening(asyncio.Protocol):
    """Has the loop open a connection, and takes its socket away from it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def take(self) -> socket.socket:
        """The same connection under a descriptor of its own; the loop closes the one it knows."""
        fileno: int = self._transport.get_extra_info("socket").fileno()
        taken = socket.socket(fileno=os.dup(fileno))
        taken.settimeout(None)
        self._transport.close()
        return taken
