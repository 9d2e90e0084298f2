"""The kinds of store, by URL scheme. A new kind is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strom.core.errors import ConfigError
from strom.stores.memory import MemoryStore
from strom.stores.memory_responses import MemoryResponses
from strom.stores.reading import SqliteReader
from strom.stores.records import RecordReader, RecordStore
from strom.stores.responses import ResponseLimits, ResponseStore
from strom.stores.sqlite import SqliteStore
from strom.stores.sqlite_responses import SqliteResponses
from strom.stores.urls import StoreUrl, parse_store_url


def _sqlite(url: StoreUrl) -> RecordStore:
    return SqliteStore(Path(url.path))


def _memory(url: StoreUrl) -> RecordStore:
    return MemoryStore()


STORES: dict[str, Callable[[StoreUrl], RecordStore]] = {
    "sqlite": _sqlite,
    "memory": _memory,
}

RESPONSE_STORES: dict[str, Callable[[StoreUrl, ResponseLimits], ResponseStore]] = {
    "sqlite": lambda url, limits: SqliteResponses(Path(url.path), limits),
    "memory": lambda url, limits: MemoryResponses(limits),
}


def open_response_store(url: str, limits: ResponseLimits) -> ResponseStore:
    """In the file of the records. Raises ConfigError."""
    parsed = parse_store_url(url)
    return RESPONSE_STORES[parsed.scheme](parsed, limits)


def open_store(url: str) -> RecordStore:
    """For writing and reading; makes it when it is not there. Raises ConfigError."""
    parsed = parse_store_url(url)
    return STORES[parsed.scheme](parsed)


def open_reader(url: str) -> RecordReader:
    """For reading what others write; makes nothing. Raises ConfigError."""
    parsed = parse_store_url(url)
    if parsed.scheme != "sqlite":
        raise ConfigError("only the process that has a memory:// store can read it: ask the gateway with --url")
    return SqliteReader(Path(parsed.path))
