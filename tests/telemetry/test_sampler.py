"""What is sampled: gauges that follow, counters that only rise, and how late the loop is."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from strom.telemetry import families as f
from strom.telemetry import sampler as module
from strom.telemetry.cells import Cells
from strom.telemetry.sampler import ProcessReadings, Reading, Sampler


class Source:
    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def __call__(self) -> Iterable[Reading]:
        return self.readings


def value(cells: Cells, family: f.Family, labels: f.Labels = ()) -> float:
    return cells.values[cells.place(family, labels)]


def test_a_gauge_follows_and_ends_at_zero() -> None:
    cells, source = Cells(), Source()
    sampler = Sampler(cells)
    sampler.add(source)
    source.readings = [(f.ACTIVE_CALLS, (), 5.0), (f.UPSTREAM_CONNECTIONS, ("idle",), 2.0)]
    sampler.sample()
    assert value(cells, f.ACTIVE_CALLS) == 5
    source.readings = [(f.ACTIVE_CALLS, (), 3.0)]
    sampler.sample()
    assert value(cells, f.ACTIVE_CALLS) == 3
    assert value(cells, f.UPSTREAM_CONNECTIONS, ("idle",)) == 0


def test_a_counter_goes_on_top_of_what_an_earlier_process_left(tmp_path: Path) -> None:
    for expected in (7, 14):
        cells, source = Cells(tmp_path), Source()
        sampler = Sampler(cells)
        sampler.add(source)
        for reading in (3.0, 7.0):
            source.readings = [(f.RECORDS_LOST, (), reading)]
            sampler.sample()
        assert value(cells, f.RECORDS_LOST) == expected
        cells.close()


def test_a_source_that_began_anew_lets_no_count_fall() -> None:
    cells, source = Cells(), Source()
    sampler = Sampler(cells)
    sampler.add(source)
    for reading, expected in ((5.0, 5), (8.0, 8), (2.0, 10), (3.0, 11)):
        source.readings = [(f.RECORDS_LOST, (), reading)]
        sampler.sample()
        assert value(cells, f.RECORDS_LOST) == expected


async def test_the_lag_of_the_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD_S", 0.02)
    cells = Cells()
    sampler = Sampler(cells)
    sampler.start()
    time.sleep(0.12)  # noqa: ASYNC251 - what it looks for
    await asyncio.sleep(0.01)
    sampler.stop()
    start = cells.place(f.LOOP_LAG)
    assert sum(cells.values[start : start + f.LOOP_LAG.size - 1]) >= 1
    assert cells.values[start + f.LOOP_LAG.size - 1] >= 0.09


def test_a_process_knows_itself() -> None:
    found = {(family.name, labels): number for family, labels, number in ProcessReadings()()}
    assert found["strom_worker_resident_memory_bytes", ()] > 1e6
    assert found["strom_worker_open_fds", ()] > 2
    assert found["strom_worker_cpu_seconds", ("user",)] > 0


def test_open_files_are_counted_now_and_then() -> None:
    source = ProcessReadings()

    def files() -> float:
        return next(number for family, _, number in source() if family is f.WORKER_FILES)

    before = files()
    with open(__file__, "rb"):
        assert files() == before
        counts = [files() for _ in range(module.FILES_EVERY)]
    assert counts[-1] == before + 1
