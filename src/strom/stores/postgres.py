"""PostgreSQL by psycopg 3 (extra `postgres`), for gateways on many machines.

The password comes from the URL, from PGPASSWORD or from .pgpass, as libpq does it. A connection that broke is replaced by the
next use.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strom.core.errors import ConfigError
from strom.stores.dialect import Connection, Cursor
from strom.stores.urls import without_password

if TYPE_CHECKING:
    import psycopg

CONNECT_S = 5
IDLE_S = 1.0
_NO_TRANSACTION = 0
"""libpq's PQTRANS_IDLE."""
READ_MS = 30_000
"""A read may take so long; after that PostgreSQL ends it."""
_NAMESPACE = 0x5374726F
"""The first half of our advisory locks: "Stro"."""


class PostgresDialect:
    """A Dialect."""

    name = "postgresql"
    day = "to_char(to_timestamp(started_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    sum_cost = "sum(cost_amount)"

    def __init__(self, target: str) -> None:
        """`target`: a connection URI. Raises ConfigError when the driver is not installed."""
        try:
            import psycopg
        except ImportError:
            raise ConfigError("for postgresql:// install the extra: pip install 'strom[postgres]'") from None
        self._driver = psycopg
        self._target = target
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self.impossible: tuple[type[Exception], ...] = (
            psycopg.DataError,
            UnicodeError,
            OverflowError,
            TypeError,
            ValueError,
        )

    @property
    def shown(self) -> str:
        return without_password(self._target)

    def connect(self) -> Connection:
        return PostgresConnection(self._connect(autocommit=False), self._driver.OperationalError)

    def connect_reading(self) -> Connection:
        options = f"-c default_transaction_read_only=on -c statement_timeout={READ_MS}"
        return PostgresConnection(self._connect(autocommit=True, options=options), self._driver.OperationalError)

    def _connect(self, *, autocommit: bool, **more: Any) -> psycopg.Connection[Any]:
        named = {"application_name": "strom", "connect_timeout": CONNECT_S, **more}
        return self._driver.connect(self._target, autocommit=autocommit, **named)

    def is_usable(self, connection: Connection) -> bool:
        return isinstance(connection, PostgresConnection) and not connection.broken and connection.answers()

    def tables(self, connection: Connection) -> set[str]:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))")
        return {row[0] for row in found}

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """By an advisory lock, which ends with its connection at the latest."""
        connection = self._connect(autocommit=True)
        try:
            asked = connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", [_NAMESPACE, zlib.crc32(name.encode()) & 0x7FFFFFFF]
            ).fetchone()
            yield bool(asked and asked[0])
        finally:
            connection.close()


class PostgresConnection:
    """A Connection: psycopg's, with `?` in place of `%s`."""

    def __init__(self, inner: psycopg.Connection[Any], lost: type[Exception]) -> None:
        """`lost`: what the driver raises when the server is gone."""
        self.inner = inner
        self._lost = lost
        self._used_at = time.monotonic()

    @property
    def broken(self) -> bool:
        return self.inner.closed or self.inner.broken

    def answers(self) -> bool:
        """Whether the server is still there: asked only of a connection that has been idle, which may have died unnoticed."""
        if time.monotonic() - self._used_at < IDLE_S or self.inner.info.transaction_status != _NO_TRANSACTION:
            return True
        try:
            self.execute("SELECT 1")
            self.inner.rollback()
        except self._lost:
            return False
        return True

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Cursor:
        self._used_at = time.monotonic()
        return self.inner.execute(_marked(sql), values)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        self._used_at = time.monotonic()
        with self.inner.cursor() as cursor:
            cursor.executemany(_marked(sql), rows)
        return None

    def commit(self) -> None:
        self.inner.commit()

    def rollback(self) -> None:
        self.inner.rollback()

    def close(self) -> None:
        self.inner.close()


def _marked(sql: str) -> bytes:
    """No `%` and no `?` stands in our SQL but as a mark."""
    return sql.replace("?", "%s").encode()
