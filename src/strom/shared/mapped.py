"""Limits of several processes of one machine, in memory that they share: the workers of one `strom serve`.

A table of slots in a mapped file of the run's own folder, found by the hash of a scope's name; each decision holds one lock on
that file for the few microseconds it takes. Chosen over a process that decides for all (a round trip
and a single point that can die) and over a database (a hundred times slower): docs/decisions/0015-keys-and-limits.md.

Invariants: the kernel frees the lock of a process that dies, at whatever instruction. Slots of concurrent calls are counted in
one column for each process, which holds a lock of its own on that column for its life: who finds a column unlocked knows that
its process is dead, and clears it. A slot that is half written by a dying process can be wrong by one call, no more.
A process opens the file once: closing it anywhere would free the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from strom.core.errors import GatewayError
from strom.shared.limiter import (
    Calendar,
    Charge,
    Demand,
    HeldLease,
    Level,
    Refusal,
    Scope,
    Then,
    longest,
)

SLOTS = 16_384
PROBES = 64
REAP_S = 1.0
"""Between two looks for dead processes."""
_HEAD = struct.Struct("16s5q")
"""Digest of the scope's name; requests, tokens, instant, money, period."""
_FREE = bytes(16)
_DECIDING = 0
"""The byte whose lock is held during a decision; column n is held by the lock on byte n + 1."""


class Full(Exception):
    """Every slot that this scope might have is in use."""


class MappedTable:
    """The shared memory: a file that every process opens. `columns`: processes that may live at once, the same for all."""

    def __init__(self, path: Path, columns: int, slots: int = SLOTS) -> None:
        self.columns = columns
        self.slots = slots
        self.counts = struct.Struct(f"{columns}i")
        self.size_bytes = _HEAD.size + self.counts.size
        self.file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
        os.ftruncate(self.file.fileno(), self.size_bytes * slots)  # zeros, or what the others have written
        self.memory = mmap.mmap(self.file.fileno(), self.size_bytes * slots)

    def close(self) -> None:
        self.memory.close()
        self.file.close()


class _Slot(Level):
    """A level read out of the table; `write` puts it back."""

    __slots__ = ("offset", "others")

    offset: int
    others: list[int]
    """Slots taken, by process."""


