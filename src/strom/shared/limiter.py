"""What a limiter decides, and the arithmetic that all of them share.

One decision per call: a `Demand` names every scope that binds it (the key, the model, all calls), and either all of them give
what is asked or none does. What is given is a `Lease`, settled exactly once with what the call really used.

Buckets count what is *used*, in units of which one request or token has `UNIT`; a limit of N a minute gives N units back each
millisecond. So the arithmetic is in integers and exact, an unknown bucket is a full one, and a call that used more than was
reserved leaves a debt. A bucket holds one minute's worth. Money is counted in integers too, `MONEY` of which make one unit of
the currency, in a counter for each calendar period (UTC); it is charged after the call, and refuses once it is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

UNIT = 60_000
MONEY = 1_000_000_000
_MOST = 1 << 62
"""Levels end there: they stand in 64 bits where processes share them. No real limit is near it."""
CONCURRENT_WAIT_MS = 1000
"""When a slot comes free, nobody knows: this is what is told."""
Kind = Literal["requests", "tokens", "concurrent", "budget", "unavailable"]
Per = Literal["day", "week", "month"]


class Scope(msgspec.Struct, frozen=True, gc=False):
    """Limits that are counted together. 0: no limit of that kind. `budget` in units of which `MONEY` make one `currency`."""

    id: str
    requests: int = 0
    tokens: int = 0
    concurrent: int = 0
    budget: int = 0
    per: Per = "month"
    currency: str = ""

    def cost(self, demand: Demand) -> int:
        """Tokens to reserve here. Output that a bucket cannot hold waits for a full one; a prompt must fit."""
        tokens, limit = demand.tokens, self.tokens
        return tokens if tokens <= limit or demand.prompt > limit else limit


class Demand(msgspec.Struct, frozen=True, gc=False):
    """`tokens`: the prompt's and the output's together; the part that is certain is `prompt`. `costs`: a budget is among it."""

    scopes: tuple[Scope, ...]
    tokens: int = 0
    prompt: int = 0
    costs: bool = True


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What a call used in the end. `money` counts in scopes of its own currency alone: different currencies never add."""

    tokens: int = 0
    money: int = 0
    currency: str = ""


NOTHING = Charge()


Reading = tuple[int, int]
"""What stands in a scope right after a decision: used units of its bucket of requests and of its bucket of tokens."""


