"""The numbers behind the metrics: an array of doubles in each process, readable by the others.

    <directory>/3.lock     held (flock) by the process that counts in slot 3, so that the kernel says who lives
    <directory>/3.values   doubles, mapped into that process: counting is `values[place] += 1`, and outlives the process
    <directory>/3.series   one JSON line a series: [family, labels, place, size]

A process takes the first slot that nobody holds and counts on where a dead one stopped: no count ever falls, and there are no
more files than there were processes at once. A series is written before its cells are used; cells never move. Without a
directory the same array lies in memory that is nobody else's.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from strom.telemetry.families import FAMILIES, Family, Labels

CAPACITY = 131_072
"""Cells of a process: one MiB of address space; pages that are not used take no memory."""
SCRATCH = 64
"""Cells at the end that stand for series there is no more room for. No histogram is larger."""
MAX_SLOTS = 1024
GAUGES = frozenset(family.name for family in FAMILIES if family.kind == "gauge")

Key = tuple[str, Labels]
_SERIES: msgspec.json.Decoder[tuple[str, Labels, int, int]] = msgspec.json.Decoder(tuple[str, Labels, int, int])


class Cells:
    """`values` is for counting. One thread counts; any thread or process may read."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._places: dict[Key, tuple[int, int]] = {}
        self._used = 0
        self._lock: IO[bytes] | None = None
        self._series: IO[bytes] | None = None
        if directory is None:
            memory = mmap.mmap(-1, CAPACITY * 8)
        else:
            directory.mkdir(mode=0o700, exist_ok=True)
            slot = self._take_slot(directory)
            memory = self._open(directory, slot)
        self.values: memoryview[float] = memoryview(memory).cast("d")
        for (name, _), (start, _) in self._places.items():
            if name in GAUGES:  # what a dead process last saw
                self.values[start] = 0.0

    def place(self, family: Family, labels: Labels = ()) -> int:
        """Where the cells of a series begin; made with its first use."""
        key = (family.name, labels)
        found = self._places.get(key)
        if found is not None:
            return found[0]
        start = self._used
        if start + family.size > CAPACITY - SCRATCH:
            return CAPACITY - SCRATCH
        if self._series is not None:
            self._series.write(msgspec.json.encode((family.name, labels, start, family.size)) + b"\n")
        self._used += family.size
        self._places[key] = (start, family.size)
        return start

    def close(self) -> None:
        """The slot is free for another process; what was counted stays."""
        for file in (self._series, self._lock):
            if file is not None:
                file.close()
        self._series = self._lock = None

    def read(self) -> list[tuple[bool, dict[Key, list[float]]]]:
        """The series of every slot, and whether its process lives. Safe in another thread than the counting one."""
        if self._directory is None:
            places = list(self._places.items())
            return [(True, {key: list(self.values[start : start + size]) for key, (start, size) in places})]
        return list(_read_slots(self._directory))

    def _take_slot(self, directory: Path) -> int:
        for slot in range(MAX_SLOTS):
            lock = (directory / f"{slot}.lock").open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self._lock = lock
            return slot
        raise OSError("no free slot for metrics")

    def _open(self, directory: Path, slot: int) -> mmap.mmap:
        series = directory / f"{slot}.series"
        for key, start, size in _whole_lines(series):
            self._places[key] = (start, size)
            self._used = max(self._used, start + size)
        self._series = series.open("ab", buffering=0)
        if self._series.tell():
            self._series.write(b"\n")  # ends a line that a death cut off
        with (directory / f"{slot}.values").open("a+b") as values:
            values.truncate(CAPACITY * 8)
            return mmap.mmap(values.fileno(), CAPACITY * 8)


def _read_slots(directory: Path) -> Iterator[tuple[bool, dict[Key, list[float]]]]:
    for series in sorted(directory.glob("*.series")):
        alive = _is_held(series.with_suffix(".lock"))
        places = _whole_lines(series)
        needed = max([start + size for _, start, size in places], default=0)
        with suppress(FileNotFoundError), series.with_suffix(".values").open("rb") as file:
            cells: memoryview[float] = memoryview(file.read(needed * 8)).cast("d")
            yield alive, {key: list(cells[start : start + size]) for key, start, size in places}


def _is_held(path: Path) -> bool:
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _whole_lines(path: Path) -> list[tuple[Key, int, int]]:
    found: list[tuple[Key, int, int]] = []
    if not os.path.exists(path):
        return found
    for line in path.read_bytes().split(b"\n"):
        with suppress(msgspec.DecodeError):  # an empty line, or one that a death cut off
            family, labels, start, size = _SERIES.decode(line)
            found.append(((family, labels), start, size))
    return found
