"""What a store may be told besides its URL. Plain data: the composition root makes it from `[store]`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from strom.stores.sealing import KeySet


class StoreOptions(msgspec.Struct, frozen=True):
    """Times in seconds unless the name says otherwise."""

    interval_s: float = 0.2
    """Records are written so often, many at once."""
    backlog: int = 100_000
    """So many records wait in memory while the database does not take them; what comes then is lost, and counted."""
    busy_s: float = 2.0
    """How long SQLite waits for another writer."""
    retention_days: float | None = None
    """Older records are removed. None: never."""
    journal_dir: Path | None = None
    """None: beside the SQLite file, or in the state folder of the user (PostgreSQL)."""
    auto_upgrade: bool = False
    """Whether an outdated PostgreSQL schema is upgraded at the start, as SQLite's always is."""
    sealing: KeySet | None = None
    """None: stored content is not encrypted."""
