"""What every limiter does, over memory, memory of several processes, and a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strom.shared.limiter import MONEY, NOTHING, UNIT, Demand, Lease, Limiter, Refusal, Scope, full_ms, remaining
from tests.shared.limiters import (
    Clocks,
    Make,
    ask,
    granted,
    make_mapped,
    make_memory,
    make_redis,
    one,
    refused,
    running,
    used,
)


@pytest.fixture(params=["memory", "mapped", "redis"])
def make(request: pytest.FixtureRequest) -> Make:
    match request.param:
        case "memory":
            return make_memory
        case "mapped":
            return make_mapped
        case _:
            return make_redis(request.getfixturevalue("redis_url"))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def limiter(make: Make, clocks: Clocks) -> AsyncIterator[Limiter]:
    async with running(make(clocks)) as made:
        yield made


async def test_a_minutes_worth_at_once_then_one_at_a_time(limiter: Limiter, clocks: Clocks) -> None:
    demand = one(requests=3)
    for left in (2, 1, 0):
        lease = await granted(limiter, demand)
        assert remaining(lease.readings[0][0], 3) == left
    outcome = await refused(limiter, demand)
    assert (outcome.kind, outcome.wait_ms) == ("requests", 20_000)
    clocks.advance(19_999)
    assert (await refused(limiter, demand)).wait_ms == 1
    clocks.advance(1)
    await granted(limiter, demand)


async def test_a_refusal_takes_nothing(limiter: Limiter, clocks: Clocks) -> None:
    demand = Demand((Scope("a", requests=5), Scope("b", requests=1)))
    await granted(limiter, demand)
    for _ in range(3):
        assert (await refused(limiter, demand)).scope.id == "b"
    lease = await granted(limiter, Demand((Scope("a", requests=5),)))
    assert remaining(lease.readings[0][0], 5) == 3


async def test_tokens_are_reserved_and_settled_by_what_was_used(limiter: Limiter) -> None:
    limits = {"tokens": 1000}
    lease = await granted(limiter, one(800, 100, **limits))
    assert remaining(lease.readings[0][1], 1000) == 200
    assert (await refused(limiter, one(300, 100, **limits))).kind == "tokens"
    lease.settle(used(150))
    again = await granted(limiter, one(850, 100, **limits))
    assert remaining(again.readings[0][1], 1000) == 0


async def test_more_than_was_reserved_leaves_a_debt(limiter: Limiter, clocks: Clocks) -> None:
    (await granted(limiter, one(100, 100, tokens=600))).settle(used(1200))
    outcome = await refused(limiter, one(10, 10, tokens=600))
    assert outcome.wait_ms == 61_000  # 610 tokens, ten a second
    clocks.advance(61_000)
    await granted(limiter, one(10, 10, tokens=600))


async def test_output_waits_for_a_full_bucket_but_a_prompt_must_fit(limiter: Limiter, clocks: Clocks) -> None:
    lease = await granted(limiter, one(50_000, 400, tokens=1000))
    assert remaining(lease.readings[0][1], 1000) == 0
    lease.settle(used(500))
    assert (await refused(limiter, one(50_000, 400, tokens=1000))).wait_ms == 30_000
    assert (await refused(limiter, one(50_000, 1001, tokens=1000))).wait_ms is None


async def test_slots_come_free_exactly_once(limiter: Limiter) -> None:
    demand = one(concurrent=2)
    first, second = await granted(limiter, demand), await granted(limiter, demand)
    assert (await refused(limiter, demand)).kind == "concurrent"
    first.settle(NOTHING)
    first.settle(NOTHING)
    third = await granted(limiter, demand)
    assert isinstance(await ask(limiter, demand), Refusal)
    second.settle(NOTHING)
    third.settle(NOTHING)
    for _ in range(2):
        await granted(limiter, demand)
    assert isinstance(await ask(limiter, demand), Refusal)


async def test_money_refuses_when_it_is_used_up_until_the_period_ends(limiter: Limiter, clocks: Clocks) -> None:
    clocks.wall_s = datetime(2026, 11, 30, 23, 0, tzinfo=UTC).timestamp()
    demand = one(budget=MONEY // 10, per="month", currency="EUR")
    (await granted(limiter, demand)).settle(used(0, MONEY // 10 - 1))
    (await granted(limiter, demand)).settle(used(0, MONEY, "USD"))
    (await granted(limiter, demand)).settle(used(0, 1))
    outcome = await refused(limiter, demand)
    assert outcome.kind == "budget"
    assert outcome.wait_ms == 3_600_001
    clocks.advance(3_600_000)
    await granted(limiter, demand)


async def test_what_was_spent_before_is_known_and_seeded_once(limiter: Limiter) -> None:
    scope = Scope("key:k", budget=5 * MONEY, per="day", currency="EUR")
    limiter.seed(scope, 4 * MONEY)
    (await granted(limiter, Demand((scope,)))).settle(used(0, MONEY))
    limiter.seed(scope, 4 * MONEY)
    assert (await refused(limiter, Demand((scope,)))).kind == "budget"


async def test_the_longest_wait_is_told(limiter: Limiter) -> None:
    demand = Demand((Scope("a", requests=60), Scope("b", requests=1)))
    await granted(limiter, demand)
    outcome = await refused(limiter, demand)
    assert (outcome.scope.id, outcome.wait_ms) == ("b", 60_000)


async def test_who_looks_changes_nothing(limiter: Limiter, clocks: Clocks) -> None:
    scope = Scope("key:k", requests=5, tokens=100, concurrent=3, budget=MONEY, currency="EUR")
    lease = await granted(limiter, Demand((scope,), 40, 40))
    for _ in range(2):
        (level,) = await limiter.look([scope])
        assert level is not None
        assert (level.requests, level.tokens, level.taken, level.spent) == (UNIT, 40 * UNIT, 1, 0)
    lease.settle(used(10, 7))
    (level,) = await limiter.look([scope])
    assert level is not None
    assert (level.tokens, level.taken, level.spent) == (10 * UNIT, 0, 7)


async def test_large_limits_stay_exact(limiter: Limiter, clocks: Clocks) -> None:
    limit = 100_000_000_000
    lease = await granted(limiter, one(limit - 1, 0, tokens=limit))
    assert lease.readings[0][1] == (limit - 1) * UNIT
    second = await granted(limiter, one(1, 0, tokens=limit))
    assert full_ms(second.readings[0][1], limit) == 60_000
    assert (await refused(limiter, one(1, 0, tokens=limit))).wait_ms == 1


# --- against a model that is as plain as can be ------------------------------------------------------


class Model:
    """One scope: every limit as a list of what happened."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.used = [0, 0]
        self.at = 0
        self.open = 0

    def to(self, now: int) -> None:
        for _ in range(now - self.at):
            self.used = [max(0, self.used[0] - self.scope.requests), max(0, self.used[1] - self.scope.tokens)]
        self.at = now

    def admits(self, tokens: int) -> bool:
        requests_fit = self.used[0] + UNIT <= self.scope.requests * UNIT
        return (
            requests_fit
            and self.used[1] + tokens * UNIT <= self.scope.tokens * UNIT
            and self.open < self.scope.concurrent
        )

    def take(self, tokens: int) -> None:
        self.used = [self.used[0] + UNIT, self.used[1] + tokens * UNIT]
        self.open += 1

    def settle(self, reserved: int, tokens: int) -> None:
        self.used[1] = max(0, self.used[1] + (tokens - reserved) * UNIT)
        self.open -= 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.integers(0, 2500)),
        st.tuples(st.just("ask"), st.integers(0, 60)),
        st.tuples(st.just("settle"), st.integers(0, 90)),
    ),
    max_size=40,
)


