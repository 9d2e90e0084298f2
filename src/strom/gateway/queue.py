"""Queues in front of endpoints that serve only so many calls at once (`max_concurrent`, `queue`, `queue_timeout_s`).

A call beyond the limit waits, in the order in which calls came; beyond the bound of the queue, and after its time, it is told
that the backend is busy, and goes on to the next endpoint or back to its client. Invariants: never more places are granted than
the limit says; each place is left exactly once, in whatever state; who waits longest is served first. All of it counts within
one process: with several workers each has its own limit and its own queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal

from strom.core.errors import Overloaded, StromError
from strom.gateway.plan import Endpoint
from strom.gateway.unsent import Unsent
from strom.transport.timers import Clock, Handle

Ready = Callable[[StromError | None], None]
"""Told once that the wait is over: None, the place is granted; else why there will be none."""
MEAN_WEIGHT = 0.2
"""Of the newest time that a place was held, in the mean that advice on waiting is made from."""
LONGEST_ADVICE_S = 60.0


def _nobody(refusal: StromError | None) -> None:
    pass


class Place(Unsent):
    """Of one call at one endpoint. Stands for the exchange while it waits: whoever gives up the attempt aborts it."""

    __slots__ = ("_line", "_state", "ready", "since", "timer")

    def __init__(self, line: Line, ready: Ready, now: float) -> None:
        self._line = line
        self._state: Literal["waiting", "granted", "left"] = "waiting"
        self.ready = ready
        self.since = now
        self.timer: Handle | None = None

    @property
    def granted(self) -> bool:
        return self._state == "granted"

    @property
    def number(self) -> int:
        """1 for who is next; 0 for who does not wait."""
        return self._line.waiting.index(self) + 1 if self._state == "waiting" else 0

    def grant(self, now: float) -> None:
        self._stop_timer()
        self._state, self.since = "granted", now

    def leave(self) -> None:
        """What was granted is free again, and who waited waits no longer. Nothing the second time."""
        state, self._state = self._state, "left"
        self.ready = _nobody  # it knows the call that knows this place
        self._stop_timer()
        if state == "waiting":
            self._line.waiting.remove(self)
        elif state == "granted":
            self._line.give_back(self)

    def abort(self) -> None:
        self.leave()

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Line:
    """All places at one endpoint."""

    def __init__(self, clock: Clock, endpoint: Endpoint) -> None:
        self._clock = clock
        self._granting = False
        self._mean_s = 1.0
        self.endpoint = endpoint
        self.busy = 0
        self.waiting: deque[Place] = deque()

    def enter(self, endpoint: Endpoint, ready: Ready) -> Place:
        """A place that is granted, or one that waits. Raises Overloaded."""
        self.endpoint = endpoint  # a reload may have changed the numbers
        now = self._clock.time()
        place = Place(self, ready, now)
        if self._has_room() and not self.waiting:
            self._grant(place)
        elif len(self.waiting) >= endpoint.queue:
            raise self._refusal("queue_full", "has no free place, and its queue is full")
        else:
            self.waiting.append(place)
            place.timer = self._clock.call_at(now + endpoint.queue_timeout_s, lambda: self._late(place))
        return place

    def give_back(self, place: Place) -> None:
        self.busy -= 1
        self._mean_s += MEAN_WEIGHT * (self._clock.time() - place.since - self._mean_s)
        self._serve()

    def _serve(self) -> None:
        """Grant what is free. A call that gives its place back at once does so inside: the loop outside goes on."""
        if self._granting:
            return
        self._granting = True
        try:
            while self.waiting and self._has_room():
                place = self.waiting.popleft()
                self._grant(place)
                place.ready(None)
        finally:
            self._granting = False

    def _has_room(self) -> bool:
        limit = self.endpoint.max_concurrent
        return limit is None or self.busy < limit

    def _grant(self, place: Place) -> None:
        self.busy += 1
        place.grant(self._clock.time())

    def _late(self, place: Place) -> None:
        refusal = self._refusal("queue_timeout", f"had no free place within {self.endpoint.queue_timeout_s:g} s")
        ready = place.ready
        place.leave()
        ready(refusal)

    def _refusal(self, code: str, what: str) -> Overloaded:
        limit = self.endpoint.max_concurrent or 1
        wait_s = min(max(1.0, self._mean_s * (len(self.waiting) + 1) / limit), LONGEST_ADVICE_S)
        return Overloaded(f"The endpoint {self.endpoint.id!r} {what}.", code=code, retry_after_s=wait_s)


class Queues:
    """One per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[str, Line] = {}

    def enter(self, endpoint: Endpoint, ready: Ready) -> Place:
        """`ready` is told only for a place that is not granted at once. Raises Overloaded."""
        line = self._lines.get(endpoint.id)
        if line is None:
            line = self._lines[endpoint.id] = Line(self._clock, endpoint)
        return line.enter(endpoint, ready)

    def waiting(self, endpoint: Endpoint) -> int:
        line = self._lines.get(endpoint.id)
        return len(line.waiting) if line is not None else 0


async def take_place(queues: Queues, endpoint: Endpoint) -> Place | None:
    """A granted place, for whoever waits in a coroutine; None where everybody has one. Raises Overloaded."""
    if endpoint.max_concurrent is None:
        return None
    done: asyncio.Future[StromError | None] = asyncio.get_running_loop().create_future()
    place = queues.enter(endpoint, lambda error: None if done.done() else done.set_result(error))
    if place.granted:
        return place
    try:
        refusal = await done
    except asyncio.CancelledError:
        place.leave()
        raise
    if refusal is not None:
        raise refusal
    return place
