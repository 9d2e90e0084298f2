"""The kinds of store, by URL scheme. A new kind is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from strom.core.errors import ConfigError
from strom.stores.memory import MemoryStore
from strom.stores.reading import SqliteReader
from strom.stores.records import RecordReader, RecordStore
from strom.stores.sqlite import SqliteStore
from strom.stores.urls import StoreUrl, parse_store_url


def _sqlite(url: StoreUrl) -> RecordStore:
    return SqliteStore(Path(url.path))


def _memory(url: StoreUrl) -> RecordStore:
    return MemoryStore()


STORES: dict[str, Callable[[StoreUrl], RecordStore]] = {
    "sqlite": _sqlite,
    "memory": _memory,
}


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
