"""Records in one SQLite file that several processes may share.

Writing: `begin` and `put` only note the record under a lock. One thread writes what has come together, at most every
`interval_s`, in one transaction; a settled call that was never written as started is written once. When the file cannot be
written (locked, disk full) the batch stays and is tried again; what comes when `backlog` records wait is counted as lost.

Reading: from the file, and from what is not written yet, on the caller's own thread. WAL lets readers and one writer go on
side by side. Schema: see `schema.py`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

from strom.core.record import CallRecord
from strom.stores import schema
from strom.stores.reading import SqliteReader
from strom.stores.records import Page, RecordFilter, decode_cursor, encode_cursor, page_of, position, started
from strom.stores.rows import to_row

LOG = logging.getLogger("strom.stores")

_REJECTED = (OverflowError, UnicodeError, TypeError, ValueError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""What the binding of one impossible value raises: that record is at fault, not the file."""
_SLOWEST_RETRY_S = 5.0


class _Backlog:
    """Records by trace id that are not written yet."""

    __slots__ = ("begun", "settled")

    def __init__(self) -> None:
        self.begun: dict[str, CallRecord] = {}
        self.settled: dict[str, CallRecord] = {}

    def __len__(self) -> int:
        return len(self.begun) + len(self.settled)


class SqliteStore:
    """A RecordStore. Open it in the process that uses it: it does not survive a fork."""

    def __init__(self, path: Path, *, interval_s: float = 0.2, backlog: int = 100_000, busy_s: float = 2.0) -> None:
        """Raises ConfigError when the file cannot be opened or belongs to a newer version."""
        self._interval_s = interval_s
        self._capacity = backlog
        self._writer = schema.open_writable(path, busy_s)
        self._reader = SqliteReader(path)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._waiting = _Backlog()
        self._writing = _Backlog()
        self._idle = True
        self._hurried = False
        self._closed = False
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="strom-records", daemon=True)
        self._thread.start()

    # -- taking records: on the hot path --

    @property
    def lost(self) -> int:
        return self._lost

    def begin(self, record: CallRecord) -> None:
        with self._lock:
            begun = self._waiting.begun
            if len(begun) < self._capacity and not self._closed:
                begun[record.trace_id] = started(record)
            else:
                self._lost += 1
        if self._idle:
            self._wake.set()

    def put(self, record: CallRecord) -> None:
        with self._lock:
            waiting = self._waiting
            waiting.begun.pop(record.trace_id, None)
            if len(waiting.settled) < self._capacity and not self._closed:
                waiting.settled[record.trace_id] = record
            else:
                self._lost += 1
        if self._idle:
            self._wake.set()

    # -- writing: on the thread --

    def _run(self) -> None:
        failures = 0
        while self._pause(failures):
            failures = 0 if self._write_batch() else failures + 1
        self._write_batch()
        self._writer.close()

    def _pause(self, failures: int) -> bool:
        """Wait until there is something to write and the interval is over; False: the store is being closed."""
        with self._lock:
            self._idle = not self._waiting and not self._closed
        if self._idle:
            self._wake.wait()
        with self._lock:
            self._idle = False
            delay = min(self._interval_s * 2 ** min(failures, 10), max(_SLOWEST_RETRY_S, self._interval_s))
            self._changed.wait_for(lambda: self._closed or (self._hurried and not failures), timeout=delay)
            self._wake.clear()
            return not self._closed

    def _write_batch(self) -> bool:
        with self._lock:
            self._hurried = False
            self._writing, self._waiting = self._waiting, _Backlog()
        written = self._try_to_write(self._writing)
        with self._lock:
            if not written:
                self._take_back()
            self._writing = _Backlog()
            self._changed.notify_all()
        return written

    def _take_back(self) -> None:
        """Keep a batch that could not be written, older records first, as far as there is room."""
        newer, self._waiting = self._waiting, self._writing
        for trace_id, record in newer.begun.items():
            self._waiting.begun[trace_id] = record
        for trace_id, record in newer.settled.items():
            self._waiting.begun.pop(trace_id, None)
            self._waiting.settled[trace_id] = record
        for records in (self._waiting.begun, self._waiting.settled):
            while len(records) > self._capacity:
                records.popitem()
                self._lost += 1

    def _try_to_write(self, batch: _Backlog) -> bool:
        try:
            self._insert(schema.INSERT_NEW, batch.begun.values())
            self._insert(schema.REPLACE, batch.settled.values())
            self._writer.commit()
        except sqlite3.Error as error:
            LOG.warning("records cannot be written yet (%s): %d waiting", error, len(batch))
            self._roll_back()
            return False
        return True

    def _insert(self, statement: str, records: Iterable[CallRecord]) -> None:
        """Many at once; when a value is impossible, one by one without the record that holds it."""
        found = list(records)
        try:
            self._writer.executemany(statement, map(to_row, found))
        except _REJECTED:
            for record in found:
                self._insert_one(statement, record)

    def _insert_one(self, statement: str, record: CallRecord) -> None:
        try:
            self._writer.execute(statement, to_row(record))
        except _REJECTED as error:
            self._lost += 1
            LOG.warning("the record of call %s cannot be kept: %s", record.trace_id, type(error).__name__)

    def _roll_back(self) -> None:
        try:
            self._writer.rollback()
        except sqlite3.Error as error:
            LOG.warning("rollback failed: %s", error)

    # -- reading and ending --

    def flush(self, timeout_s: float = 5.0) -> bool:
        with self._lock:
            self._hurried = True
            self._wake.set()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout=timeout_s)

    def get(self, trace_id: str) -> CallRecord | None:
        for record in self._unwritten():
            if record.trace_id == trace_id:
                return record
        return self._reader.get(trace_id)

    def list(self, wanted: RecordFilter = RecordFilter(), limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        unwritten = {record.trace_id: record for record in reversed(self._unwritten())}
        memory = page_of(unwritten.values(), wanted, limit + 1, cursor)
        before = decode_cursor(cursor) if cursor else None
        file = self._reader.select(wanted, limit + 1 + len(unwritten), before)
        found = memory.records + [record for record in file if record.trace_id not in unwritten]
        found.sort(key=position, reverse=True)
        return Page(found[:limit], encode_cursor(found[limit - 1]) if len(found) > limit else None)

    def _unwritten(self) -> tuple[CallRecord, ...]:
        """Newest knowledge first: of a call that is there twice the first one counts."""
        with self._lock:
            batches = (self._waiting, self._writing)
            settled = [record for batch in batches for record in batch.settled.values()]
            return (*settled, *(record for batch in batches for record in batch.begun.values()))

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is there, then end. Idempotent."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        self._wake.set()
        self._thread.join(timeout_s)
        self._reader.close()
        if self._waiting:
            self._lost += len(self._waiting)
            LOG.error("%d records could not be written", len(self._waiting))
