"""Records in memory: for tests, and for a gateway that shall leave nothing behind. The oldest go when it is full."""

from __future__ import annotations

import threading

from strom.core.record import CallRecord
from strom.stores.records import Page, RecordFilter, page_of, started
from strom.stores.usage import UsagePage, UsageQuery, sum_up


class MemoryStore:
    """A RecordStore that ends with the process."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._records: dict[str, CallRecord] = {}

    @property
    def lost(self) -> int:
        """Always 0: that the oldest go is what this store promises."""
        return 0

    def begin(self, record: CallRecord) -> None:
        with self._lock:
            if record.trace_id not in self._records:
                self._add(started(record))

    def put(self, record: CallRecord) -> None:
        with self._lock:
            self._add(record)

    def _add(self, record: CallRecord) -> None:
        self._records[record.trace_id] = record
        if len(self._records) > self._capacity:
            del self._records[next(iter(self._records))]

    def flush(self, timeout_s: float = 5.0) -> bool:
        return True

    def get(self, trace_id: str) -> CallRecord | None:
        with self._lock:
            return self._records.get(trace_id)

    def list(self, wanted: RecordFilter = RecordFilter(), limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        with self._lock:
            records = list(self._records.values())
        return page_of(records, wanted, limit, cursor)

    def usage(self, query: UsageQuery = UsageQuery()) -> UsagePage:  # noqa: B008 (frozen)
        with self._lock:
            records = [*self._records.values()]
        return sum_up(records, query)

    def close(self) -> None:
        self._records.clear()
