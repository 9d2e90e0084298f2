"""Managed keys in the database of the records: SQLite or PostgreSQL."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from strom.core.errors import GatewayError, StromError
from strom.stores.dialect import Connection, Dialect
from strom.stores.keys import (
    KeyPage,
    KeyScopes,
    KeySecret,
    ManagedKey,
    Snapshot,
    decode_key_cursor,
    encode_key_cursor,
    name_taken,
)

T = TypeVar("T")
_COLUMNS = "id, name, prefix, created_at, expires_at, disabled, revoked_at, last_used_at, scopes"
_SELECT = f"SELECT {_COLUMNS} FROM keys"  # noqa: S608 (our own column names)
_NEWEST_FIRST = "ORDER BY created_at DESC, id DESC"
_SCOPES = msgspec.json.Decoder(KeyScopes)


class SqlKeys:
    """A KeyStore, for several threads. One connection, made anew after an error."""

    def __init__(self, dialect: Dialect) -> None:
        """`dialect`: of a database with this version's schema."""
        self._dialect = dialect
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def version(self) -> int:
        return self._run(_version)

    def snapshot(self) -> Snapshot:
        def read(connection: Connection) -> Snapshot:
            version = _version(connection)
            keys = tuple([_key(row) for row in connection.execute(f"{_SELECT} {_NEWEST_FIRST}").fetchall()])
            rows = connection.execute("SELECT sha256, key_id, created_at, expires_at FROM key_hashes").fetchall()
            return Snapshot(version, keys, tuple([KeySecret(*row) for row in rows]))

        return self._run(read)

    def list(self, limit: int, cursor: str | None = None) -> KeyPage:
        before = decode_key_cursor(cursor) if cursor else None
        where, values = (" WHERE (created_at, id) < (?, ?)", before) if before else ("", ())
        sql = f"{_SELECT}{where} {_NEWEST_FIRST} LIMIT ?"
        rows = self._run(lambda connection: connection.execute(sql, (*values, limit + 1)).fetchall())
        found = [_key(row) for row in rows]
        return KeyPage(tuple(found[:limit]), encode_key_cursor(found[limit - 1]) if len(found) > limit else None)

    def find(self, wanted: str) -> builtins.list[ManagedKey]:
        sql = f"{_SELECT} WHERE id = ? OR prefix = ? OR name = ? {_NEWEST_FIRST}"
        rows = self._run(lambda connection: connection.execute(sql, (wanted, wanted, wanted)).fetchall())
        return [_key(row) for row in rows]

    def create(self, key: ManagedKey, secret: KeySecret) -> None:
        def write(connection: Connection) -> None:
            _bump(connection)  # first: it is the lock that writers wait for
            taken = "SELECT 1 FROM keys WHERE name = ? AND revoked_at IS NULL"
            if connection.execute(taken, (key.name,)).fetchone() is not None:
                raise name_taken(key.name)
            connection.execute(
                f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (
                    key.id,
                    key.name,
                    key.prefix,
                    key.created_at,
                    key.expires_at,
                    int(key.disabled),
                    key.revoked_at,
                    key.last_used_at,
                    msgspec.json.encode(key.scopes).decode(),
                ),
            )
            _add_secret(connection, secret)

        self._run(write)

    def rotate(self, secret: KeySecret, overlap_until: float) -> None:
        def write(connection: Connection) -> None:
            _bump(connection)
            connection.execute(
                "UPDATE key_hashes SET expires_at = ? WHERE key_id = ? AND (expires_at IS NULL OR expires_at > ?)",
                (overlap_until, secret.key_id, overlap_until),
            )
            _add_secret(connection, secret)

        self._run(write)

    def revoke(self, key_id: str, at: float) -> None:
        self._change("UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, key_id))

    def set_disabled(self, key_id: str, *, disabled: bool) -> None:
        self._change("UPDATE keys SET disabled = ? WHERE id = ?", (int(disabled), key_id))

    def touch(self, used: Mapping[str, float]) -> None:
        rows = [(at, key_id, at) for key_id, at in sorted(used.items())]
        sql = "UPDATE keys SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)"
        self._run(lambda connection: connection.executemany(sql, rows))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _change(self, sql: str, values: tuple[Any, ...]) -> None:
        def write(connection: Connection) -> None:
            _bump(connection)
            connection.execute(sql, values)

        self._run(write)

    def _run(self, work: Callable[[Connection], T]) -> T:
        """One transaction. An idle connection that has broken meanwhile is replaced once."""
        with self._lock:
            kept = self._connection is not None
            try:
                return self._transact(work)
            except self._dialect.errors as error:
                usable = self._connection is not None and self._dialect.is_usable(self._connection)
                self._drop()
                if not kept or usable:
                    raise self._failure(error) from None
            try:
                return self._transact(work)
            except self._dialect.errors as error:
                self._drop()
                raise self._failure(error) from None

    def _failure(self, error: Exception) -> StromError:
        return GatewayError("the store of keys cannot be used at the moment", detail=str(error))

    def _transact(self, work: Callable[[Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._dialect.connect()
        try:
            result = work(connection)
        except BaseException:
            with suppress(*self._dialect.errors):
                connection.rollback()
            raise
        connection.commit()
        return result

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._dialect.errors):
                connection.close()


def _version(connection: Connection) -> int:
    return int(connection.execute("SELECT version FROM keys_version").fetchone()[0])


def _bump(connection: Connection) -> None:
    connection.execute("UPDATE keys_version SET version = version + 1")


def _add_secret(connection: Connection, secret: KeySecret) -> None:
    connection.execute(
        "INSERT INTO key_hashes (sha256, key_id, created_at, expires_at) VALUES (?, ?, ?, ?)",
        (secret.sha256, secret.key_id, secret.created_at, secret.expires_at),
    )


def _key(row: Any) -> ManagedKey:
    identity, name, prefix, created_at, expires_at, disabled, revoked_at, last_used_at, scopes = row
    return ManagedKey(
        identity,
        name,
        prefix,
        created_at,
        _SCOPES.decode(scopes),
        expires_at,
        bool(disabled),
        revoked_at,
        last_used_at,
    )
