"""Reads call records out of a database, whoever writes it.

Every list runs along an index: that of a key, an endpoint or what did not end well where such a filter is given, else that of
time. A filter without an index of its own (model, provider, region, policy, protocol) is checked along the way, newest first,
so that a rare value is found faster with `since`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from strom.core.errors import ConfigError, GatewayError
from strom.core.record import CallRecord
from strom.stores.dialect import Connection, Dialect
from strom.stores.filters import conditions_of
from strom.stores.records import Page, RecordFilter, decode_cursor, encode_cursor
from strom.stores.rows import decode
from strom.stores.summing import read_usage
from strom.stores.usage import UsagePage, UsageQuery
from strom.stores.versions import check_readable

SELECT = "SELECT record FROM calls"


class SqlReader:
    """A RecordReader. May be used by several threads."""

    def __init__(self, dialect: Dialect) -> None:
        """Raises ConfigError when there is no such store, or its schema is not ours."""
        self.dialect = dialect
        self._errors: tuple[type[Exception], ...] = (*dialect.errors, UnicodeError)
        self._lock = threading.Lock()
        try:
            self._connection = dialect.connect_reading()
            check_readable(dialect, self._connection)
        except dialect.errors as error:
            raise ConfigError(f"the store {dialect.shown} cannot be read: {plain(error)}") from None

    def get(self, trace_id: str) -> CallRecord | None:
        found = self._records(f"{SELECT} WHERE trace_id = ?", [trace_id])
        return found[0] if found else None

    def list(self, wanted: RecordFilter = RecordFilter(), limit: int = 50, cursor: str | None = None) -> Page:  # noqa: B008
        found = self.select(wanted, limit + 1, decode_cursor(cursor) if cursor else None)
        return Page(list(found[:limit]), encode_cursor(found[limit - 1]) if len(found) > limit else None)

    def select(self, wanted: RecordFilter, count: int, before: tuple[float, str] | None) -> tuple[CallRecord, ...]:
        """At most `count` records, newest first, older than `before`."""
        sql, values = listing(wanted, before)
        return self._records(sql, [*values, count])

    def usage(self, query: UsageQuery = UsageQuery()) -> UsagePage:  # noqa: B008 (frozen)
        return read_usage(self.dialect, self.rows, query)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        """What a query of ours gives. Raises GatewayError."""
        with self._lock:
            try:
                return self._usable().execute(sql, values).fetchall()
            except self._errors as error:
                raise GatewayError("the record store cannot be read at the moment", detail=plain(error)) from None

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _usable(self) -> Connection:
        if not self.dialect.is_usable(self._connection):
            self._connection = self.dialect.connect_reading()
        return self._connection

    def _records(self, sql: str, values: Sequence[Any]) -> tuple[CallRecord, ...]:
        try:
            return tuple([decode(row[0]) for row in self.rows(sql, values)])
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise GatewayError("the record store cannot be read at the moment", detail=plain(error)) from None


def listing(wanted: RecordFilter, before: tuple[float, str] | None = None) -> tuple[str, list[Any]]:
    """The query of a list, but for its limit's value."""
    conditions, values = conditions_of(wanted)
    if before is not None:
        conditions.append("(started_at, trace_id) < (?, ?)")
        values += before
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{SELECT}{where} ORDER BY started_at DESC, trace_id DESC LIMIT ?", values


def plain(error: Exception) -> str:
    """One line of a driver's message. psycopg repeats where it connects to, but never a password."""
    return " ".join(str(error).split())[:300]
