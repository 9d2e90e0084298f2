"""Limits of one process, in its memory. A decision is made within the call that asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from strom.shared.limiter import (
    UNIT,
    Calendar,
    Charge,
    Demand,
    HeldLease,
    Level,
    Refusal,
    Scope,
    Then,
    longest,
)

Held = tuple[Scope, Level, int]
"""A scope, what it has given, and the tokens reserved there for one call."""
MAX_IDLE = 100_000
"""Scopes that are kept; beyond it, those that say nothing are forgotten."""
IDLE_MS = 600_000


class MemoryLimiter:
    """A Limiter. `clock`: monotonic seconds; `wall`: Unix seconds, for budgets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._calendar = Calendar(wall)
        self._levels: dict[str, Level] = {}
        self._sweep_at = MAX_IDLE

    def reserve(self, demand: Demand, then: Then) -> None:
        now_ms = int(self._clock() * 1000)
        levels = self._levels
        held: list[Held] = []
        lacking = False
        for scope in demand.scopes:
            level = levels.get(scope.id)
            if level is None or scope.budget:
                level = self._level(scope)
            if level.at_ms < now_ms:
                level.flow(scope, now_ms)
            cost = scope.cost(demand) if scope.tokens else 0
            if level.lacks(scope, cost):
                lacking = True
            held.append((scope, level, cost))
        if lacking:
            then(self._refusal(held))
        elif len(held) == 1:
            scope, level, cost = held[0]
            then(HeldLease(self.settled, held, (level.take(scope, cost),)))
        else:
            then(HeldLease(self.settled, held, tuple([level.take(scope, cost) for scope, level, cost in held])))

    def _refusal(self, held: list[Held]) -> Refusal:
        readings = tuple([(level.requests, level.tokens) for _, level, _ in held])
        waits = [
            (wait_ms, kind, scope)
            for scope, level, cost in held
            for wait_ms, kind in level.waits(scope, cost, self._calendar.left_ms(scope.per))
        ]
        return longest(waits, readings)

    def _level(self, scope: Scope) -> Level:
        level = self._levels.get(scope.id)
        if level is None:
            if len(self._levels) >= self._sweep_at:
                self._forget_idle()
            level = self._levels[scope.id] = Level()
        if scope.budget and level.period != (period := self._calendar.start(scope.per)):
            level.period, level.spent = period, 0
        return level

    def _forget_idle(self) -> None:
        """What is so old is full again. Not before the table has doubled, if nearly all of it is in use."""
        old_ms = int(self._clock() * 1000) - IDLE_MS
        kept = {
            name: level for name, level in self._levels.items() if level.taken or level.spent or level.at_ms > old_ms
        }
        self._levels = kept
        self._sweep_at = max(MAX_IDLE, 2 * len(kept))

    def settled(self, held: list[Held], charge: Charge) -> None:
        now_ms = int(self._clock() * 1000)
        for scope, level, cost in held:
            level.taken -= 1
            if scope.tokens:
                if level.at_ms < now_ms:
                    level.flow(scope, now_ms)
                used = level.tokens + (charge.tokens - cost) * UNIT
                level.tokens = used if used > 0 else 0
            if scope.budget and charge.money and charge.currency == scope.currency:
                self._level(scope).spent += charge.money  # in the period that it is now

    def seed(self, scope: Scope, money: int) -> None:
        known = self._levels.get(scope.id)
        if known is None or known.period != self._calendar.start(scope.per):
            self._level(scope).spent = money

    def spent(self, scope: Scope) -> int:
        """In the present period."""
        return self._level(scope).spent

    def taken(self, scope: Scope) -> int:
        return self._level(scope).taken

    async def look(self, scopes: Sequence[Scope]) -> list[Level | None]:
        now_ms = int(self._clock() * 1000)
        levels: list[Level | None] = []
        for scope in scopes:
            level = self._level(scope)
            level.flow(scope, now_ms)
            levels.append(level)
        return levels

    def start(self) -> None:
        pass

    async def close(self) -> None:
        self._levels.clear()
