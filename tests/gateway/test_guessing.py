"""Who guesses keys waits for the answers; whoever has a key does not."""

from __future__ import annotations

import hashlib

from strom.core.access import KeySettings
from strom.policies.slowdown import FREE_FAILURES
from tests.gateway.rig import Rig

RIGHT, WRONG = [(b"x-api-key", b"gw-1")], [(b"x-api-key", b"nope")]


def rig() -> Rig:
    return Rig(keys=(KeySettings("ci", hashlib.sha256(b"gw-1").hexdigest()),))


def test_failures_are_answered_late_and_recorded_and_a_good_key_is_not() -> None:
    made = rig()
    for _ in range(FREE_FAILURES):
        assert made.call(headers=WRONG).status == 401
    late = made.call(headers=WRONG)
    assert late.status == 0
    made.call(headers=RIGHT)
    assert len(made.client.sent) == 1
    made.clock.advance(0.3)
    assert late.status == 401
    assert len(made.records.all) == FREE_FAILURES + 1
    assert made.gateway.slowdown.held == 0


def test_a_guesser_that_leaves_holds_nothing() -> None:
    made = rig()
    for _ in range(FREE_FAILURES):
        made.call(headers=WRONG)
    made.call(headers=WRONG).disconnect()
    assert made.gateway.slowdown.held == 0
    assert made.clock.armed == 0
    assert len(made.records.all) == FREE_FAILURES + 1


def test_too_many_that_wait_are_cut_off() -> None:
    made = rig()
    for _ in range(FREE_FAILURES):
        made.call(headers=WRONG)
    made.gateway.slowdown.held = 1000
    assert made.call(headers=WRONG).state == "aborted"
    assert len(made.records.all) == FREE_FAILURES + 1


def test_who_sends_no_key_is_told_so_at_once() -> None:
    made = rig()
    for _ in range(FREE_FAILURES + 5):
        assert made.call().status == 401