class MappedLimiter:
    """A Limiter. Clocks must be the same in every process: the monotonic clock is the machine's."""

    def __init__(
        self,
        table: MappedTable,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._clock = clock
        self._calendar = Calendar(wall)
        self._column = -1
        self._digests: dict[str, bytes] = {}
        self._reaped_at = 0.0

    def start(self) -> None:
        """Take a column, in the process that will use it. Raises GatewayError when all belong to living processes."""
        for column in range(self._table.columns):
            if self._try_lock(column + 1):
                self._column = column
                with _Locked(self._table):
                    self._clear(column)
                return
        raise GatewayError("There are more processes than the table of limits was made for.")

    async def look(self, scopes: Sequence[Scope]) -> list[Level | None]:
        now_ms = int(self._clock() * 1000)
        with _Locked(self._table):
            return [self._look(scope, now_ms) for scope in scopes]

    def _look(self, scope: Scope, now_ms: int) -> Level | None:
        try:
            return self._read(scope, now_ms)
        except Full:
            return None

    async def close(self) -> None:
        """The column is given back; the mapping stays with the other processes."""
        if self._column >= 0:
            with _Locked(self._table):
                self._clear(self._column)
            fcntl.lockf(self._table.file, fcntl.LOCK_UN, 1, self._column + 1)
            self._column = -1
            self._table.close()

    def reserve(self, demand: Demand, then: Then) -> None:
        try:
            with _Locked(self._table):
                outcome = self._decide(demand)
            if isinstance(outcome, Refusal) and outcome.kind == "concurrent" and self._reap():
                with _Locked(self._table):
                    outcome = self._decide(demand)
        except Full:
            outcome = Refusal("unavailable", demand.scopes[0], 1000)
        then(outcome)

    def _decide(self, demand: Demand) -> HeldLease[list[tuple[Scope, int]]] | Refusal:
        now_ms = int(self._clock() * 1000)
        held: list[tuple[Scope, _Slot, int]] = []
        lacking = False
        for scope in demand.scopes:
            slot = self._read(scope, now_ms)
            cost = scope.cost(demand) if scope.tokens else 0
            lacking = lacking or slot.lacks(scope, cost)
            held.append((scope, slot, cost))
        if lacking:
            return self._refusal(held)
        readings = []
        for scope, slot, cost in held:
            readings.append(slot.take(scope, cost))
            slot.others[self._column] += 1
            self._write(scope, slot)
        return HeldLease(self.settled, [(scope, cost) for scope, _, cost in held], tuple(readings))

    def _refusal(self, held: list[tuple[Scope, _Slot, int]]) -> Refusal:
        waits = [
            (wait_ms, kind, scope)
            for scope, slot, cost in held
            for wait_ms, kind in slot.waits(scope, cost, self._calendar.left_ms(scope.per))
        ]
        return longest(waits, tuple([(slot.requests, slot.tokens) for _, slot, _ in held]))

    def settled(self, held: list[tuple[Scope, int]], charge: Charge) -> None:
        now_ms = int(self._clock() * 1000)
        with _Locked(self._table), contextlib.suppress(Full):
            for scope, cost in held:
                slot = self._read(scope, now_ms)
                slot.others[self._column] = max(0, slot.others[self._column] - 1)
                slot.give_back(scope, cost, charge)
                self._write(scope, slot)

    def seed(self, scope: Scope, money: int) -> None:
        with _Locked(self._table), contextlib.suppress(Full):
            slot = self._read(scope, int(self._clock() * 1000))
            if not slot.spent:
                slot.spent = money
                self._write(scope, slot)

    def spent(self, scope: Scope) -> int:
        """In the present period."""
        with _Locked(self._table):
            return self._read(scope, int(self._clock() * 1000)).spent

    def taken(self, scope: Scope) -> int:
        """By all processes."""
        with _Locked(self._table):
            return self._read(scope, int(self._clock() * 1000)).taken

    # -- the table, under the lock --

    def _read(self, scope: Scope, now_ms: int) -> _Slot:
        table, digest = self._table, self._digest(scope.id)
        first = int.from_bytes(digest[:4], "little")
        free = -1
        for step in range(PROBES):
            offset = (first + step) % table.slots * table.size_bytes
            found = table.memory[offset : offset + 16]
            if found == digest:
                return self._load(offset, scope, now_ms)
            if free < 0 and (found == _FREE or self._is_idle(offset, now_ms)):
                free = offset
            if found == _FREE:
                break
        if free < 0:
            raise Full
        table.memory[free : free + table.size_bytes] = bytes(table.size_bytes)
        return self._load(free, scope, now_ms)

    def _load(self, offset: int, scope: Scope, now_ms: int) -> _Slot:
        slot = _Slot()
        slot.offset = offset
        _, slot.requests, slot.tokens, slot.at_ms, slot.spent, slot.period = _HEAD.unpack_from(
            self._table.memory, offset
        )
        slot.others = list(self._table.counts.unpack_from(self._table.memory, offset + _HEAD.size))
        slot.taken = sum(slot.others)
        slot.flow(scope, now_ms)
        if scope.budget and slot.period != (period := self._calendar.start(scope.per)):
            slot.period, slot.spent = period, 0
        return slot

    def _write(self, scope: Scope, slot: _Slot) -> None:
        memory, offset = self._table.memory, slot.offset
        _HEAD.pack_into(
            memory, offset, self._digest(scope.id), slot.requests, slot.tokens, slot.at_ms, slot.spent, slot.period
        )
        self._table.counts.pack_into(memory, offset + _HEAD.size, *slot.others)

    def _is_idle(self, offset: int, now_ms: int) -> bool:
        """Nothing is lost with it: no money, no running call, and nothing used for so long that its buckets are full."""
        _, _, _, at_ms, spent, _ = _HEAD.unpack_from(self._table.memory, offset)
        counts = self._table.counts.unpack_from(self._table.memory, offset + _HEAD.size)
        return spent == 0 and not any(counts) and now_ms - at_ms > 600_000

    def _digest(self, name: str) -> bytes:
        digest = self._digests.get(name)
        if digest is None:
            if len(self._digests) > SLOTS:
                self._digests.clear()
            digest = self._digests[name] = hashlib.blake2b(name.encode(), digest_size=16).digest()
        return digest

    # -- processes --

    def _reap(self) -> bool:
        """Free what dead processes held. True when there was one; looks at most once a second."""
        now = self._clock()
        if now - self._reaped_at < REAP_S:
            return False
        self._reaped_at = now
        freed = False
        for column in range(self._table.columns):
            if column != self._column and self._try_lock(column + 1):
                with _Locked(self._table):
                    freed = self._clear(column) or freed
                fcntl.lockf(self._table.file, fcntl.LOCK_UN, 1, column + 1)
        return freed

    def _try_lock(self, byte: int) -> bool:
        try:
            fcntl.lockf(self._table.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    def _clear(self, column: int) -> bool:
        """Whether that process held anything."""
        table, held = self._table, False
        at = _HEAD.size + 4 * column
        for offset in range(at, table.size_bytes * table.slots, table.size_bytes):
            if table.memory[offset : offset + 4] != b"\0\0\0\0":
                table.memory[offset : offset + 4] = b"\0\0\0\0"
                held = True
        return held


class _Locked:
    """The lock of one decision."""

    __slots__ = ("_file",)

    def __init__(self, table: MappedTable) -> None:
        self._file = table.file

    def __enter__(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _DECIDING)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _DECIDING)
