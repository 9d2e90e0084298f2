"""One timer of the loop for all: each goes off once, in time, and not when it was cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from strom.transport.timers import FEW, Timers
from tests.patience import until


async def test_they_go_off_in_the_order_of_their_times() -> None:
    timers, gone = Timers(asyncio.get_running_loop()), list[float]()
    now = time.monotonic()
    for delay in (0.03, 0.01, 0.02, -1.0):
        timers.at(now + delay, lambda delay=delay: gone.append(delay))  # type: ignore[misc]
    await until(lambda: len(gone) == 4)
    assert gone == [-1.0, 0.01, 0.02, 0.03]
    assert len(timers) == 0


async def test_none_goes_off_early() -> None:
    timers, at = Timers(asyncio.get_running_loop()), list[float]()
    due = time.monotonic() + 0.02
    timers.at(due, lambda: at.append(time.monotonic()))
    while not at:  # noqa: ASYNC110 - the time it goes off is what is measured
        await asyncio.sleep(0.001)
    assert at[0] >= due - 0.001, "the loop counts milliseconds"


async def test_a_cancelled_one_stays_silent_also_within_the_same_turn() -> None:
    timers, gone = Timers(asyncio.get_running_loop()), list[str]()
    now = time.monotonic()
    second = timers.at(now + 0.002, lambda: gone.append("second"))

    def first() -> None:
        second.cancel()
        second.cancel()
        gone.append("first")

    timers.at(now + 0.001, first)
    await until(lambda: gone)
    await asyncio.sleep(0.02)
    assert gone == ["first"]


async def test_one_that_is_set_by_another() -> None:
    timers, gone = Timers(asyncio.get_running_loop()), list[str]()
    timers.at(time.monotonic(), lambda: timers.at(time.monotonic() + 0.005, lambda: gone.append("set")))
    await until(lambda: gone)
    assert gone == ["set"]


async def test_one_that_is_set_by_another_holds_up_none_that_is_due_before_it() -> None:
    timers, gone = Timers(asyncio.get_running_loop()), list[str]()
    now = time.monotonic()
    timers.at(now, lambda: timers.at(now + 60, lambda: gone.append("set")))
    timers.at(now + 0.02, lambda: gone.append("before it"))
    await asyncio.sleep(0.05)
    assert gone == ["before it"]


async def test_one_that_fails_harms_no_other() -> None:
    loop, told = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: told.append(context))
    timers, gone = Timers(loop), list[str]()
    timers.at(0.0, lambda: 1 / 0)
    timers.at(0.0, lambda: gone.append("other"))
    await until(lambda: gone)
    assert gone == ["other"]
    assert isinstance(told[0]["exception"], ZeroDivisionError)


async def test_one_that_is_cancelled_within_harms_no_other() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: None)
    timers, gone = Timers(loop), list[str]()

    def cancelled() -> None:
        raise asyncio.CancelledError

    timers.at(0.0, cancelled)
    timers.at(0.0, lambda: gone.append("at once"))
    timers.at(time.monotonic() + 0.01, lambda: gone.append("later"))
    await until(lambda: len(gone) == 2)
    assert gone == ["at once", "later"]


class CountingLoop:
    """A loop, and how often a timer of it was set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.armed = 0

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        self.armed += 1
        return self._loop.call_later(delay_s, callback)


def test_the_loop_is_not_kept_busy_until_one_goes_off() -> None:
    """On uvloop, which counts whole milliseconds."""

    async def play() -> None:
        loop, gone = CountingLoop(asyncio.get_running_loop()), list[int]()
        timers = Timers(cast(asyncio.AbstractEventLoop, loop))
        now = time.monotonic()
        for number in range(20):
            timers.at(now + 0.00237 * number, lambda number=number: gone.append(number))  # type: ignore[misc]
        await until(lambda: len(gone) == 20)
        assert loop.armed <= 60

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())


async def test_cancelled_ones_do_not_pile_up() -> None:
    timers = Timers(asyncio.get_running_loop())
    kept = timers.at(time.monotonic() + 100, lambda: None)
    for _ in range(10_000):
        timers.at(time.monotonic() + 50, lambda: None).cancel()
        assert len(timers._heap) <= FEW + 3
    assert len(timers) == 1
    kept.cancel()


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["keep", "cancel", "early"])), max_size=60))
def test_whatever_is_set_and_cancelled(plan: list[tuple[int, str]]) -> None:
    async def play() -> None:
        timers, gone, expected = Timers(asyncio.get_running_loop()), list[int](), list[int]()
        now = time.monotonic()
        for number, (delay, what) in enumerate(plan):
            handle = timers.at(now + delay / 1000, lambda number=number: gone.append(number))  # type: ignore[misc]
            if what == "cancel":
                handle.cancel()
            else:
                expected.append(number)
        await asyncio.sleep(0.01)
        await until(lambda: not len(timers))
        assert sorted(gone) == expected
        assert len(timers) == 0

    asyncio.run(play())
