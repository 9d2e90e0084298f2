"""Responses in the SQLite file of the records, shared by the processes that share it.

One connection behind a lock; every call is one transaction. Rows of items and events go with their response (a trigger).
`secure_delete` overwrites what is deleted. The tables are this module's own and are made when the file is opened.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strom.core.errors import ConfigError, GatewayError
from strom.stores.responses import Events, Place, ResponseLimits, StoredResponse
from strom.stores.schema import open_writable

_TABLES = """
CREATE TABLE IF NOT EXISTS responses (
    owner TEXT NOT NULL, id TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, running_until REAL,
    background INTEGER NOT NULL, cancel INTEGER NOT NULL DEFAULT 0, size_bytes INTEGER NOT NULL, events_bytes INTEGER NOT NULL
    DEFAULT 0, response BLOB NOT NULL, input_items BLOB NOT NULL, PRIMARY KEY (owner, id));
CREATE INDEX IF NOT EXISTS responses_by_age ON responses (created_at, expires_at, running_until, size_bytes, events_bytes);
CREATE TABLE IF NOT EXISTS response_items (
    owner TEXT NOT NULL, item_id TEXT NOT NULL, response_id TEXT NOT NULL, PRIMARY KEY (owner, item_id, response_id)
    ) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS response_items_by_response ON response_items (owner, response_id);
CREATE TABLE IF NOT EXISTS response_events (
    owner TEXT NOT NULL, response_id TEXT NOT NULL, first INTEGER NOT NULL, frames BLOB NOT NULL,
    PRIMARY KEY (owner, response_id, first));
CREATE TRIGGER IF NOT EXISTS responses_gone AFTER DELETE ON responses BEGIN
    DELETE FROM response_items WHERE owner = OLD.owner AND response_id = OLD.id;
    DELETE FROM response_events WHERE owner = OLD.owner AND response_id = OLD.id;
END;
"""
_PUT = """
INSERT INTO responses (owner, id, created_at, expires_at, running_until, background, size_bytes, response, input_items)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, id) DO UPDATE SET created_at = excluded.created_at, expires_at = excluded.expires_at,
    running_until = excluded.running_until, background = excluded.background, size_bytes = excluded.size_bytes,
    response = excluded.response, input_items = excluded.input_items
"""
_GET = """
SELECT owner, id, response, input_items, created_at, background, running_until FROM responses
WHERE owner = ? AND id = ? AND expires_at > ?
"""
_WITH_ITEM = """
SELECT owner, id, response, input_items, created_at, background, running_until FROM responses
WHERE owner = ? AND expires_at > ? AND id IN (SELECT response_id FROM response_items WHERE owner = ? AND item_id = ?)
ORDER BY created_at DESC, rowid DESC LIMIT 1
"""
_RENEW = """
UPDATE responses SET running_until = ?, expires_at = ? WHERE owner = ? AND id = ? AND running_until IS NOT NULL
"""
_ROOM = "SELECT count(*), coalesce(sum(size_bytes + events_bytes), 0) FROM responses"
_OLDEST = """
SELECT owner, id, size_bytes + events_bytes FROM responses
WHERE (running_until IS NULL OR running_until <= ?) AND NOT (owner = ? AND id = ?) ORDER BY created_at, rowid
"""
_EVENTS = """
SELECT first, frames FROM response_events WHERE owner = ? AND response_id = ? AND first >= coalesce(
    (SELECT max(first) FROM response_events WHERE owner = ? AND response_id = ? AND first <= ?), 0) ORDER BY first
