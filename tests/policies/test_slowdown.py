"""Failures from one address are answered later and later, within bounds."""

import pytest

from strom.policies import slowdown
from strom.policies.slowdown import FREE_FAILURES, LONGEST_DELAY_S, WINDOW_S, Slowdown, network_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_failures_are_free_and_then_each_takes_longer() -> None:
    slow = Slowdown(Clock())
    delays = [slow.delay_s("10.0.0.1") for _ in range(FREE_FAILURES + 8)]
    assert delays[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    grown = delays[FREE_FAILURES:]
    assert grown[0] == 0.25
    assert grown == sorted(grown)
    assert grown[-1] == LONGEST_DELAY_S
    assert slow.delay_s("10.0.0.2") == 0.0


def test_it_is_forgotten_in_time() -> None:
    clock = Clock()
    slow = Slowdown(clock)
    for _ in range(40):
        slow.delay_s("a")
    clock.now += WINDOW_S
    assert slow.delay_s("a") > 0
    clock.now += 2 * WINDOW_S
    assert slow.delay_s("a") == 0


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowdown, "MAX_PEERS", 3)
    slow = Slowdown(Clock())
    for number in range(100):
        slow.delay_s(str(number))
    assert len(slow._failures) == 3


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1%eth0", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_a_machine_is_known_by_its_network(peer: str, network: str) -> None:
    assert network_of(peer) == network
