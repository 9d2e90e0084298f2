"""Whether one more model call may begin: a bound on those under way, and one on the memory of the process.

Invariants: a call that has begun is never ended for this; what is refused has not been decoded; as soon as there is room
again, calls are admitted again. Memory is looked at once a second at most, so that an overload costs no more than itself.
Clients are told different times to wait, so that they do not all come back at once.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from strom.core.errors import AtCapacity

LOOK_EVERY_S = 1.0
LONGEST_WAIT_S = 4
FULL = "The gateway has as many calls under way as it may have ([server] max_active_calls): try again in a moment."
HEAVY = "The gateway holds as much memory as it may hold ([server] max_memory_mb): try again in a moment."
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    """What this process holds in memory; None where the system does not say (it says so on Linux)."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


class Admission:
    """`max_active_calls` 0, `max_memory_mb` None: no limit."""

    __slots__ = ("_heavy", "_look_at", "_max_calls", "_max_memory", "_resident", "_time")

    def __init__(
        self,
        max_active_calls: int = 0,
        max_memory_mb: int | None = None,
        resident: Callable[[], int | None] = resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_calls = max_active_calls
        self._max_memory = None if max_memory_mb is None else max_memory_mb * 1_048_576
        self._resident = resident
        self._time = clock
        self._look_at = float("-inf")
        self._heavy = False

    def check(self, active_calls: int) -> None:
        """Raises AtCapacity."""
        if self._max_calls and active_calls >= self._max_calls:
            raise _at_capacity(FULL)
        if self._max_memory is not None and not self.has_memory():
            raise _at_capacity(HEAVY)

    def has_memory(self) -> bool:
        if self._max_memory is None:
            return True
        now = self._time()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._heavy = (self._resident() or 0) > self._max_memory
        return not self._heavy


def _at_capacity(message: str) -> AtCapacity:
    return AtCapacity(message, retry_after_s=float(random.randint(1, LONGEST_WAIT_S)))  # noqa: S311 - no secret
