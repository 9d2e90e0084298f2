"""Timers of calls and connections: very many, nearly all cancelled or moved before they go off. One timer of the event
loop serves them all.

A timer of the loop is an object of half a kibibyte and takes a few µs; here one is an entry of a heap. A cancelled one stays in
the heap until it would go off, or until more than half of the heap is such.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

FEW = 64
_ROUNDED_UP_S = 0.0005
"""Makes uvloop, which rounds to milliseconds, round up: a rest that it took for nothing would be waited for in a busy loop."""


class Handle(Protocol):
    """A timer that was set."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The monotonic clock in seconds and its timers: an event loop's, or a test's own."""

    @property
    def time(self) -> Callable[[], float]: ...

    @property
    def call_at(self) -> Callable[[float, Callable[[], object]], Handle]: ...


class _Entry:
    __slots__ = ("callback", "due", "timers")

    def __init__(self, timers: Timers, due: float, callback: Callable[[], object]) -> None:
        self.timers = timers
        self.due = due
        self.callback: Callable[[], object] | None = callback
        """None: cancelled, or gone off."""

    def __lt__(self, other: _Entry) -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.timers.note_cancelled()


class Timers:
    """On `time.monotonic`, of whose instants `at` takes one. A callback that raises harms no other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[_Entry] = []
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0.0

    def __len__(self) -> int:
        """Timers that will go off."""
        return len(self._heap) - self._cancelled

    def at(self, due: float, callback: Callable[[], object]) -> Handle:
        entry = _Entry(self, due, callback)
        heappush(self._heap, entry)
        if self._armed is None or due < self._armed_for:
            self._arm(due)
        return entry

    def note_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry.callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def _arm(self, due: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for = due
        self._armed = self._loop.call_later(max(0.0, due - time.monotonic()) + _ROUNDED_UP_S, self._run)

    def _run(self) -> None:
        self._armed_for = float("-inf")  # what the callbacks set is armed below, with what stood before it
        now = time.monotonic()
        try:
            while self._heap and (self._heap[0].due <= now or self._heap[0].callback is None):
                self._go_off(heappop(self._heap))
        finally:  # a cancellation or an exit, which the loop is told of, holds up none of the others
            self._armed = None
            if self._heap:
                self._arm(self._heap[0].due)

    def _go_off(self, entry: _Entry) -> None:
        callback, entry.callback = entry.callback, None
        if callback is None:
            self._cancelled -= 1
            return
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - as the loop does it: told, and the others go on
            self._loop.call_exception_handler({"message": "a timer's callback failed", "exception": error})


class LoopClock:
    """Full resolution (uvloop's own clock counts whole milliseconds), with timers on the loop."""

    __slots__ = ("call_at", "time")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.time = time.monotonic  # the functions themselves: they are called for every read and every call
        self.call_at = Timers(loop).at
