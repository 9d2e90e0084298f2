"""Responses in the database of the records, shared by the processes (and, with PostgreSQL, the replicas) that share it.

One connection behind a lock; every call is one transaction. With a key configured the content (response, input items, event
frames) is sealed before it leaves this module, and each row says by which key; ids, owners, times and sizes stand in the clear.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from strom.core.errors import ConfigError, GatewayError
from strom.stores.dialect import Connection, Cursor, Dialect
from strom.stores.reading import plain
from strom.stores.responses import Events, Place, ResponseLimits, StoredResponse
from strom.stores.sealing import KeySet

_PUT = """
INSERT INTO responses (owner, id, created_at, expires_at, running_until, background, size_bytes, put_at, key_id, response,
    input_items) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, id) DO UPDATE SET created_at = excluded.created_at, expires_at = excluded.expires_at,
    running_until = excluded.running_until, background = excluded.background, size_bytes = excluded.size_bytes,
    key_id = excluded.key_id, response = excluded.response, input_items = excluded.input_items
"""
_FIELDS = "owner, id, response, input_items, created_at, background, running_until, key_id"
_GET = f"SELECT {_FIELDS} FROM responses WHERE owner = ? AND id = ? AND expires_at > ?"  # noqa: S608 (our own names)
_WITH_ITEM = f"""
SELECT {_FIELDS} FROM responses
WHERE owner = ? AND expires_at > ? AND id IN (SELECT response_id FROM response_items WHERE owner = ? AND item_id = ?)
ORDER BY created_at DESC, put_at DESC LIMIT 1
"""  # noqa: S608
_PUT_ITEM = "INSERT INTO response_items (owner, item_id, response_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_RENEW = """
UPDATE responses SET running_until = ?, expires_at = ? WHERE owner = ? AND id = ? AND running_until IS NOT NULL
"""
_ROOM = "SELECT count(*), coalesce(sum(size_bytes + events_bytes), 0) FROM responses"
_OLD = "SELECT owner, id FROM responses WHERE expires_at <= ? ORDER BY owner, id"
_OLDEST = """
SELECT owner, id, size_bytes + events_bytes FROM responses
WHERE (running_until IS NULL OR running_until <= ?) AND NOT (owner = ? AND id = ?) ORDER BY created_at, put_at
"""
_GROW = "UPDATE responses SET events_bytes = events_bytes + ? WHERE owner = ? AND id = ?"
_PUT_EVENTS = """
INSERT INTO response_events (owner, response_id, first, frames, key_id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (owner, response_id, first) DO UPDATE SET frames = excluded.frames, key_id = excluded.key_id
"""
_EVENTS = """
SELECT first, frames, key_id FROM response_events WHERE owner = ? AND response_id = ? AND first >= coalesce(
    (SELECT max(first) FROM response_events WHERE owner = ? AND response_id = ? AND first <= ?), 0) ORDER BY first
"""
Run = Callable[..., Cursor]


class SqlResponses:
    """A ResponseStore. Open it in the process that uses it."""

    def __init__(
        self,
        dialect: Dialect,
        limits: ResponseLimits,
        wall: Callable[[], float] = time.time,
        *,
        sealing: KeySet | None = None,
    ) -> None:
        """The schema must stand (`stores.table.prepared`). Raises ConfigError when the database cannot be opened."""
        self._dialect = dialect
        self._errors: tuple[type[Exception], ...] = (*dialect.errors, UnicodeError, OverflowError)
        self._limits = limits
        self._wall = wall
        self._sealing = sealing
        self._lock = threading.Lock()
        try:
            self._connection: Connection = dialect.connect()
        except dialect.errors as error:
            raise ConfigError(f"the store {dialect.shown} cannot keep responses: {plain(error)}") from None

    def put(self, stored: StoredResponse) -> bool:
        if stored.size_bytes > self._limits.max_bytes:
            return False
        place, now = stored.place, self._wall()
        expires_at = max(stored.created_at, stored.running_until or 0) + self._limits.retention_s
        response, key = self._seal(stored.response, (*place, "response"))
        items, _ = self._seal(stored.input_items, (*place, "input_items"))
        times = (stored.created_at, expires_at, stored.running_until)
        row = (*place, *times, int(stored.background), stored.size_bytes, time.time_ns(), key, response, items)
        with self._transaction() as run:
            run(_PUT, row)
            run("DELETE FROM response_items WHERE owner = ? AND response_id = ?", place)
            for item_id in stored.item_ids:
                run(_PUT_ITEM, (place.owner, item_id, place.id))
            self._make_room(run, place, now)
        return True

    def get(self, place: Place) -> StoredResponse | None:
        with self._transaction() as run:
            row = run(_GET, (*place, self._wall())).fetchone()
        return self._stored(row)

    def with_item(self, owner: str, item_id: str) -> StoredResponse | None:
        with self._transaction() as run:
            row = run(_WITH_ITEM, (owner, self._wall(), owner, item_id)).fetchone()
        return self._stored(row)

    def delete(self, place: Place) -> bool:
        with self._transaction() as run:
            there = run(_GET, (*place, self._wall())).fetchone()
            _remove(run, place)
            return there is not None

    def renew(self, places: Iterable[Place], running_until: float) -> None:
        expires_at = running_until + self._limits.retention_s
        with self._transaction() as run:
            for place in places:
                run(_RENEW, (running_until, expires_at, *place))

    def append_events(self, place: Place, events: Events) -> None:
        frames, key = self._seal(events.frames, (*place, str(events.first)))
        with self._transaction() as run:
            if run(_GROW, (len(events.frames), *place)).rowcount:
                run(_PUT_EVENTS, (*place, events.first, frames, key))
                self._make_room(run, place, self._wall())

    def events(self, place: Place, after: int = -1) -> list[Events]:
        with self._transaction() as run:
            rows = run(_EVENTS, (*place, *place, after + 1)).fetchall()
        return [Events(first, self._open(frames, key, (*place, str(first)))) for first, frames, key in rows]

    def ask_cancel(self, place: Place) -> None:
        with self._transaction() as run:
            run("UPDATE responses SET cancel = 1 WHERE owner = ? AND id = ?", place)

    def unwanted(self, places: Iterable[Place]) -> set[Place]:
        query = "SELECT cancel FROM responses WHERE owner = ? AND id = ?"
        with self._transaction() as run:
            return {place for place in places if (row := run(query, place).fetchone()) is None or row[0]}

    def sweep(self) -> None:
        with self._transaction() as run:
            _remove_old(run, self._wall())

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _make_room(self, run: Run, newest: Place, now: float) -> None:
        _remove_old(run, now)
        count, size_bytes = run(_ROOM).fetchone()
        limits = self._limits
        if count <= limits.max_count and size_bytes <= limits.max_bytes:
            return
        for owner, identity, its_bytes in run(_OLDEST, (now, *newest)).fetchall():
            if count <= limits.max_count and size_bytes <= limits.max_bytes:
                return
            _remove(run, Place(owner, identity))
            count, size_bytes = count - 1, size_bytes - its_bytes

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        """Commits, or takes everything back. Raises GatewayError."""
        with self._lock:
            try:
                if not self._dialect.is_usable(self._connection):
                    self._connection = self._dialect.connect()
                yield self._connection.execute
                self._connection.commit()
            except self._errors as error:
                with suppress(*self._dialect.errors):
                    self._connection.rollback()
                raise GatewayError("the response store cannot be used at the moment", detail=plain(error)) from None

    # -- content --

    def _seal(self, plaintext: bytes, place: tuple[str, ...]) -> tuple[bytes, str | None]:
        if self._sealing is None:
            return plaintext, None
        return self._sealing.seal(plaintext, place), self._sealing.key_id

    def _open(self, kept: Any, key: str | None, place: tuple[str, ...]) -> bytes:
        """Raises GatewayError."""
        if key is None:
            return bytes(kept)
        if self._sealing is None:
            raise GatewayError("stored content cannot be read: no encryption key is configured", detail=key)
        return self._sealing.open(bytes(kept), key, place)

    def _stored(self, row: Any) -> StoredResponse | None:
        if row is None:
            return None
        owner, identity, response, input_items, created_at, background, running_until, key = row
        place = Place(owner, identity)
        return StoredResponse(
            place,
            self._open(response, key, (*place, "response")),
            self._open(input_items, key, (*place, "input_items")),
            created_at=created_at,
            background=bool(background),
            running_until=running_until,
        )


def _remove_old(run: Run, now: float) -> None:
    for owner, identity in run(_OLD, (now,)).fetchall():
        _remove(run, Place(owner, identity))


def _remove(run: Run, place: Place) -> None:
    """With its items and events."""
    run("DELETE FROM response_items WHERE owner = ? AND response_id = ?", place)
    run("DELETE FROM response_events WHERE owner = ? AND response_id = ?", place)
    run("DELETE FROM responses WHERE owner = ? AND id = ?", place)
