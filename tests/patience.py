"""How long tests wait, and how they measure work, on machines that are slow or busy with something else.

A wait ends with what it waits for, so patience costs a passing test nothing. Seconds of a wall clock measure the neighbours:
work is measured in processor time of its own thread, and is too slow only if it is so each time it is tried.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""How long what comes about anyway may take."""
TRIES = 5
SLACK = 4
"""So much more than in proportion may a larger input take: caches, collections, a processor shared with others."""


def wait_until(holds: Callable[[], object], told: Callable[[], object] = str) -> None:
    """`told` is asked for what to show when it never came about."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"it did not come about {told()}"
        time.sleep(0.01)


async def until(holds: Callable[[], object], told: Callable[[], object] = str) -> None:
    """The same in a loop that goes on meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"it did not come about {told()}"
        await asyncio.sleep(0.002)


def cpu_s(work: Callable[[], object]) -> float:
    """Without collections of garbage: what they take depends on all that this process has ever made."""
    collects = gc.isenabled()
    gc.disable()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        if collects:
            gc.enable()


def assert_cpu_below(limit_s: float, work: Callable[[], object]) -> None:
    taken: list[float] = []
    while not taken or min(taken) >= limit_s:
        assert len(taken) < TRIES, f"{taken} s of {limit_s} s each time"
        taken.append(cpu_s(work))


def assert_linear(make: Callable[[int], Callable[[], object]], size: int, times: int = 8) -> None:
    """What `make` makes for `times` the size takes about `times` as long; quadratic would be `times` squared.

    Making it is not counted. It may be done again and again.
    """
    work = make(size)
    work()  # what is made at the first time is no work
    short = min(cpu_s(work) for _ in range(TRIES))
    assert_cpu_below(SLACK * times * short, make(times * size))
