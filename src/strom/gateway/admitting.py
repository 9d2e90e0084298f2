"""Between a request that may be served and its call: what it takes from the limits, and what it gives back.

    Demand ──limiter──▶ lease ──▶ Opening.grant ──▶ settled with the call's record
                  └──▶ refusal ──▶ an error in the caller's protocol, with its rate-limit headers

The limiter may answer at once (memory) or later (Redis). A client that leaves meanwhile becomes a call that ends as it begins,
so that its lease is settled like any other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from strom.core.errors import StromError
from strom.core.record import CallRecord
from strom.policies.limit_headers import limit_headers
from strom.policies.limits import charge_for, helps_waiting, refusal_error
from strom.policies.slowdown import Slowdown
from strom.shared.limiter import NOTHING, Demand, Lease, Limiter, Refusal
from strom.transport.timers import Clock, Handle
from strom.transport.types import Exchange, Headers

DO_NOT_RETRY = (b"x-should-retry", b"false")
"""SDKs retry a 429 of their own accord, and would wait a minute for what will be refused again.

Source: protocol-facts.md, "SDK retry rule (openai, anthropic)": this header overrides it.
"""


class LeaseGrant:
    """A Grant. The demand's prompt stands for that of a call whose upstream counts none."""

    __slots__ = ("_demand", "_lease", "headers")

    def __init__(self, lease: Lease, headers: Headers, demand: Demand) -> None:
        self._lease = lease
        self._demand = demand
        self.headers = headers

    def settle(self, record: CallRecord) -> None:
        self._lease.settle(charge_for(record, self._demand.prompt, costs=self._demand.costs))


class HeldAnswer:
    """An answer that goes out late; at once when its client leaves. Keeps no task and blocks nobody."""

    __slots__ = ("_answer", "_exchange", "_slowdown", "_timer")

    def __init__(self, slowdown: Slowdown, exchange: Exchange, answer: Callable[[], None]) -> None:
        self._slowdown = slowdown
        self._exchange = exchange
        self._answer: Callable[[], None] | None = answer
        self._timer: Handle | None = None

    def start(self, clock: Clock, delay_s: float) -> None:
        self._slowdown.held += 1
        self._exchange.on_disconnect = self._release
        self._timer = clock.call_at(clock.time() + delay_s, self._release)

    def _release(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._slowdown.held -= 1
        self._exchange.on_disconnect = None
        answer()


class Taken:
    """What a call that is no stream was given, if limits bind it."""

    grant: LeaseGrant | None = None

    @property
    def headers(self) -> Headers:
        return self.grant.headers if self.grant is not None else []

    def mark(self, error: StromError) -> None:
        """Its answer tells our limits, not an upstream's."""
        if self.grant is not None:
            error.headers = [field for field in error.headers if field[0] == b"retry-after"] + self.headers

    def settle(self, record: CallRecord) -> None:
        if self.grant is not None:
            self.grant.settle(record)


def release(outcome: Lease | Refusal) -> None:
    """Of what nobody wants anymore."""
    if not isinstance(outcome, Refusal):
        outcome.settle(NOTHING)


class Desk:
    """Asks the limiter on behalf of calls. `wall`: Unix seconds."""

    def __init__(self, limiter: Limiter, wall: Callable[[], float]) -> None:
        self.limiter = limiter
        self.decisions: Counter[tuple[str, str]] = Counter()
        """How often it was granted, or refused by which kind of limit, of a key, a model or all."""
        self._wall = wall

    def reserve(self, demand: Demand, protocol: str, then: Callable[[LeaseGrant | StromError], None]) -> None:
        """`then` is called once, maybe within this call."""
        self.limiter.reserve(demand, lambda outcome: then(self._told(outcome, demand, protocol)))

    async def take(self, demand: Demand, protocol: str) -> LeaseGrant:
        """Raises StromError. Cancelled, it takes nothing."""
        answered: asyncio.Future[Lease | Refusal] = asyncio.get_running_loop().create_future()

        def take(outcome: Lease | Refusal) -> None:
            if not answered.cancelled():
                answered.set_result(outcome)
            else:
                release(outcome)

        self.limiter.reserve(demand, take)
        try:
            outcome = await answered
        except asyncio.CancelledError:  # it may have been given in the same turn
            if not answered.cancelled():
                release(answered.result())
            raise
        granted = self._told(outcome, demand, protocol)
        if isinstance(granted, StromError):
            raise granted
        return granted

    def _told(self, outcome: Lease | Refusal, demand: Demand, protocol: str) -> LeaseGrant | StromError:
        headers = limit_headers(protocol, demand.scopes, outcome.readings, self._wall())
        if isinstance(outcome, Refusal):
            error = refusal_error(outcome)
            error.headers = headers if helps_waiting(outcome) else [*headers, DO_NOT_RETRY]
            self.decisions[outcome.kind, outcome.scope.id.partition(":")[0] or "all"] += 1
            return error
        self.decisions["granted", "all"] += 1
        return LeaseGrant(outcome, headers, demand)
