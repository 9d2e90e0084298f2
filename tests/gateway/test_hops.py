"""Where a call goes after a failure."""

from __future__ import annotations

import pytest

from strom.core.access import PolicySettings
from strom.core.errors import BadRequest, ContextOverflow, Overloaded, PermissionDenied, RateLimited, Unsupported
from strom.gateway.hops import FIRST, Hop, following, next_hop, rest_s
from strom.gateway.plan import Plan
from tests.gateway.places import place

SMALL, UNKNOWN, LARGE = place("a", context_window=1000), place("b"), place("c", context_window=4000)
BUSY = Overloaded("x")


def plan(*endpoints: object, retries: int = 0) -> Plan:
    return Plan(endpoints or (SMALL, UNKNOWN, LARGE), "m", retries=retries)  # type: ignore[arg-type]


def step(where: Plan, hop: Hop, error: Exception, *, another_may_do: bool = True, elapsed_s: float = 0) -> Hop | None:
    return next_hop(where, hop, error, another_may_do=another_may_do, elapsed_s=elapsed_s)  # type: ignore[arg-type]


def test_the_next_endpoint_while_there_is_one() -> None:
    assert step(plan(), FIRST, BUSY) == Hop(1)
    assert step(plan(), Hop(2), BUSY) is None
    assert step(plan(), FIRST, Unsupported("x")) == Hop(1)
    assert step(plan(), FIRST, BadRequest("x"), another_may_do=False) is None
    assert following(plan(), Hop(1, 2)) == Hop(2, 2)
    assert following(plan(), Hop(2)) is None


def test_the_same_endpoint_again_as_often_as_the_model_allows() -> None:
    only = plan(SMALL, retries=2)
    first = step(only, FIRST, BUSY)
    assert first is not None
    assert (first.at, first.retried) == (0, 1)
    assert 0.25 <= first.delay_s <= 0.5
    second = step(only, first, BUSY)
    assert second is not None
    assert 0.5 <= second.delay_s <= 1.0
    assert step(only, second, BUSY) is None
    assert step(only, FIRST, Unsupported("x")) is None, "it would be the same again"


def test_retry_after_is_a_floor_and_the_first_token_time_a_ceiling() -> None:
    only = plan(SMALL, retries=1)
    told = step(only, FIRST, RateLimited("x", retry_after_s=30))
    assert told is not None
    assert 30 <= told.delay_s <= 33
    assert step(only, FIRST, RateLimited("x", retry_after_s=30), elapsed_s=91) is None
    assert step(only, FIRST, RateLimited("x", retry_after_s=300)) is None


def test_rests_grow_to_a_bound() -> None:
    assert [rest_s(at, None, lambda: 1.0) for at in range(7)] == [0.5, 1, 2, 4, 8, 8, 8]


def test_calls_that_were_told_the_same_time_come_back_one_after_the_other() -> None:
    rests = sorted(rest_s(0, 10) for _ in range(200))
    assert rests[0] >= 10
    assert rests[-1] <= 11
    assert rests[150] - rests[50] > 0.2
    assert rest_s(0, 10, lambda: 0.0) == 10


def test_a_prompt_that_is_too_long_goes_on_to_what_is_known_to_be_larger() -> None:
    assert step(plan(), FIRST, ContextOverflow("x"), another_may_do=False) == Hop(2)
    assert step(plan(), FIRST, ContextOverflow("x", limit=4000), another_may_do=False) is None
    assert step(plan(), Hop(1), ContextOverflow("x"), another_may_do=False) is None, "nobody knows what was too small"
    assert step(plan(), Hop(1), ContextOverflow("x", limit=2000), another_may_do=False) == Hop(2)
    assert step(plan(LARGE, SMALL), FIRST, ContextOverflow("x"), another_may_do=False) is None


def test_a_plan_that_is_wrong_sends_nothing() -> None:
    wrong = Plan((SMALL,), "m", "eu", policies=(PolicySettings("eu", regions=("eu-*",)),))
    with pytest.raises(PermissionDenied, match="eu"):
        wrong.check(SMALL)
