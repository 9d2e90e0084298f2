"""The clocks of one turn: each ends it with a code of its own, and none is reset by what is no progress."""

from __future__ import annotations

from strom.client.patience import Patience
from strom.client.timing import StreamClock
from strom.core.events import Event, TextDelta
from strom.upstreams.timeouts import Timeouts


class Turned:
    """A patience and its clock, dispatched at 100 s."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.clock = StreamClock()
        self.clock.dispatch(100.0)
        self.patience = Patience(timeouts, self.clock)
        self.patience.dispatched(100.0)

    def text(self, at: float, text: str = "words") -> None:
        events: list[Event] = [TextDelta(0, text)]
        self.clock.observe(at, events)
        self.patience.last_at = at
        if self.patience.floor:
            self.patience.count(at, events)

    def code(self, now: float) -> str | None:
        error = self.patience.expired("up", now)
        return None if error is None else error.code


def test_no_first_token() -> None:
    turned = Turned(Timeouts(first_token_s=10))
    assert turned.patience.deadline() == 110
    assert turned.code(109.9) is None
    assert turned.code(110) == "first_token_timeout"


def test_silence_after_the_first_token() -> None:
    turned = Turned(Timeouts(first_token_s=10, idle_s=5))
    turned.text(104)
    assert turned.code(108.9) is None
    assert turned.code(109) == "idle_timeout"


def test_the_whole_takes_too_long_whatever_flows() -> None:
    turned = Turned(Timeouts(total_s=30))
    for second in range(30):
        turned.text(100.0 + second)
        assert turned.code(100.0 + second) is None
    error = turned.patience.expired("up", 130)
    assert error is not None
    assert error.code == "total_timeout"
    assert not error.retryable


def test_too_few_characters_in_a_window() -> None:
    turned = Turned(Timeouts(min_chars_per_s=2, throughput_window_s=10))
    for second in range(1, 12):
        turned.text(100.0 + second)
    assert turned.code(111) is None
    turned.text(115, ".")
    assert turned.patience.deadline() == 121
    assert turned.code(121) == "throughput_timeout"


def test_a_reader_that_was_slow_is_no_slow_upstream() -> None:
    turned = Turned(Timeouts(min_chars_per_s=2, throughput_window_s=10, idle_s=5))
    turned.text(101)
    turned.patience.paused_until(300)
    assert turned.code(304.9) is None
    assert turned.code(305) == "idle_timeout"


def test_nothing_is_awaited_before_the_dispatch() -> None:
    patience = Patience(Timeouts(), StreamClock())
    assert patience.deadline() == float("inf")
    assert patience.expired("up", 1e9) is None
