"""Questions over HTTP: one request out, everything that comes back kept with its time.

Invariants: every question ends within its time; a stream can be left early; no answer is longer than `MAX_BYTES`; the key
goes on the wire and is taken out of every text that comes back (`Endpoint.redact`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from strom.core.errors import TimedOut
from strom.transport.types import Headers, OutgoingRequest, TransportFailure, UpstreamClient, UpstreamExchange
from strom.upstreams.settings import Secret
from strom.upstreams.urls import BaseUrl

MAX_BYTES = 32 * 1024 * 1024
MAX_TIMEOUTS = 2
"""So many answers may fail to come in time before the endpoint is asked nothing more."""
PATIENCE = 4
"""Times the usual that an endpoint gets to be done with work that nobody wants any more."""

End = Literal["open", "framed", "closed", "cut", "timeout", "left", "too_long", "none"]
"""framed: the body ended by its own framing; closed: it ended with the connection, which proves nothing (HTTP/1.0);
cut: inside head or body; left: we left; none: no byte of an answer."""


class Unresponsive(TimedOut):
    """An answer did not come in time, and too many others before it."""

    code = "unresponsive"


class Read(msgspec.Struct, frozen=True):
    at_ms: float
    data: bytes


class Capture:
    """One answer as it came. Times are milliseconds since the request was handed to the transport."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.reads: list[Read] = []
        self.end: End = "open"
        self.failure = ""
        self.unsent = False
        """Nothing was sent: the endpoint cannot be reached."""
        self.duration_ms = 0.0

    @property
    def body(self) -> bytes:
        return b"".join(read.data for read in self.reads)

    @property
    def answered(self) -> bool:
        """A success with a whole body."""
        return 200 <= self.status < 300 and self.end in ("framed", "closed")

    def header(self, name: bytes) -> str:
        return ", ".join(value.decode("latin-1") for key, value in self.headers if key == name)


Leave = Callable[[Capture], bool]


class Endpoint:
    """Who is asked. `timeout_s` is for one question, connecting included."""

    def __init__(self, client: UpstreamClient, base: BaseUrl, timeout_s: float, key: Secret | None = None) -> None:
        self.base = base
        self.timeout_s = timeout_s
        self.key = key
        self._client = client
        self._timeouts = 0

    def redact(self, text: str) -> str:
        return text.replace(self.key.reveal(), "***") if self.key else text

    async def ask(self, request: OutgoingRequest, *, leave: Leave | None = None) -> Capture:
        """`leave`: asked after each piece of body; true ends the exchange. Raises Unresponsive."""
        if self._timeouts >= MAX_TIMEOUTS:
            raise Unresponsive(f"not asked: {MAX_TIMEOUTS} answers did not come within {self.timeout_s:g} s")
        capture = await self.ask_for(request, self.timeout_s, leave=leave)
        if capture.end == "timeout":
            self._timeouts += 1
        return capture

    async def wait(self, request: OutgoingRequest) -> None:
        """After an answer that did not come in time for a reason of ours: let the endpoint get over it, so that nothing of
        what follows is held against it. One that does not in `PATIENCE` times the usual is asked nothing more."""
        capture = await self.ask_for(request, PATIENCE * self.timeout_s)
        self._timeouts = MAX_TIMEOUTS if capture.end == "timeout" else 0

    async def ask_for(self, request: OutgoingRequest, seconds: float, *, leave: Leave | None = None) -> Capture:
        """Like `ask`, but leaves after so many seconds and counts no timeout."""
        loop = asyncio.get_running_loop()
        collector = _Collector(loop, leave)
        target = msgspec.structs.replace(request, target=self.base.target(request.target))
        exchange = self._client.send(self.base.origin, target, collector, connect_timeout_s=seconds)
        collector.exchange = exchange
        try:
            async with asyncio.timeout(seconds):
                return await collector.result
        except TimeoutError:
            return collector.close("timeout")
        finally:
            if not collector.over:
                exchange.abort()


class _Collector:
    """Receives one response. Implements ResponseReceiver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Leave | None) -> None:
        self.result: asyncio.Future[Capture] = loop.create_future()
        self.exchange: UpstreamExchange | None = None
        self.over = False
        """The transport is done with the exchange."""
        self._capture, self._leave, self._loop = Capture(), leave, loop
        self._start, self._size = loop.time(), 0

    def on_response(self, status: int, headers: Headers) -> None:
        self._capture.status, self._capture.headers = status, headers

    def on_body(self, data: bytes) -> None:
        if self.result.done():
            return
        self._capture.reads.append(Read(self._elapsed_ms(), data))
        self._size += len(data)
        if self._size > MAX_BYTES:
            self.close("too_long")
        elif self._leave is not None and self._leave(self._capture):
            if self.exchange is not None:
                self.exchange.abort()
            self.over = True
            self.close("left")

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        self.over = True
        self.close("closed" if delimited_by_close else "framed")

    def on_failure(self, failure: TransportFailure) -> None:
        self.over = True
        self._capture.failure, self._capture.unsent = failure.detail or failure.kind, not failure.sent
        self.close("cut" if self._capture.status else "none")

    def close(self, end: End) -> Capture:
        capture = self._capture
        if capture.end == "open":
            capture.end, capture.duration_ms = end, self._elapsed_ms()
        if not self.result.done():
            self.result.set_result(capture)
        return capture

    def _elapsed_ms(self) -> float:
        return (self._loop.time() - self._start) * 1000
