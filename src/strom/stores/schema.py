"""The SQLite file: its tables, its version, and how it is opened.

`schema_version` has one row. Within a version columns may be added (they follow `CallRecord`, see rows.py) and are added when
the file is opened; a file of a newer version is refused. WAL, so that readers never wait for the writer.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from strom.core.errors import ConfigError
from strom.stores.rows import COLUMNS, column_sql

VERSION = 1
_LIST = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))
SELECT = f"SELECT {_LIST} FROM calls"  # noqa: S608 (our own column names)
REPLACE = f"INSERT OR REPLACE INTO calls ({_LIST}) VALUES ({_MARKS})"  # noqa: S608
INSERT_NEW = f"INSERT OR IGNORE INTO calls ({_LIST}) VALUES ({_MARKS})"  # noqa: S608
_OPENING_S = 5.0


def open_writable(path: Path, busy_s: float) -> sqlite3.Connection:
    """The file, made or brought up to date. The connection may be used by one other thread. Raises ConfigError."""
    try:
        connection = sqlite3.connect(path, timeout=_OPENING_S, check_same_thread=False)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        _bring_up_to_date(connection)
        connection.execute(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")
    except sqlite3.Error as error:
        raise ConfigError(f"the store {path} cannot be opened: {error}") from None
    return connection


def open_readable(path: Path) -> sqlite3.Connection:
    """An existing file, never changed by this connection. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"there is no store at {path}")
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0, check_same_thread=False
        )
        _check_version(connection)
    except sqlite3.Error as error:
        raise ConfigError(f"the store {path} cannot be read: {error}") from None
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Processes that open a new file at once get in each other's way here, whatever the busy timeout says."""
    deadline = time.monotonic() + _OPENING_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
    if connection.execute("SELECT version FROM schema_version").fetchone() is None:
        connection.execute("INSERT INTO schema_version VALUES (?)", (VERSION,))
    _check_version(connection)
    columns = ", ".join(map(column_sql, COLUMNS))
    connection.execute(f"CREATE TABLE IF NOT EXISTS calls ({columns})")
    there = {row[1] for row in connection.execute("PRAGMA table_info(calls)")}
    for name in COLUMNS:
        if name not in there:
            connection.execute(f"ALTER TABLE calls ADD COLUMN {column_sql(name)}")
    connection.execute("CREATE INDEX IF NOT EXISTS calls_by_time ON calls (started_at DESC, trace_id DESC)")
    connection.execute("CREATE INDEX IF NOT EXISTS calls_by_end ON calls (ended_at)")
    connection.commit()


def _check_version(connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    version = row[0] if row else VERSION
    if version > VERSION:
        connection.close()
        raise ConfigError(
            f"the store was written by a newer version of Strom (schema {version}, this one knows {VERSION})"
        )
