"""What every call shares: clocks, the upstream client, the store, the settings that bind a call."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from strom.core.errors import StromError
from strom.core.record import CallRecord
from strom.gateway.health import HealthBoard, NoBoard
from strom.gateway.media import MediaFetcher, MediaLimits
from strom.gateway.queue import Queues
from strom.gateway.structured import FallbackMode
from strom.transport.timers import Clock, Handle
from strom.transport.types import UpstreamClient, UpstreamExchange


class Running(Protocol):
    """A call under way. `stop` ends it with an error that its client is told, and settles it."""

    record: CallRecord

    def stop(self, error: StromError | None = None) -> None: ...


class RecordSink(Protocol):
    def begin(self, record: CallRecord) -> None: ...

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
    fetch_media: MediaLimits | None = None
    """None: what is given by address is not fetched."""
    structured_fallback: FallbackMode = "prompt"
    slow_reader_s: float = 300.0
    """A client that has read nothing for so long is not slow but gone, however its connection looks."""
    keep_peer: bool = False
    """Whether records hold the address of their caller."""


LINGER_S = 2.0
"""How long an upstream may take to end its body after its terminator, before its connection is closed."""


class Lingering:
    """Upstream exchanges whose stream has proven its end while their body goes on: they end soon, or are cut.

    An ended body gives its connection back to the pool. One timer for all of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[tuple[float, UpstreamExchange]] = deque()
        self._timer: Handle | None = None

    def add(self, exchange: UpstreamExchange) -> None:
        due = self._clock.time() + LINGER_S
        self._queue.append((due, exchange))
        if self._timer is None:
            self._timer = self._clock.call_at(due, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.time()
        while self._queue and self._queue[0][0] <= now:
            self._queue.popleft()[1].abort()  # does nothing to one that has ended
        if self._queue:
            self._timer = self._clock.call_at(self._queue[0][0], self._sweep)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._queue:
            self._queue.popleft()[1].abort()


class Services:
    """One per process. `wall` gives Unix seconds."""

    __slots__ = (
        "_random",
        "beginners",
        "client",
        "clock",
        "health",
        "lingering",
        "media",
        "observers",
        "queues",
        "records",
        "running",
        "settings",
        "started_at",
        "wall",
    )

    def __init__(
        self,
        client: UpstreamClient,
        records: RecordSink,
        settings: CallSettings,
        clock: Clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.records = records
        self.running: set[Running] = set()
        self.settings = settings
        self.clock = clock
        self.lingering = Lingering(clock)
        self.media = MediaFetcher()
        self.queues = Queues(clock)
        self.wall = wall
        self.started_at = wall()
        self.health: HealthBoard = NoBoard()
        self.beginners: list[Callable[[CallRecord], None]] = []
        """Told of every call that is about to be sent for the first time. They return at once and raise nothing."""
        self.observers: list[Callable[[CallRecord], None]] = []
        """Told of every record that is final. They return at once and raise nothing."""
        self._random = random.Random()  # noqa: S311 - ids are no secrets; seeded by the system in each process

    def begin(self, record: CallRecord) -> None:
        """A call is about to be sent upstream, for the first time."""
        self.records.begin(record)
        for observe in self.beginners:
            observe(record)

    def settle(self, record: CallRecord) -> None:
        """The one way a record ends."""
        self.records.put(record)
        for observe in self.observers:
            observe(record)

    def new_trace_id(self) -> str:
        """Unique, and in order of time: milliseconds, then 80 random bits, in hexadecimal."""
        return f"{int(self.wall() * 1000):012x}{self._random.getrandbits(80):020x}"
