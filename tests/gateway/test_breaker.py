"""The circuit of an endpoint: a model-based test over all its steps, and the rules one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strom.core.errors import (
    BadRequest,
    Cancelled,
    ContentPolicy,
    ContextOverflow,
    GatewayError,
    IncompleteStream,
    InvalidAnswer,
    NotFound,
    Overloaded,
    PermissionDenied,
    ProviderAuthError,
    RateLimited,
    StromError,
    TimedOut,
    TooLarge,
    Unreachable,
)
from strom.gateway.breaker import Breaker, judge
from strom.upstreams.settings import HealthSettings

SETTINGS = HealthSettings(failures=3, window_calls=6, window_s=30, open_s=2, max_open_s=8)
INNOCENT = [
    BadRequest("x"),
    NotFound("x"),
    PermissionDenied("x"),
    TooLarge("x"),
    Cancelled("x"),
    ContentPolicy("x"),
    ContextOverflow("x"),
    GatewayError("x"),
    InvalidAnswer("x"),
]
GUILTY = [Unreachable("x"), TimedOut("x"), Overloaded("x"), IncompleteStream("x")]


def end(breaker: Breaker, error: StromError | None, now: float, draw: float = 0.5) -> None:
    retry_after_s = error.retry_after_s if error is not None else None
    breaker.end(judge(error), now, retry_after_s=retry_after_s, draw=draw)


@pytest.mark.parametrize("error", INNOCENT, ids=lambda error: type(error).__name__)
def test_no_mistake_of_a_client_ejects(error: StromError) -> None:
    breaker = Breaker(SETTINGS)
    for at in range(100):
        breaker.begin(at)
        end(breaker, error, at)
    assert breaker.state(100) == "closed"
    assert breaker.available(100)


@pytest.mark.parametrize("error", GUILTY, ids=lambda error: type(error).__name__)
def test_faults_in_a_row_open(error: StromError) -> None:
    breaker = Breaker(SETTINGS)
    for at in range(2):
        end(breaker, error, at)
        assert breaker.state(at) == "closed"
    end(breaker, error, 2)
    assert breaker.state(2) == "open"
    assert not breaker.available(2)


def test_an_innocent_end_between_faults_does_not_heal() -> None:
    breaker = Breaker(SETTINGS)
    for error in (TimedOut("x"), BadRequest("x"), TimedOut("x"), Cancelled("x"), TimedOut("x")):
        end(breaker, error, 0)
    assert breaker.state(0) == "open"


def test_a_share_of_faults_opens_and_old_ones_are_forgotten() -> None:
    breaker = Breaker(SETTINGS)
    for at in range(6):
        end(breaker, TimedOut("x") if at % 2 else None, at)
    assert breaker.state(5) == "open"
    slow = Breaker(SETTINGS)
    for at in range(6):
        end(slow, TimedOut("x") if at % 2 else None, at * 20)
    assert slow.state(100) == "closed"


def test_refused_credentials_open_at_once() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, ProviderAuthError("x"), 0)
    assert breaker.state(0) == "open"


def test_one_trial_at_a_time_and_twice_as_long_when_it_fails() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, ProviderAuthError("x"), 0)
    assert breaker.state(2) == "half-open"
    assert breaker.available(2)
    breaker.begin(2)
    assert not breaker.available(2)
    end(breaker, TimedOut("x"), 3)
    assert breaker.state(6.9) == "open"
    assert breaker.state(7) == "half-open"
    breaker.begin(7)
    end(breaker, None, 8)
    assert breaker.state(8) == "closed"


def test_a_trial_that_the_client_left_makes_room_for_another() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, ProviderAuthError("x"), 0)
    breaker.begin(2)
    end(breaker, Cancelled("x"), 2.5)
    assert breaker.state(2.5) == "half-open"
    assert breaker.available(2.5)


def test_a_long_trial_does_not_bar_the_way() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, ProviderAuthError("x"), 0)
    breaker.begin(2)
    assert not breaker.available(3)
    assert breaker.available(4)


def test_retry_after_is_heeded_within_bounds_and_is_no_fault() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, RateLimited("x", retry_after_s=5), 0)
    assert breaker.state(0) == "closed"
    assert not breaker.available(4.9)
    assert breaker.available(5)
    end(breaker, RateLimited("x", retry_after_s=3600), 10)
    assert breaker.available(18)
    end(breaker, RateLimited("x"), 20)
    assert not breaker.available(20.5)


def test_a_success_while_open_invites_a_trial() -> None:
    breaker = Breaker(SETTINGS)
    end(breaker, ProviderAuthError("x"), 0)
    end(breaker, None, 0.5)
    assert breaker.state(0.5) == "half-open"


class Machine(RuleBasedStateMachine):
    """Whatever happens in whatever order: bounds hold, and only faults lead towards open."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(SETTINGS)
        self.now = 0.0

    def _seen(self) -> tuple[Any, ...]:
        breaker = self.breaker
        return (breaker.state(self.now), breaker.failures, breaker.open_until, breaker.cooling_until)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        before = self.breaker.state(self.now)
        self.now += seconds
        after = self.breaker.state(self.now)
        assert after == before or (before, after) == ("open", "half-open")

    @rule()
    def begin(self) -> None:
        self.breaker.begin(self.now)

    @precondition(lambda self: self.breaker.state(self.now) == "half-open" and self.breaker.available(self.now))
    @rule()
    def begin_a_trial(self) -> None:
        self.breaker.begin(self.now)
        assert not self.breaker.available(self.now)

    @rule(error=st.sampled_from(INNOCENT))
    def end_innocently(self, error: StromError) -> None:
        before = self._seen()
        end(self.breaker, error, self.now)
        assert self._seen() == before

    @rule(error=st.sampled_from(GUILTY), draw=st.floats(0, 0.999))
    def end_by_a_fault(self, error: StromError, draw: float) -> None:
        before = self.breaker.state(self.now)
        end(self.breaker, error, self.now, draw)
        if before == "half-open" or self.breaker.failures >= SETTINGS.failures:
            assert self.breaker.state(self.now) == "open"

    @rule(wait_s=st.none() | st.floats(0, 10_000))
    def end_busy(self, wait_s: float | None) -> None:
        before = self.breaker.state(self.now)
        end(self.breaker, RateLimited("x", retry_after_s=wait_s), self.now)
        assert self.breaker.state(self.now) == before

    @rule()
    def end_well(self) -> None:
        before = self.breaker.state(self.now)
        end(self.breaker, None, self.now)
        assert self.breaker.state(self.now) == ("half-open" if before == "open" else "closed")

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        assert self.breaker.ready_at() <= self.now + SETTINGS.max_open_s * 1.2


TestMachine = Machine.TestCase
