"""The calls of processes that died: taken out of their journals and put into the store.

A call that had settled is kept as it was. One that had not is marked: it failed, by this gateway's fault, and what it used is
unknown. Other processes' journals are recognised by their locks (journal.py) and left alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from strom.core.record import CallRecord, RecordError
from strom.stores.dialect import Connection, Dialect
from strom.stores.journal import SUFFIX, left_behind
from strom.stores.rows import SETTLE, decode, encode, to_row, without_nul

LOG = logging.getLogger("strom.stores")
LOST = RecordError(
    "lost",
    "The process that ran this call died before the call ended. What became of it, and what it used, is unknown.",
)


def recover(dialect: Dialect, connection: Connection, folder: Path) -> int:
    """How many calls were taken over. Raises what the dialect's errors name; then the journals stay for the next try."""
    taken = 0
    # Of a process's two files the one with settled calls comes first: what it says of a call, the other cannot undo.
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with left_behind(path) as found:
            if found is None:
                continue
            records = settled(found, time.time())
            for record in records:
                connection.execute(SETTLE, without_nul(to_row(record, encode(record))))
            connection.commit()
            taken += len(records)
    if taken:
        LOG.warning("%d calls of a process that died were taken over from its journal", taken)
    return taken


def settled(encoded: Iterable[bytes], now: float) -> list[CallRecord]:
    """The newest state of each call; one that never settled is lost, which was found out `now`."""
    calls: dict[str, CallRecord] = {}
    for one in encoded:
        try:
            record = decode(one)
        except msgspec.MsgspecError:
            LOG.warning("a journal holds %d bytes that are no record", len(one))
            continue
        if record.status != "started" or record.trace_id not in calls:
            calls[record.trace_id] = record
    return [_lost(record, now) if record.status == "started" else record for record in calls.values()]


def _lost(record: CallRecord, now: float) -> CallRecord:
    record.status, record.fault, record.error = "failed", "gateway", LOST
    record.ended_at = now
    return record
