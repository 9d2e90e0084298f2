"""A transport and a clock that a test holds in its hand, and a connection of the server on both."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import Any, cast

from strom.transport.exchange import NativeExchange
from strom.transport.intake import Intake
from strom.transport.server import ServerConnection
from strom.transport.types import Exchange, Headers, ServerLimits, TransportFailure
from tests.patience import PATIENCE_S


class FakeTransport:
    """Records what a protocol does to it. `writes` has one entry per write."""

    def __init__(self, *, eof_possible: bool = True) -> None:
        self.writes: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.eof_written = False
        self.paused = False
        self.high_water = 0
        self.unsent = 0
        self._eof_possible = eof_possible

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)

    def take(self) -> bytes:
        """What was sent since the last look."""
        sent = self.sent
        self.writes.clear()
        return sent

    def write(self, data: bytes) -> None:
        assert not self.closed, "write after close"
        assert not self.aborted, "write after abort"
        assert not self.eof_written, "write after the end of output"
        assert data, "an empty write"
        self.writes.append(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def can_write_eof(self) -> bool:
        return self._eof_possible

    def write_eof(self) -> None:
        self.eof_written = True

    def pause_reading(self) -> None:
        assert not self.paused, "paused twice"
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused, "resumed without a pause"
        self.paused = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.7", 5000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high_water = high or 0

    def get_write_buffer_size(self) -> int:
        return self.unsent


class _Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def __lt__(self, other: _Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Time stands still until `advance`. `armed` counts the timers that were ever set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.armed = 0
        self._timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        self.armed += 1
        timer = _Timer(when, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        return self.call_at(self.now + delay, callback)

    def is_closed(self) -> bool:
        return False

    @property
    def waiting(self) -> int:
        return sum(not timer.cancelled for timer in self._timers)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0].when <= end:
            timer = heapq.heappop(self._timers)
            self.now = max(self.now, timer.when)
            if not timer.cancelled:
                timer.callback()
        self.now = end

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)


class Wire:
    """A server connection on a fake transport. Requests are collected unless `answer` answers them at once."""

    def __init__(
        self,
        limits: ServerLimits | None = None,
        *,
        answer: Callable[[Exchange], None] | None = None,
        eof_possible: bool = True,
        full: bool = False,
        intake: Intake | None = None,
    ) -> None:
        self.clock = FakeLoop()
        self.transport = FakeTransport(eof_possible=eof_possible)
        self.exchanges: list[NativeExchange] = []
        self.open: set[ServerConnection] = set()
        self.intake = intake or Intake((limits or ServerLimits()).max_receiving_bytes)
        self.full = full
        self._answer = answer
        self.connection = ServerConnection(self._handle, limits or ServerLimits(), self, self.clock.loop)
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def _handle(self, exchange: Exchange) -> None:
        assert isinstance(exchange, NativeExchange)
        self.exchanges.append(exchange)
        if self._answer is not None:
            self._answer(exchange)

    def add(self, connection: ServerConnection) -> bool:
        self.open.add(connection)
        return not self.full

    def remove(self, connection: ServerConnection) -> None:
        self.open.discard(connection)

    def feed(self, data: bytes, *, step: int = 0) -> Wire:
        """Feeds at once, or in pieces of `step` bytes."""
        for at in range(0, len(data), step or max(1, len(data))):
            self.connection.data_received(data[at : at + (step or len(data))])
        return self

    @property
    def one(self) -> NativeExchange:
        assert len(self.exchanges) == 1, self.exchanges
        return self.exchanges[0]


def request(*lines: bytes, body: bytes = b"", host: bool = True) -> bytes:
    """A request from its request line and header lines."""
    first, *rest = lines
    head = [first, *([b"Host: a.test"] if host else []), *rest]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


GET = request(b"GET / HTTP/1.1")


def post(body: bytes, *lines: bytes) -> bytes:
    return request(b"POST /v1/x HTTP/1.1", b"Content-Length: %d" % len(body), *lines, body=body)


class Told:
    """A `ResponseReceiver` that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.status = 0
        self.headers: Headers = []
        self.body = b""
        self.outcome: str | TransportFailure | None = None
        self.on_piece: Callable[[], None] | None = None
        self.began = asyncio.Event()
        self._over = asyncio.Event()

    def on_response(self, status: int, headers: Headers) -> None:
        assert self.outcome is None
        self.events.append(("response", status))
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        assert self.outcome is None
        assert data
        self.events.append(("body", data))
        self.body += data
        self.began.set()
        if self.on_piece is not None:
            self.on_piece()

    def on_read_end(self) -> None:
        assert self.outcome is None
        self.events.append(("read_end",))

    def on_end(self, *, delimited_by_close: bool) -> None:
        assert self.outcome is None, "told of two ends"
        self.outcome = "closed" if delimited_by_close else "complete"
        self.events.append(("end", self.outcome))
        self._over.set()

    def on_failure(self, failure: TransportFailure) -> None:
        assert self.outcome is None, "told of two ends"
        self.outcome = failure
        self.events.append(("failure", failure.kind))
        self._over.set()

    @property
    def failure(self) -> TransportFailure:
        assert isinstance(self.outcome, TransportFailure), self.outcome
        return self.outcome

    async def ended(self) -> None:
        """Waits for the end of a real exchange."""
        await asyncio.wait_for(self._over.wait(), PATIENCE_S)
