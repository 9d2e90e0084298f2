"""Records in an SQL database that several processes may share.

Taking: `begin` and `put` note the record in the journal, which survives this process, and in memory, under a lock; nothing on
that path waits for a disk or a database. Writing: one thread writes what has come together, at most every `interval_s`, in
one transaction; a settled call that was never written as started is written once. While the database cannot be written
(locked, full, away) the batch stays and is tried again; what comes when `backlog` records wait is counted as lost. Committed
records leave the journal.

Reading: from the database, and from what is not written yet, on the caller's own thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from strom.core.errors import ConfigError
from strom.core.record import CallRecord
from strom.stores.backlog import Backlog, Begun, without_overflow
from strom.stores.dialect import Connection, Dialect
from strom.stores.journal import Journal
from strom.stores.options import StoreOptions
from strom.stores.purge import Purger
from strom.stores.reading import SqlReader, plain
from strom.stores.records import Page, RecordFilter, decode_cursor, encode_cursor, page_of, position
from strom.stores.recovery import recover
from strom.stores.rows import INSERT_NEW, PUT, decode, encode, to_row, without_nul
from strom.stores.usage import UsagePage, UsageQuery

Rows = Sequence[tuple[Any, ...]]
LOG = logging.getLogger("strom.stores")

_SLOWEST_RETRY_S = 5.0
_FREED_AT_ONCE = 64
"""Journal slots freed under one hold of the lock: the event loop may be waiting for it."""
_FLUSH_S = 2.0
_encode_begun = msgspec.json.Encoder().encode


class SqlStore:
    """A RecordStore. Open it in the process that uses it: it does not survive a fork."""

    def __init__(self, dialect: Dialect, journal: Journal, options: StoreOptions = StoreOptions()) -> None:  # noqa: B008
        """Takes over what dead processes left beside `journal`. Raises ConfigError when the database cannot be used."""
        self._dialect = dialect
        self._journal = journal
        self._interval_s = options.interval_s
        self._capacity = options.backlog
        self._writer = _connect(dialect, journal)
        self.reader = SqlReader(dialect)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._waiting = Backlog()
        self._writing = Backlog()
        self._idle = True
        self._hurried = False
        self._closed = False
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="strom-records", daemon=True)
        self._thread.start()
        days = options.retention_days
        self._purger = None if days is None else Purger(dialect, days * 86_400)

    # -- taking records: on the hot path --

    @property
    def lost(self) -> int:
        return self._lost

    def begin(self, record: CallRecord) -> None:
        trace_id = record.trace_id
        begun = Begun(
            trace_id,
            record.started_at,
            record.protocol_in,
            record.model_requested,
            record.policy_id,
            record.key_name,
            record.streamed,
            record.client,
            record.peer,
        )
        try:
            encoded = _encode_begun(begun)
        except UnicodeEncodeError:
            self._impossible(record)
            return
        with self._lock:
            waiting = self._waiting
            if self._closed or len(waiting.begun) >= self._capacity:
                self._lost += 1
            elif trace_id not in waiting.settled and trace_id not in self._writing.settled:
                waiting.begun[trace_id] = encoded
                self._journal.write(trace_id, encoded)
        if self._idle:
            self._wake.set()

    def put(self, record: CallRecord) -> None:
        trace_id = record.trace_id
        try:
            encoded = encode(record)
        except UnicodeEncodeError:
            self._impossible(record)
            return
        with self._lock:
            waiting = self._waiting
            waiting.begun.pop(trace_id, None)
            if self._closed:
                self._lost += 1
            elif len(waiting.settled) < self._capacity:
                waiting.settled[trace_id] = (record, encoded)
                self._journal.write(trace_id, encoded)
            else:
                self._lose(trace_id)
        if self._idle:
            self._wake.set()

    def _impossible(self, record: CallRecord) -> None:
        """A value that has no encoding: that record is at fault, nothing else."""
        self._lost += 1
        LOG.warning("the record of call %s cannot be kept: it holds text that is none", record.trace_id)

    def _lose(self, trace_id: str) -> None:
        self._lost += 1
        self._journal.free(trace_id)

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
            batch = self._writing = self._waiting
            self._waiting = Backlog()
        written = self._try_to_write(batch)
        if written:
            self._free(batch.settled)
        with self._lock:
            if not written:
                self._waiting, dropped = without_overflow(batch, self._waiting, self._capacity)
                for trace_id in dropped:
                    self._lose(trace_id)
            self._writing = Backlog()
            self._changed.notify_all()
        return written

    def _free(self, settled: Iterable[str]) -> None:
        rest = iter(settled)
        while some := list(islice(rest, _FREED_AT_ONCE)):
            with self._lock:
                for trace_id in some:
                    self._journal.free(trace_id)

    def _try_to_write(self, batch: Backlog) -> bool:
        begun = [to_row(record, encode(record)) for record in map(decode, batch.begun.values())]
        settled = [to_row(record, encoded) for record, encoded in batch.settled.values()]
        try:
            self._reconnect()
            if not self._insert_together(begun, settled):
                self._insert_singly(INSERT_NEW, begun)
                self._insert_singly(PUT, settled)
            self._writer.commit()
        except self._dialect.errors as error:
            LOG.warning("records cannot be written yet (%s): %d waiting", plain(error), len(batch))
            self._roll_back()
            return False
        return True

    def _insert_together(self, begun: Rows, settled: Rows) -> bool:
        """False: one of the values is impossible, and nothing is written."""
        try:
            if begun:
                self._writer.executemany(INSERT_NEW, begun)
            if settled:
                self._writer.executemany(PUT, settled)
        except self._dialect.impossible:
            self._writer.rollback()
            return False
        return True

    def _insert_singly(self, statement: str, rows: Rows) -> None:
        """Each as well as it can be kept."""
        for row in rows:
            if not self._try_to_insert(statement, row) and not self._try_to_insert(statement, without_nul(row)):
                self._lost += 1
                LOG.warning("the record of call %s cannot be kept: a value is impossible", row[0])

    def _try_to_insert(self, statement: str, row: tuple[Any, ...]) -> bool:
        self._writer.execute("SAVEPOINT one")
        try:
            self._writer.execute(statement, row)
        except self._dialect.impossible:
            self._writer.execute("ROLLBACK TO SAVEPOINT one")
            return False
        self._writer.execute("RELEASE SAVEPOINT one")
        return True

    def _reconnect(self) -> None:
        if not self._dialect.is_usable(self._writer):
            self._writer = self._dialect.connect()

    def _roll_back(self) -> None:
        try:
            self._writer.rollback()
        except self._dialect.errors as error:
            LOG.warning("rollback failed: %s", plain(error))

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
        return self.reader.get(trace_id)

    def list(self, wanted: RecordFilter = RecordFilter(), limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        unwritten = {record.trace_id: record for record in reversed(self._unwritten())}
        memory = page_of(unwritten.values(), wanted, limit + 1, cursor)
        before = decode_cursor(cursor) if cursor else None
        file = self.reader.select(wanted, limit + 1 + len(unwritten), before)
        found = memory.records + [record for record in file if record.trace_id not in unwritten]
        found.sort(key=position, reverse=True)
        return Page(found[:limit], encode_cursor(found[limit - 1]) if len(found) > limit else None)

    def usage(self, query: UsageQuery = UsageQuery()) -> UsagePage:  # noqa: B008 (frozen)
        """What is not written yet is written first, as far as that can be done in a moment."""
        self.flush(_FLUSH_S)
        return self.reader.usage(query)

    def _unwritten(self) -> tuple[CallRecord, ...]:
        """Newest knowledge first: of a call that is there twice the first one counts."""
        with self._lock:
            batches = (self._waiting, self._writing)
            settled = [record for batch in batches for record, _ in batch.settled.values()]
            begun = [encoded for batch in batches for encoded in batch.begun.values()]
        return (*settled, *map(decode, begun))

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is there, then end. Idempotent."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        self._wake.set()
        if self._purger is not None:
            self._purger.close()
        self._thread.join(timeout_s)
        self.reader.close()
        with self._lock:
            self._journal.close()
        if self._waiting:
            LOG.error("%d records could not be written: the next start takes them over", len(self._waiting))


def _connect(dialect: Dialect, journal: Journal) -> Connection:
    try:
        writer = dialect.connect()
        recover(dialect, writer, journal.folder)
    except dialect.errors as error:
        journal.close()
        raise ConfigError(f"the store {dialect.shown} cannot be opened: {plain(error)}") from None
    return writer
