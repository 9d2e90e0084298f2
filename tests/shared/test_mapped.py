"""Limits in mapped memory, from several real processes: never more than the bucket, and the dead hold nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strom.core.errors import GatewayError
from strom.shared.limiter import Demand, Refusal, Scope
from strom.shared.mapped import MappedLimiter, MappedTable
from tests.patience import PATIENCE_S
from tests.shared.limiters import ask, granted, one, refused


def in_child(work: Callable[[], int]) -> int:
    """The process id of a child that ends with what `work` returns."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return pid


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_four_processes_never_give_more_than_the_bucket(tmp_path: Path) -> None:
    path, begin_at = tmp_path / "limits", time.monotonic() + 0.5
    demand = Demand((Scope("key:k", requests=60, tokens=100_000, concurrent=1000),), 1, 1)
    outcomes: list[object] = []

    def ask_often() -> int:
        limiter = MappedLimiter(MappedTable(path, 8, 512))
        limiter.start()
        time.sleep(max(0, begin_at - time.monotonic()))
        for _ in range(500):
            limiter.reserve(demand, outcomes.append)
        return sum(not isinstance(outcome, Refusal) for outcome in outcomes)

    started = time.monotonic()
    admitted = [code_of(pid) for pid in [in_child(ask_often) for _ in range(4)]]
    refilled = int(time.monotonic() - started)  # one a second
    assert 60 <= sum(admitted) <= 60 + refilled


async def test_a_killed_process_gives_back_its_slots(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    limiter = MappedLimiter(MappedTable(path, 4, 64))
    limiter.start()
    ready = os.pipe()

    def hold() -> int:
        other = MappedLimiter(MappedTable(path, 4, 64))
        other.start()
        for _ in range(2):
            other.reserve(one(concurrent=2), lambda _: None)
        os.write(ready[1], b"x")
        time.sleep(2 * PATIENCE_S)
        return 0

    pid = in_child(hold)
    os.read(ready[0], 1)
    assert (await refused(limiter, one(concurrent=2))).kind == "concurrent"
    os.kill(pid, signal.SIGKILL)
    code_of(pid)
    end = time.monotonic() + PATIENCE_S
    while isinstance(await ask(limiter, one(concurrent=2)), Refusal):  # it looks once a second
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
    await granted(limiter, one(concurrent=2))
    assert (await refused(limiter, one(concurrent=2))).kind == "concurrent"


async def test_a_new_process_in_a_dead_ones_column_starts_at_nothing(tmp_path: Path) -> None:
    path = tmp_path / "limits"

    def take_and_die() -> int:
        limiter = MappedLimiter(MappedTable(path, 1, 64))
        limiter.start()
        limiter.reserve(one(concurrent=1), lambda _: None)
        return 0

    assert code_of(in_child(take_and_die)) == 0
    limiter = MappedLimiter(MappedTable(path, 1, 64))
    limiter.start()
    await granted(limiter, one(concurrent=1))


def test_more_processes_than_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    limiter = MappedLimiter(MappedTable(path, 1, 64))
    limiter.start()

    def start_too() -> int:
        try:
            MappedLimiter(MappedTable(path, 1, 64)).start()
        except GatewayError:
            return 7
        return 0

    assert code_of(in_child(start_too)) == 7


async def test_a_full_table_refuses_and_idle_places_are_used_again(tmp_path: Path) -> None:
    now = [1000.0]
    limiter = MappedLimiter(MappedTable(tmp_path / "limits", 1, 4), lambda: now[0])
    limiter.start()
    for number in range(4):
        await granted(limiter, Demand((Scope(f"key:{number}", requests=5),)))
    assert (await refused(limiter, Demand((Scope("key:more", requests=5),)))).kind == "unavailable"
    (nothing,) = await limiter.look([Scope("key:more", requests=5)])
    assert nothing is None
    now[0] += 700
    with pytest.raises(AssertionError):  # their calls still run, so their places are taken
        await granted(limiter, Demand((Scope("key:more", requests=5),)))


async def test_a_place_whose_calls_are_over_is_used_again(tmp_path: Path) -> None:
    now = [1000.0]
    limiter = MappedLimiter(MappedTable(tmp_path / "limits", 1, 4), lambda: now[0])
    limiter.start()
    for number in range(4):
        (await granted(limiter, Demand((Scope(f"key:{number}", requests=5),)))).settle()  # type: ignore[call-arg]
    now[0] += 700
    for number in range(4):
        await granted(limiter, Demand((Scope(f"new:{number}", requests=5),)))
