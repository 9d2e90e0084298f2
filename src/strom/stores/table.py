"""The kinds of store, by URL scheme. A new kind is one dialect and one line here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from strom.core.errors import ConfigError
from strom.stores.dialect import Dialect
from strom.stores.journal import Journal
from strom.stores.keys import KeyStore
from strom.stores.keys_memory import MemoryKeys
from strom.stores.keys_sql import SqlKeys
from strom.stores.memory import MemoryStore
from strom.stores.memory_responses import MemoryResponses
from strom.stores.options import StoreOptions
from strom.stores.postgres import PostgresDialect
from strom.stores.reading import SqlReader, plain
from strom.stores.records import RecordReader, RecordStore
from strom.stores.responses import ResponseLimits, ResponseStore
from strom.stores.sql_records import SqlStore
from strom.stores.sql_responses import SqlResponses
from strom.stores.sqlite import SqliteDialect
from strom.stores.urls import StoreUrl, parse_store_url
from strom.stores.versions import bring_up_to_date

DIALECTS: dict[str, Callable[[StoreUrl, StoreOptions], Dialect]] = {
    "sqlite": lambda url, options: SqliteDialect(Path(url.path), options.busy_s),
    "postgresql": lambda url, options: PostgresDialect(url.target),
}


def open_store(url: str, options: StoreOptions = StoreOptions()) -> RecordStore:  # noqa: B008 (frozen)
    """For writing and reading; makes it when it is not there. Raises ConfigError."""
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        return MemoryStore()
    dialect = prepared(parsed, options)
    folder = options.journal_dir / parsed.digest if options.journal_dir else _journals(dialect, parsed)
    return SqlStore(dialect, Journal(folder), options)


def open_response_store(url: str, limits: ResponseLimits, options: StoreOptions = StoreOptions()) -> ResponseStore:  # noqa: B008
    """In the database of the records. Raises ConfigError."""
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        return MemoryResponses(limits)
    return SqlResponses(prepared(parsed, options), limits, sealing=options.sealing)


def open_key_store(url: str, options: StoreOptions = StoreOptions()) -> KeyStore:  # noqa: B008
    """In the database of the records. Raises ConfigError."""
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        return MemoryKeys()
    return SqlKeys(prepared(parsed, options))


def open_reader(url: str) -> RecordReader:
    """For reading what others write; makes nothing. Raises ConfigError."""
    parsed = parse_store_url(url)
    if parsed.scheme == "memory":
        raise ConfigError("only the process that has a memory:// store can read it: ask the gateway with --url")
    return SqlReader(dialect_of(parsed))


def dialect_of(url: StoreUrl, options: StoreOptions = StoreOptions()) -> Dialect:  # noqa: B008
    """Raises ConfigError when its driver is not installed."""
    return DIALECTS[url.scheme](url, options)


def prepared(url: StoreUrl, options: StoreOptions) -> Dialect:
    """With the schema of this version. Raises ConfigError."""
    dialect = dialect_of(url, options)
    try:
        bring_up_to_date(dialect, auto_upgrade=options.auto_upgrade)
    except dialect.errors as error:
        raise ConfigError(f"the store {dialect.shown} cannot be opened: {plain(error)}") from None
    return dialect


def _journals(dialect: Dialect, url: StoreUrl) -> Path:
    if isinstance(dialect, SqliteDialect):
        return dialect.journals
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "strom" / url.digest
