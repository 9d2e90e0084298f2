"""Opens the stores that the tests run over, each kind in the same words, and makes files of the first schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from strom.stores.journal import Journal
from strom.stores.options import StoreOptions
from strom.stores.reading import SqlReader
from strom.stores.responses import ResponseLimits
from strom.stores.sql_records import SqlStore
from strom.stores.sql_responses import SqlResponses
from strom.stores.sqlite import SqliteDialect
from strom.stores.table import dialect_of, prepared
from strom.stores.urls import parse_store_url

NEVER_S = 3600.0


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def sql_store(url: str, folder: Path | None = None, **options: float) -> SqlStore:
    """`folder`: of the journals; for SQLite beside its file. `options`: of StoreOptions."""
    made = StoreOptions(**options)  # type: ignore[arg-type]
    dialect = prepared(parse_store_url(url), made)
    if folder is None:
        assert isinstance(dialect, SqliteDialect)
        folder = dialect.journals
    return SqlStore(dialect, Journal(folder), made)


def sql_reader(url: str) -> SqlReader:
    return SqlReader(dialect_of(parse_store_url(url)))


def sql_responses(url: str, limits: ResponseLimits, wall: Callable[[], float]) -> SqlResponses:
    return SqlResponses(prepared(parse_store_url(url), StoreOptions()), limits, wall)


def first_release(path: Path) -> None:
    """A file as the first releases made it: a full record, a bare one, one of a running call, a response with its parts."""
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name("first_release.sql").read_text("utf-8"))
    connection.close()