"""


class SqliteResponses:
    """A ResponseStore. Open it in the process that uses it."""

    def __init__(
        self, path: Path, limits: ResponseLimits, wall: Callable[[], float] = time.time, *, busy_s: float = 2.0
    ) -> None:
        """Raises ConfigError when the file cannot be opened or belongs to a newer version."""
        self._limits = limits
        self._wall = wall
        self._lock = threading.Lock()
        self._connection = open_writable(path, busy_s)
        try:
            self._connection.execute("PRAGMA secure_delete = ON").fetchone()
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise ConfigError(f"the store {path} cannot keep responses: {error}") from None

    def put(self, stored: StoredResponse) -> bool:
        if stored.size_bytes > self._limits.max_bytes:
            return False
        place, now = stored.place, self._wall()
        expires_at = max(stored.created_at, stored.running_until or 0) + self._limits.retention_s
        row = (*place, stored.created_at, expires_at, stored.running_until, stored.background, stored.size_bytes)
        with self._transaction() as run:
            run(_PUT, (*row, stored.response, stored.input_items))
            run("DELETE FROM response_items WHERE owner = ? AND response_id = ?", place)
            for item_id in stored.item_ids:
                run("INSERT OR IGNORE INTO response_items VALUES (?, ?, ?)", (place.owner, item_id, place.id))
            self._make_room(run, place, now)
        return True

    def get(self, place: Place) -> StoredResponse | None:
        with self._transaction() as run:
            return _stored(run(_GET, (*place, self._wall())).fetchone())

    def with_item(self, owner: str, item_id: str) -> StoredResponse | None:
        with self._transaction() as run:
            return _stored(run(_WITH_ITEM, (owner, self._wall(), owner, item_id)).fetchone())

    def delete(self, place: Place) -> bool:
        with self._transaction() as run:
            there = run(_GET, (*place, self._wall())).fetchone()
            run("DELETE FROM responses WHERE owner = ? AND id = ?", place)
            return there is not None

    def renew(self, places: Iterable[Place], running_until: float) -> None:
        expires_at = running_until + self._limits.retention_s
        with self._transaction() as run:
            for place in places:
                run(_RENEW, (running_until, expires_at, *place))

    def append_events(self, place: Place, events: Events) -> None:
        grow = "UPDATE responses SET events_bytes = events_bytes + ? WHERE owner = ? AND id = ?"
        with self._transaction() as run:
            if run(grow, (len(events.frames), *place)).rowcount:
                run("INSERT OR REPLACE INTO response_events VALUES (?, ?, ?, ?)", (*place, *events))
                self._make_room(run, place, self._wall())

    def events(self, place: Place, after: int = -1) -> list[Events]:
        with self._transaction() as run:
            return [Events(first, bytes(frames)) for first, frames in run(_EVENTS, (*place, *place, after + 1))]

    def ask_cancel(self, place: Place) -> None:
        with self._transaction() as run:
            run("UPDATE responses SET cancel = 1 WHERE owner = ? AND id = ?", place)

    def unwanted(self, places: Iterable[Place]) -> set[Place]:
        query = "SELECT cancel FROM responses WHERE owner = ? AND id = ?"
        with self._transaction() as run:
            return {place for place in places if (row := run(query, place).fetchone()) is None or row[0]}

    def sweep(self) -> None:
        with self._transaction() as run:
            run("DELETE FROM responses WHERE expires_at <= ?", (self._wall(),))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _make_room(self, run: Run, newest: Place, now: float) -> None:
        run("DELETE FROM responses WHERE expires_at <= ?", (now,))
        count, size_bytes = run(_ROOM).fetchone()
        limits = self._limits
        if count <= limits.max_count and size_bytes <= limits.max_bytes:
            return
        for owner, identity, its_bytes in run(_OLDEST, (now, *newest)).fetchall():
            if count <= limits.max_count and size_bytes <= limits.max_bytes:
                return
            run("DELETE FROM responses WHERE owner = ? AND id = ?", (owner, identity))
            count, size_bytes = count - 1, size_bytes - its_bytes

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        """Commits, or takes everything back. Raises GatewayError."""
        with self._lock:
            try:
                yield self._connection.execute
                self._connection.commit()
            except (sqlite3.Error, UnicodeError, OverflowError) as error:
                with suppress(sqlite3.Error):
                    self._connection.rollback()
                raise GatewayError("the response store cannot be used at the moment", detail=str(error)) from None


Run = Callable[..., sqlite3.Cursor]


def _stored(row: tuple[Any, ...] | None) -> StoredResponse | None:
    if row is None:
        return None
    owner, identity, response, input_items, created_at, background, running_until = row
    return StoredResponse(
        Place(owner, identity),
        bytes(response),
        bytes(input_items),
        created_at=created_at,
        background=bool(background),
        running_until=running_until,
    )
