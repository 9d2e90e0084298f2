"""SQLite: one file that several processes of one machine may share.

WAL, so that readers never wait for the writer; `synchronous = NORMAL`: a commit survives the process, and a power cut costs at
most the last commits, never the file. `secure_delete` overwrites what is deleted, since content is stored here too.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from strom.core.errors import ConfigError
from strom.stores.dialect import Connection

_OPENING_S = 5.0


class SqliteDialect:
    """A Dialect."""

    name = "sqlite"
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    impossible: tuple[type[Exception], ...] = (
        OverflowError,
        UnicodeError,
        TypeError,
        ValueError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
    )
    day = "strftime('%Y-%m-%d', started_at, 'unixepoch')"
    sum_cost = "exact_sum(cost_amount)"

    def __init__(self, path: Path, busy_s: float = 2.0) -> None:
        self.path = path
        self._busy_s = busy_s

    @property
    def shown(self) -> str:
        return str(self.path)

    @property
    def journals(self) -> Path:
        """The folder beside the file in which processes keep their journals: strom.calls for strom.db."""
        return self.path.with_name(self.path.name.removesuffix(".db") + ".calls")

    def connect(self) -> Connection:
        with suppress(OSError):  # what stands against a file, SQLite says below
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=_OPENING_S, check_same_thread=False)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {int(self._busy_s * 1000)}")
        return connection

    def connect_reading(self) -> Connection:
        if not self.path.is_file():
            raise ConfigError(f"there is no store at {self.path}")
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=False)
        connection.create_aggregate("exact_sum", 1, _ExactSum)
        return connection

    def is_usable(self, connection: Connection) -> bool:
        return True

    def tables(self, connection: Connection) -> set[str]:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """By a lock on a file in the folder of the journals."""
        self.journals.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.journals / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = True
        except BlockingIOError:
            taken = False
        try:
            yield taken
        finally:
            os.close(file)


class _ExactSum:
    """An SQL aggregate: amounts are text, and their sum is exact."""

    def __init__(self) -> None:
        self._sum = Decimal(0)

    def step(self, amount: Any) -> None:  # text or None; the type is that of the stub
        if amount is not None:
            self._sum += Decimal(amount)

    def finalize(self) -> Any:
        return str(self._sum)


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
