"""What the health board tells of traffic, and what survives a reload."""

from strom.core.errors import BadRequest, ProviderAuthError, TimedOut, Unreachable
from strom.gateway.board import Board
from strom.gateway.health import Condition
from strom.upstreams.settings import HealthSettings
from tests.gateway.places import place
from tests.gateway.rig import FakeClock

A = place("a", health=HealthSettings(failures=2, open_s=4))


def board() -> tuple[Board, FakeClock]:
    clock = FakeClock()
    return Board(clock.time, draw=lambda: 0.5), clock


def test_calls_under_way_are_counted() -> None:
    kept, _ = board()
    kept.began(A)
    kept.began(A)
    assert kept.in_flight(A) == 2
    kept.ended(A, None, 10)
    kept.ended(A, BadRequest("x"), None)
    assert kept.in_flight(A) == 0


def test_nothing_is_known_of_a_stranger() -> None:
    kept, _ = board()
    assert kept.condition(A) == Condition()
    assert kept.ready_at(A) is None
    assert kept.first_token_ms(A) == 0
    assert kept.idle_s(A) == float("inf")


def test_the_mean_time_to_a_first_token_follows_and_forgets() -> None:
    kept, clock = board()
    for ms in (100, 200):
        kept.began(A)
        kept.ended(A, None, ms)
    assert kept.first_token_ms(A) == 120
    clock.advance(30)
    assert kept.first_token_ms(A) == 60
    assert kept.condition(A).time_to_first_token_ms == 120


def test_an_open_circuit_is_told_with_its_reason() -> None:
    kept, clock = board()
    for _ in range(2):
        kept.began(A)
        kept.ended(A, Unreachable("x"), None)
    assert kept.condition(A) == Condition("open", 0, 2, 2, 2, 4.0, None, "upstream_unreachable")
    assert kept.ready_at(A) == clock.now + 4
    clock.advance(4)
    assert kept.condition(A).circuit == "half-open"
    assert kept.ready_at(A) is None


def test_a_good_look_invites_a_trial_and_no_more() -> None:
    kept, _ = board()
    kept.began(A)
    kept.ended(A, ProviderAuthError("x"), None)
    kept.looked(A, None)
    assert kept.condition(A).circuit == "half-open"


def test_a_good_look_says_nothing_of_what_looks_do_not_show() -> None:
    kept, _ = board()
    for _ in range(2):
        kept.began(A)
        kept.ended(A, TimedOut("x"), None)
    kept.looked(A, None)
    assert kept.condition(A).circuit == "open"


def test_bad_looks_open() -> None:
    kept, _ = board()
    kept.looked(A, Unreachable("x"))
    kept.looked(A, Unreachable("x"))
    assert kept.condition(A).circuit == "open"
    assert kept.condition(A).attempts == 0


def test_a_reload_keeps_what_stands_for_the_same_place() -> None:
    kept, _ = board()
    for each in (A, place("b"), place("c")):
        kept.began(each)
        kept.ended(each, TimedOut("x"), None)
    moved = place("d", order=2)
    moved = type(moved)("b", moved.upstream, "real")
    kept.keep([place("a"), moved])
    assert kept.condition(A).consecutive_faults == 1
    assert kept.condition(moved) == Condition()
    assert kept.condition(place("c")) == Condition()


def test_how_long_nothing_was_sent() -> None:
    kept, clock = board()
    kept.began(A)
    clock.advance(5)
    assert kept.idle_s(A) == 0
    kept.ended(A, None, 1)
    assert kept.idle_s(A) == 5
