"""Cells are counted in by one process and read by all; what was counted outlives its process."""

import os
import signal
from pathlib import Path

from strom.telemetry.cells import CAPACITY, SCRATCH, Cells
from strom.telemetry.exposition import merge
from strom.telemetry.families import ACTIVE_CALLS, DURATION, ERRORS, LOOP_LAG


def test_a_series_has_cells_of_its_own() -> None:
    cells = Cells()
    first, second = cells.place(ERRORS, ("client", "a")), cells.place(ERRORS, ("client", "b"))
    cells.values[first] += 2
    cells.values[second] += 3
    assert cells.place(ERRORS, ("client", "a")) == first
    [(alive, series)] = cells.read()
    assert alive
    assert series == {(ERRORS.name, ("client", "a")): [2.0], (ERRORS.name, ("client", "b")): [3.0]}


def test_processes_count_into_slots_of_their_own(tmp_path: Path) -> None:
    one, two = Cells(tmp_path), Cells(tmp_path)
    for cells, amount in ((one, 2), (two, 5)):
        cells.values[cells.place(ERRORS, ("client", "a"))] += amount
        cells.values[cells.place(ACTIVE_CALLS)] = amount
    sums = merge(one.read())
    assert sums == merge(two.read())
    assert sums[ERRORS.name, ("client", "a")] == [7.0]
    assert sums[ACTIVE_CALLS.name, ()] == [7.0]


def test_a_dead_process_leaves_its_counts_and_not_its_gauges(tmp_path: Path) -> None:
    one, two = Cells(tmp_path), Cells(tmp_path)
    two.values[two.place(ERRORS, ("client", "a"))] += 5
    two.values[two.place(ACTIVE_CALLS)] = 5
    two.close()
    sums = merge(one.read())
    assert sums[ERRORS.name, ("client", "a")] == [5.0]
    assert (ACTIVE_CALLS.name, ()) not in sums


def test_the_next_process_counts_on_in_the_slot_of_a_dead_one(tmp_path: Path) -> None:
    first = Cells(tmp_path)
    first.values[first.place(DURATION, ("m", "p", "e")) + 3] += 1
    first.values[first.place(ACTIVE_CALLS)] = 5
    first.close()
    second = Cells(tmp_path)
    second.values[second.place(DURATION, ("m", "p", "e")) + 3] += 1
    second.values[second.place(ERRORS, ("client", "a"))] += 1
    sums = merge(second.read())
    assert sums[DURATION.name, ("m", "p", "e")][3] == 2
    assert sums[ERRORS.name, ("client", "a")] == [1.0]
    assert sums[ACTIVE_CALLS.name, ()] == [0.0]
    assert len(list(tmp_path.glob("*.values"))) == 1


def test_counts_survive_a_kill(tmp_path: Path) -> None:
    here = Cells(tmp_path)
    pid = os.fork()
    if pid == 0:
        there = Cells(tmp_path)
        there.values[there.place(ERRORS, ("client", "a"))] += 5
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    slots = here.read()
    assert [alive for alive, _ in slots] == [True, False]
    assert merge(slots)[ERRORS.name, ("client", "a")] == [5.0]


def test_a_line_that_a_death_cut_off_harms_nobody(tmp_path: Path) -> None:
    first = Cells(tmp_path)
    first.values[first.place(ERRORS, ("client", "a"))] += 1
    first.close()
    with (tmp_path / "0.series").open("ab") as file:
        file.write(b'["strom_call_errors",["client","b')
    second = Cells(tmp_path)
    second.values[second.place(ERRORS, ("client", "c"))] += 2
    sums = merge(second.read())
    assert sums == {(ERRORS.name, ("client", "a")): [1.0], (ERRORS.name, ("client", "c")): [2.0]}


def test_when_all_cells_are_taken_further_series_are_not_counted() -> None:
    cells = Cells()
    most = (CAPACITY - SCRATCH) // LOOP_LAG.size
    places = [cells.place(LOOP_LAG, (str(index),)) for index in range(most + 2)]
    assert places[-1] == CAPACITY - SCRATCH
    cells.values[places[-1] + LOOP_LAG.size - 1] += 1
    assert len(cells.read()[0][1]) == most
