"""What every call shares: clocks, the upstream client, the store, the settings that bind a call."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from strom.core.record import CallRecord
from strom.transport.types import UpstreamClient, UpstreamExchange


class RecordSink(Protocol):
    def put(self, record: CallRecord) -> None: ...


class CallSettings(msgspec.Struct, frozen=True):
    """The part of [server] that binds a call."""

    heartbeat_s: float = 15.0
    block_name: str | None = "strom"
    """None: no routing block."""
    reasoning: Literal["native", "text", "drop"] = "native"
    max_reply_bytes: int = 67_108_864
    """A whole reply of an upstream may be this long."""
    whole_reply_factor: float = 5.0
    """A whole reply may take first_token_s times this: nothing of it is seen before it is finished."""


LINGER_S = 2.0
"""How long an upstream may take to end its body after its terminator, before its connection is closed."""


class Lingering:
    """Upstream exchanges whose stream has proven its end while their body goes on: they end soon, or are cut.

    An ended body gives its connection back to the pool. One timer for all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[tuple[float, UpstreamExchange]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, exchange: UpstreamExchange) -> None:
        self._queue.append((self._loop.time() + LINGER_S, exchange))
        if self._timer is None:
            self._timer = self._loop.call_later(LINGER_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._queue and self._queue[0][0] <= now:
            self._queue.popleft()[1].abort()  # does nothing to one that has ended
        if self._queue:
            self._timer = self._loop.call_at(self._queue[0][0], self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._queue:
            self._queue.popleft()[1].abort()


class Services:
    """One per process. `wall` gives Unix seconds; the monotonic clock is the loop's."""

    __slots__ = ("client", "lingering", "loop", "records", "settings", "started_at", "wall")

    def __init__(
        self,
        client: UpstreamClient,
        records: RecordSink,
        settings: CallSettings,
        loop: asyncio.AbstractEventLoop,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.records = records
        self.settings = settings
        self.loop = loop
        self.lingering = Lingering(loop)
        self.wall = wall
        self.started_at = wall()

    def new_trace_id(self) -> str:
        """Unique, and in order of time: milliseconds, then 80 random bits, in hexadecimal."""
        return f"{int(self.wall() * 1000):012x}{os.urandom(10).hex()}"