@given(steps=STEPS, requests=st.integers(1, 9), tokens=st.integers(1, 200), concurrent=st.integers(1, 4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_it_admits_exactly_what_the_model_admits(
    make: Make, steps: list[tuple[str, int]], requests: int, tokens: int, concurrent: int
) -> None:
    clocks = Clocks()
    scope = Scope("key:k", requests=requests, tokens=tokens, concurrent=concurrent)
    model = Model(scope)
    model.at = clocks.ms
    leases: list[tuple[Lease, int]] = []
    async with running(make(clocks)) as limiter:
        for step, number in steps:
            if step == "pass":
                clocks.advance(number)
                continue
            model.to(clocks.ms)
            if step == "ask":
                await _compare(limiter, model, number, leases)
            elif leases:
                lease, reserved = leases.pop(0)
                lease.settle(used(number))
                lease.settle(used(number))
                model.settle(reserved, number)
            assert model.open == len(leases)


async def _compare(limiter: Limiter, model: Model, tokens: int, leases: list[tuple[Lease, int]]) -> None:
    demand = Demand((model.scope,), tokens, 0)
    cost = min(tokens, model.scope.tokens)
    expected = model.admits(cost)
    outcome = await ask(limiter, demand)
    assert isinstance(outcome, Refusal) is not expected
    if not isinstance(outcome, Refusal):
        model.take(cost)
        leases.append((outcome, cost))
        assert list(outcome.readings[0]) == model.used


async def test_what_absurd_calls_have_used_up_stays_used_up(limiter: Limiter, clocks: Clocks) -> None:
    scope = Scope("key:k", tokens=100, budget=MONEY, currency="EUR")
    for lease in [await granted(limiter, Demand((scope,), 1, 1)) for _ in range(6)]:
        lease.settle(used(100_000_000_000, 1 << 53))
    (level,) = await limiter.look([scope])
    assert level is not None
    assert level.taken == 0
    assert level.spent == 6 << 53
    await refused(limiter, Demand((scope,), 1, 1))
