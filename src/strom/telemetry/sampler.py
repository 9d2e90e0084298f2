"""Once a second: how late the event loop is, and what others know at any time (connections, calls under way, health).

A source gives its readings anew each time. A counter's reading is what this process counted; it goes on top of what the slot's
earlier processes left, and of what was counted before its source began anew. A gauge that its source no longer gives is 0.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress

from strom.telemetry import families as f
from strom.telemetry.cells import Cells

PERIOD_S = 1.0
FILES_EVERY = 15
"""Samples from one count of open files to the next."""
Reading = tuple[f.Family, f.Labels, float]
Source = Callable[[], Iterable[Reading]]


class Sampler:
    """Made inside a running loop. `sample` is also called before `/metrics` answers."""

    def __init__(self, cells: Cells, clock: Callable[[], float] = time.monotonic) -> None:
        self._cells = cells
        self._clock = clock
        self._sources: list[Source] = []
        self._bases: dict[int, tuple[float, float]] = {}
        self._gauges: set[int] = set()
        self._lag = cells.place(f.LOOP_LAG)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._clock() + PERIOD_S
        self._timer = loop.call_later(PERIOD_S, lambda: self._tick(due))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        seen: set[int] = set()
        for source in self._sources:
            for family, labels, value in source():
                self._set(family, labels, value, seen)
        for place in self._gauges - seen:
            self._cells.values[place] = 0.0
        self._gauges = seen

    def _set(self, family: f.Family, labels: f.Labels, value: float, seen: set[int]) -> None:
        place, values = self._cells.place(family, labels), self._cells.values
        if family.kind == "gauge":
            values[place] = value
            seen.add(place)
        else:
            base, last = self._bases.get(place, (values[place], 0.0))
            if value < last:
                base += last
            self._bases[place] = (base, value)
            values[place] = base + value

    def _tick(self, due: float) -> None:
        late_s = max(0.0, self._clock() - due)
        values = self._cells.values
        values[self._lag + bisect_left(f.OVERHEAD_BUCKETS_S, late_s)] += 1
        values[self._lag + f.LOOP_LAG.size - 1] += late_s
        self.start()  # first: a source that fails once does not end the sampling
        self.sample()


class ProcessReadings:
    """A source: this process. Memory as the kernel counts it on Linux; elsewhere the most it ever had."""

    def __init__(self) -> None:
        self._samples = 0
        self._files = 0.0

    def __call__(self) -> Iterable[Reading]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield f.WORKER_CPU, ("user",), used.ru_utime
        yield f.WORKER_CPU, ("system",), used.ru_stime
        yield f.WORKER_MEMORY, (), float(_resident_bytes(used.ru_maxrss))
        if self._samples % FILES_EVERY == 0:
            self._files = float(_open_files())
        self._samples += 1
        yield f.WORKER_FILES, (), self._files


def _open_files() -> int:
    """Linux tells the number as the folder's size since 6.2; to list ten thousand files takes some milliseconds."""
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    with suppress(OSError):
        told = os.stat(folder).st_size if sys.platform == "linux" else 0
        return told or len(os.listdir(folder))
    return 0


def _resident_bytes(peak: int) -> int:
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return peak if sys.platform == "darwin" else peak * 1024
