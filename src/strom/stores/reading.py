"""Reads call records out of a SQLite file, whoever writes it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from strom.core.errors import GatewayError
from strom.core.record import CallRecord
from strom.stores.records import Page, RecordFilter, decode_cursor, encode_cursor
from strom.stores.rows import from_row
from strom.stores.schema import SELECT, open_readable

_EQUAL = ("status", "provider", "key_name", "protocol_in")


class SqliteReader:
    """A RecordReader. May be used by several threads."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when there is no such store."""
        self._connection = open_readable(path)
        self._lock = threading.Lock()

    def get(self, trace_id: str) -> CallRecord | None:
        found = self._query(f"{SELECT} WHERE trace_id = ?", [trace_id])
        return found[0] if found else None

    def list(self, wanted: RecordFilter = RecordFilter(), limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        found = self.select(wanted, limit + 1, decode_cursor(cursor) if cursor else None)
        return Page(list(found[:limit]), encode_cursor(found[limit - 1]) if len(found) > limit else None)

    def select(self, wanted: RecordFilter, count: int, before: tuple[float, str] | None) -> tuple[CallRecord, ...]:
        """At most `count` records, newest first, older than `before`."""
        conditions, values = _conditions(wanted)
        if before is not None:
            conditions.append("(started_at, trace_id) < (?, ?)")
            values += before
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._query(f"{SELECT}{where} ORDER BY started_at DESC, trace_id DESC LIMIT ?", [*values, count])

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _query(self, sql: str, values: Sequence[Any]) -> tuple[CallRecord, ...]:
        try:
            with self._lock:
                rows = self._connection.execute(sql, values).fetchall()
            return tuple([from_row(row) for row in rows])
        except (sqlite3.Error, msgspec.MsgspecError, UnicodeError) as error:
            raise GatewayError("the record store cannot be read at the moment", detail=str(error)) from None


def _conditions(wanted: RecordFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for name in _EQUAL:
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if wanted.model is not None:
        conditions.append("(model_requested = ? OR model_used = ?)")
        values += [wanted.model, wanted.model]
    for condition, instant in (
        ("started_at >= ?", wanted.since),
        ("started_at < ?", wanted.until),
        ("ended_at >= ?", wanted.ended_since),
    ):
        if instant is not None:
            conditions.append(condition)
            values.append(instant)
    return conditions, values
