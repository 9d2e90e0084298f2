"""Whether one more call may begin."""

from __future__ import annotations

import os

import pytest

from strom.core.errors import AtCapacity
from strom.policies.admission import LONGEST_WAIT_S, Admission, resident_bytes

MB = 1_048_576


class Process:
    """Its memory and its clock, in a test's hand. `looks`: how often it was asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.held: int | None = 0
        self.looks = 0

    def resident(self) -> int | None:
        self.looks += 1
        return self.held

    def admission(self, megabytes: int | None) -> Admission:
        return Admission(0, megabytes, self.resident, lambda: self.now)


def test_calls_are_counted() -> None:
    admission = Admission(max_active_calls=2)
    admission.check(1)
    with pytest.raises(AtCapacity) as refused:
        admission.check(2)
    assert refused.value.fault == "gateway"
    assert refused.value.status == 503
    assert 1 <= (refused.value.retry_after_s or 0) <= LONGEST_WAIT_S
    admission.check(1)


def test_without_limits_everything_is_admitted() -> None:
    Admission().check(1_000_000)
    assert Admission().has_memory()


def test_not_everybody_is_told_to_come_back_at_once() -> None:
    waits = set()
    for _ in range(100):
        with pytest.raises(AtCapacity) as refused:
            Admission(max_active_calls=1).check(1)
        waits.add(refused.value.retry_after_s)
    assert len(waits) == LONGEST_WAIT_S


def test_memory_is_looked_at_once_a_second_and_admits_again() -> None:
    process = Process()
    admission = process.admission(10)
    for _ in range(50):
        admission.check(0)
    assert process.looks == 1
    process.held = 11 * MB
    admission.check(0)
    process.now += 1
    with pytest.raises(AtCapacity):
        admission.check(0)
    assert not admission.has_memory()
    process.held = 10 * MB
    process.now += 1
    admission.check(0)
    assert process.looks == 3


def test_a_system_that_does_not_tell_admits() -> None:
    process = Process()
    process.held = None
    process.admission(1).check(0)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say what a process holds")
def test_what_this_process_holds() -> None:
    """The kernel counts in steps, and late: only the size is right at every moment."""
    held = resident_bytes()
    assert held is not None
    assert 4 * MB < held < 64_000 * MB
