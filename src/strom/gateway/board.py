"""The health board of a process: calls under way, time to the first token, and a circuit for each endpoint.

Fed by real traffic and, where that is configured, by looks at what is not in use (probing.py). Endpoints are known by their ids
and survive a reload; what a reload took away is forgotten (`keep`). All numbers are of this process alone: workers and
replicas each find out for themselves, which costs each of them a few failures and needs nothing shared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from strom.core.errors import ProviderAuthError, StromError, Unreachable
from strom.gateway.breaker import Breaker, judge
from strom.gateway.health import Circuit, Condition
from strom.gateway.plan import Endpoint

SMOOTHING = 0.2
"""Weight of the newest time to a first token."""
HALF_LIFE_S = 30.0
"""An endpoint that gets no calls looks twice as fast after so long, until it is tried again."""


class Standing:
    """What is known of one endpoint."""

    __slots__ = (
        "attempts",
        "breaker",
        "endpoint",
        "faults",
        "first_token_ms",
        "in_flight",
        "last_error",
        "looks_tell",
        "measured_at",
        "used_at",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.breaker = Breaker(endpoint.upstream.health)
        self.in_flight = 0
        self.attempts = 0
        self.faults = 0
        self.first_token_ms: float | None = None
        self.measured_at = 0.0
        self.used_at = float("-inf")
        self.last_error: str | None = None
        self.looks_tell = False
        """Whether a look would show that what was wrong last is so no more."""


class Board:
    """`time` is monotonic, in seconds; `draw` gives numbers in [0, 1)."""

    def __init__(self, time: Callable[[], float], draw: Callable[[], float] = random.random) -> None:
        self._time = time
        self._draw = draw
        self._standings: dict[str, Standing] = {}
        self._troubled: set[str] = set()
        """Those whose circuit may not be closed, or which may want to be left alone: of the others nothing need be asked."""

    # -- told --

    def began(self, endpoint: Endpoint) -> None:
        standing = self._standings.get(endpoint.id) or self._meet(endpoint)
        standing.in_flight += 1
        standing.used_at = now = self._time()
        if endpoint.id in self._troubled:
            standing.breaker.begin(now)

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        standing = self._standings.get(endpoint.id) or self._meet(endpoint)
        standing.in_flight = max(0, standing.in_flight - 1)
        standing.attempts += 1
        now = self._time()
        if first_token_ms is not None:
            known = standing.first_token_ms
            standing.first_token_ms = first_token_ms if known is None else known + SMOOTHING * (first_token_ms - known)
            standing.measured_at = now
        self._rate(standing, error, now)

    def looked(self, endpoint: Endpoint, error: StromError | None) -> None:
        """The end of a look at an endpoint. A good one proves that it lives and takes our key, not that it can answer: where
        that was what was wrong, it invites a trial."""
        standing = self._standings.get(endpoint.id) or self._meet(endpoint)
        now = self._time()
        if error is not None:
            self._rate(standing, error, now)
            standing.looks_tell = True
        elif standing.looks_tell:
            standing.breaker.invite_trial(now)

    def keep(self, endpoints: Iterable[Endpoint]) -> None:
        """Forget all others, and those that now stand for another place."""
        fresh = {endpoint.id: endpoint for endpoint in endpoints}
        for name, standing in list(self._standings.items()):
            endpoint = fresh.get(name)
            if endpoint is None or endpoint.upstream.origin != standing.endpoint.upstream.origin:
                if not standing.in_flight:
                    del self._standings[name]
                    self._troubled.discard(name)
            else:
                standing.endpoint = endpoint
                standing.breaker.settings = endpoint.upstream.health

    # -- asked --

    def in_flight(self, endpoint: Endpoint) -> int:
        standing = self._standings.get(endpoint.id)
        return standing.in_flight if standing is not None else 0

    def first_token_ms(self, endpoint: Endpoint) -> float:
        standing = self._standings.get(endpoint.id)
        if standing is None or standing.first_token_ms is None:
            return 0.0
        return float(standing.first_token_ms * 0.5 ** ((self._time() - standing.measured_at) / HALF_LIFE_S))

    def ready_at(self, endpoint: Endpoint) -> float | None:
        if endpoint.id not in self._troubled:
            return None
        breaker, now = self._standings[endpoint.id].breaker, self._time()
        if breaker.state(now) == "closed" and now >= breaker.cooling_until:
            self._troubled.discard(endpoint.id)
            return None
        return None if breaker.available(now) else breaker.ready_at()

    def idle_s(self, endpoint: Endpoint) -> float:
        """Since something was sent there; infinite when nothing was, 0 while something is under way."""
        standing = self._standings.get(endpoint.id)
        if standing is None:
            return float("inf")
        return 0.0 if standing.in_flight else self._time() - standing.used_at

    def condition(self, endpoint: Endpoint) -> Condition:
        standing = self._standings.get(endpoint.id)
        if standing is None:
            return Condition()
        now, breaker = self._time(), standing.breaker
        circuit: Circuit = breaker.state(now)
        if circuit == "closed" and now < breaker.cooling_until:
            circuit = "cooling"
        wait_s = breaker.ready_at() - now
        first_token_ms = standing.first_token_ms
        return Condition(
            circuit,
            standing.in_flight,
            standing.attempts,
            standing.faults,
            breaker.failures,
            round(wait_s, 3) if wait_s > 0 else None,
            round(first_token_ms, 3) if first_token_ms is not None else None,
            standing.last_error,
        )

    # -- inside --

    def _meet(self, endpoint: Endpoint) -> Standing:
        standing = self._standings[endpoint.id] = Standing(endpoint)
        return standing

    def _rate(self, standing: Standing, error: StromError | None, now: float) -> None:
        if error is None:
            standing.breaker.end_well(now)
            return
        verdict = judge(error)
        if verdict != "neutral":
            standing.last_error = error.code
            standing.faults += verdict != "busy"
            standing.looks_tell = isinstance(error, Unreachable | ProviderAuthError)
            self._troubled.add(standing.endpoint.id)
        standing.breaker.end(verdict, now, retry_after_s=error.retry_after_s, draw=self._draw())
