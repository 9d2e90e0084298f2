"""A limiter that is watched: each lease is settled once, and what it holds is what an account of one's own says."""

from __future__ import annotations

from strom.shared.limiter import NOTHING, UNIT, Charge, Demand, Lease, Reading, Refusal, Scope, Then
from strom.shared.memory import MemoryLimiter
from tests.gateway.rig import FakeClock


class Account:
    """What one scope has given, kept from grants and charges alone."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.requests = self.tokens = self.taken = self.spent = 0
        self._at_ms = 0

    def flow(self, now_ms: int) -> None:
        passed = now_ms - self._at_ms
        self._at_ms = now_ms
        self.requests = max(0, self.requests - passed * self.scope.requests)
        self.tokens = max(0, self.tokens - passed * self.scope.tokens)

    def room(self, cost: int) -> bool:
        scope = self.scope
        return (
            (not scope.requests or self.requests + UNIT <= scope.requests * UNIT)
            and (not scope.tokens or self.tokens + cost * UNIT <= scope.tokens * UNIT)
            and (not scope.concurrent or self.taken < scope.concurrent)
            and (not scope.budget or self.spent < scope.budget)
        )

    def give(self, cost: int) -> None:
        self.taken += 1
        self.requests += UNIT if self.scope.requests else 0
        self.tokens += cost * UNIT if self.scope.tokens else 0

    def take_back(self, cost: int, charge: Charge) -> None:
        self.taken -= 1
        if self.scope.tokens:
            self.tokens = max(0, self.tokens + (charge.tokens - cost) * UNIT)
        if self.scope.budget and charge.currency == self.scope.currency:
            self.spent += charge.money


class WatchedLease:
    """`charge` None: it is not settled."""

    def __init__(self, limiter: WatchedLimiter, lease: Lease, demand: Demand) -> None:
        self._limiter = limiter
        self._lease = lease
        self._demand = demand
        self.readings: tuple[Reading, ...] = lease.readings
        self.charge: Charge | None = None

    def settle(self, charge: Charge = NOTHING) -> None:
        assert self.charge is None, "a lease is settled twice"
        self.charge = charge
        self._lease.settle(charge)
        for scope in self._demand.scopes:
            account = self._limiter.account(scope)
            account.take_back(scope.cost(self._demand) if scope.tokens else 0, charge)


class WatchedLimiter:
    """Stands before the real one, and knows what it must answer."""

    def __init__(self, limiter: MemoryLimiter, clock: FakeClock) -> None:
        self._limiter = limiter
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self.leases: list[WatchedLease] = []
        self.refused = 0

    def account(self, scope: Scope) -> Account:
        account = self._accounts.setdefault(scope.id, Account(scope))
        account.flow(int(self._clock.now * 1000))
        return account

    def reserve(self, demand: Demand, then: Then) -> None:
        costs = [(self.account(scope), scope.cost(demand) if scope.tokens else 0) for scope in demand.scopes]
        has_room = all(account.room(cost) for account, cost in costs)

        def decided(outcome: Lease | Refusal) -> None:
            assert isinstance(outcome, Refusal) is not has_room, "granted without room, or refused with it"
            if isinstance(outcome, Refusal):
                self.refused += 1
                then(outcome)
                return
            for account, cost in costs:
                account.give(cost)
            self.leases.append(WatchedLease(self, outcome, demand))
            then(self.leases[-1])

        self._limiter.reserve(demand, decided)

    async def check(self) -> None:
        """After the last call."""
        assert all(lease.charge is not None for lease in self.leases), "a lease is not settled"
        for name, account in self._accounts.items():
            self.account(account.scope)
            (level,) = await self._limiter.look([account.scope])
            assert level is not None
            theirs = (level.requests, level.tokens, level.taken, level.spent)
            assert theirs == (account.requests, account.tokens, 0, account.spent), (
                f"{name}: {theirs}, {account.__dict__}"
            )