def remaining(used: int, limit: int) -> int:
    """What a bucket would still give now."""
    return max(0, limit - -(-used // UNIT))


def full_ms(used: int, limit: int) -> int:
    """Until a bucket is full again."""
    return -(-used // limit)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """`scope` and `kind`: what keeps the call waiting longest. `wait_ms` None: it will never fit."""

    kind: Kind
    scope: Scope
    wait_ms: int | None
    readings: tuple[Reading, ...] = ()


Held = TypeVar("Held")


class Lease(Protocol):
    """What one call was given. `readings` run along the demand's scopes; those of scopes without buckets are empty."""

    readings: tuple[Reading, ...]

    def settle(self, charge: Charge) -> None:
        """Once; more does nothing. Reserved tokens become those used, the slots come free. Never raises, never waits."""
        ...


class HeldLease(Generic[Held]):
    """A lease that its limiter settles within the call: `held` is what the limiter knows it by."""

    __slots__ = ("_held", "_settle", "readings")

    def __init__(self, settle: Callable[[Held, Charge], None], held: Held, readings: tuple[Reading, ...]) -> None:
        self._settle: Callable[[Held, Charge], None] | None = settle
        self._held = held
        self.readings = readings

    def settle(self, charge: Charge = NOTHING) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self._held, charge)


Then = Callable[["Lease | Refusal"], None]


class Limiter(Protocol):
    """Calls of one process come from one thread."""

    def reserve(self, demand: Demand, then: Then) -> None:
        """`then` is called exactly once, maybe within this call; it must not raise."""
        ...

    def seed(self, scope: Scope, money: int) -> None:
        """What the present period has cost so far, unless this limiter knows already."""
        ...

    async def look(self, scopes: Sequence[Scope]) -> list[Level | None]:
        """What stands there now; None where nobody can tell."""
        ...

    def start(self) -> None:
        """In the process, and inside the loop, that it is used in."""
        ...

    async def close(self) -> None: ...


class Level:
    """What a scope has given. `taken` are the slots that count against it."""

    __slots__ = ("at_ms", "period", "requests", "spent", "taken", "tokens")

    def __init__(self) -> None:
        self.requests = 0
        self.tokens = 0
        self.at_ms = 0
        self.taken = 0
        self.spent = 0
        self.period = 0

    def flow(self, scope: Scope, now_ms: int) -> None:
        """Give back what time gives back. A clock that goes backwards gives nothing."""
        passed = now_ms - self.at_ms
        if passed > 0:
            self.at_ms = now_ms
            if self.requests:
                left = self.requests - passed * scope.requests
                self.requests = left if left > 0 else 0
            if self.tokens:
                left = self.tokens - passed * scope.tokens
                self.tokens = left if left > 0 else 0

    def lacks(self, scope: Scope, cost: int) -> bool:
        """Whether anything stands against one more call; after `flow`, in the present period."""
        requests, tokens = scope.requests, scope.tokens
        return bool(
            (requests and self.requests + UNIT > requests * UNIT)
            or (tokens and self.tokens + cost * UNIT > tokens * UNIT)
            or (scope.concurrent and self.taken >= scope.concurrent)
            or (scope.budget and self.spent >= scope.budget)
        )

    def take(self, scope: Scope, cost: int) -> Reading:
        self.taken += 1
        if scope.requests:
            self.requests += UNIT
        if cost:
            self.tokens += cost * UNIT
        return self.requests, self.tokens

    def give_back(self, scope: Scope, reserved: int, charge: Charge) -> None:
        """After `flow`, in the period in which the call ended."""
        if scope.tokens:
            self.tokens = min(max(0, self.tokens + (charge.tokens - reserved) * UNIT), _MOST)
        if scope.budget and charge.currency == scope.currency:
            self.spent = min(self.spent + charge.money, _MOST)

    def waits(self, scope: Scope, cost: int, period_left_ms: int) -> list[tuple[int | None, Kind]]:
        """What stands against one more call, and for how long. None: for ever."""
        found: list[tuple[int | None, Kind]] = []
        if scope.requests and (over := self.requests + UNIT - scope.requests * UNIT) > 0:
            found.append((-(-over // scope.requests), "requests"))
        if scope.tokens and (over := self.tokens + cost * UNIT - scope.tokens * UNIT) > 0:
            found.append((-(-over // scope.tokens) if cost <= scope.tokens else None, "tokens"))
        if 0 < scope.concurrent <= self.taken:
            found.append((CONCURRENT_WAIT_MS, "concurrent"))
        if 0 < scope.budget <= self.spent:
            found.append((period_left_ms, "budget"))
        return found


def longest(waits: list[tuple[int | None, Kind, Scope]], readings: tuple[Reading, ...]) -> Refusal:
    """The refusal of which the call will hear: there is no use in coming back before the last of them has passed."""
    wait_ms, kind, scope = max(waits, key=lambda wait: float("inf") if wait[0] is None else wait[0])
    return Refusal(kind, scope, wait_ms, readings)


class Calendar:
    """Periods of budgets: days, weeks that begin on Monday, months, in UTC. `wall` gives Unix seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._known: dict[str, tuple[int, int]] = {}

    def start(self, per: Per) -> int:
        """Unix seconds."""
        return self._bounds(per)[0]

    def left_ms(self, per: Per) -> int:
        return max(0, int((self._bounds(per)[1] - self._wall()) * 1000) + 1)

    def _bounds(self, per: Per) -> tuple[int, int]:
        bounds = self._known.get(per)
        now = self._wall()
        if bounds is None or not bounds[0] <= now < bounds[1]:
            bounds = self._known[per] = period_around(now, per)
        return bounds


def period_around(now: float, per: Per) -> tuple[int, int]:
    """Beginning and end, in Unix seconds."""
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match per:
        case "day":
            start, end = day, day + timedelta(days=1)
        case "week":
            start = day - timedelta(days=day.weekday())
            end = start + timedelta(days=7)
        case "month":
            start = day.replace(day=1)
            end = (start + timedelta(days=32)).replace(day=1)
    return int(start.timestamp()), int(end.timestamp())
