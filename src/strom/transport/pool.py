"""Idle upstream connections, kept per origin for the next request.

Invariants: last in, first out, so that few connections stay warm and the rest grow old; a connection is in the pool only
while it is idle and whole; none is handed out after `idle_s`. That limit lies below the 5 s after which uvicorn, and with
it most Python backends, closes an idle connection: a request sent into that close would be lost. One timer for the whole
pool, and none while it is empty. A pool belongs to the loop that last used it; connections of another are dropped.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

IDLE_S = 4.0


class Poolable(Protocol):
    """A connection as the pool sees it. `drop` closes it after it has left the pool."""

    idle_since: float

    def is_whole(self) -> bool: ...

    def drop(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=Poolable)


Shelf = dict[ConnectionT, None]
"""The idle connections to one origin, oldest first. A dict as an ordered set: taking the newest and removing any one are
both O(1)."""


class Pool(Generic[ConnectionT]):
    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._shelves: list[Shelf[ConnectionT]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._shelves))

    def new_shelf(self) -> Shelf[ConnectionT]:
        """For one more origin; it stays as long as the pool."""
        shelf: Shelf[ConnectionT] = {}
        self._shelves.append(shelf)
        return shelf

    def take(self, shelf: Shelf[ConnectionT], loop: asyncio.AbstractEventLoop) -> ConnectionT | None:
        """The connection that became idle last, or None."""
        if loop is not self._loop:
            self._adopt(loop)
        if not shelf:
            return None
        oldest = loop.time() - self._idle_s
        while shelf:
            connection, _ = shelf.popitem()
            if connection.idle_since > oldest and connection.is_whole():
                return connection
            connection.drop()
        return None

    def put(self, shelf: Shelf[ConnectionT], connection: ConnectionT, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            self._adopt(loop)
        connection.idle_since = loop.time()
        shelf[connection] = None
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def clear(self) -> None:
        """Drops everything. Connections of a loop that is closed are only forgotten."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        alive = self._loop is not None and not self._loop.is_closed()
        for shelf in self._shelves:
            connections = list(shelf)
            shelf.clear()
            for connection in connections if alive else ():
                connection.drop()

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        old, self._loop = self._loop, None
        if old is not None:
            self.clear()
        self._loop = loop

    def _expire(self) -> None:
        self._timer = None
        loop = self._loop
        if loop is None:
            return
        oldest = loop.time() - self._idle_s
        for shelf in self._shelves:
            for connection in list(shelf):
                if connection.idle_since > oldest:
                    break
                del shelf[connection]
                connection.drop()
        first = min((next(iter(shelf)).idle_since for shelf in self._shelves if shelf), default=None)
        if first is not None:
            self._timer = loop.call_at(first + self._idle_s, self._expire)
