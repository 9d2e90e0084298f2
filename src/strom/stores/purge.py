"""Removes records that are older than `[store] retention_days`, a few at a time, one process at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from strom.stores.dialect import Connection, Dialect
from strom.stores.reading import plain

LOG = logging.getLogger("strom.stores")
EVERY_S = 600.0
AT_ONCE = 500
PAUSE_S = 0.05
"""Between two portions: other writers wait for their turn meanwhile."""
_DELETE = """
DELETE FROM calls WHERE trace_id IN (
    SELECT trace_id FROM calls WHERE started_at < ? AND status <> 'started' ORDER BY started_at, trace_id LIMIT ?)
"""


class Purger:
    """A thread of its own, until `close`."""

    def __init__(self, dialect: Dialect, retention_s: float, wall: Callable[[], float] = time.time) -> None:
        self._dialect = dialect
        self._errors: tuple[type[Exception], ...] = (*dialect.errors, OSError)
        self._retention_s = retention_s
        self._wall = wall
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strom-purge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            try:
                purge(self._dialect, self._wall() - self._retention_s, self._stop)
            except self._errors as error:
                LOG.warning("old records cannot be removed now (%s)", plain(error))
            if self._stop.wait(EVERY_S):
                return


def purge(dialect: Dialect, before: float, stop: threading.Event) -> int:
    """How many records were removed; 0 also while another process is at it. Raises what the dialect's errors name."""
    with dialect.alone("purge") as mine:
        if not mine:
            return 0
        connection = dialect.connect()
        try:
            return _purge(connection, before, stop)
        finally:
            connection.close()


def _purge(connection: Connection, before: float, stop: threading.Event) -> int:
    removed = 0
    while not stop.is_set():
        count = connection.execute(_DELETE, (before, AT_ONCE)).rowcount
        connection.commit()
        removed += count
        if count < AT_ONCE or stop.wait(PAUSE_S):
            break
    return removed
