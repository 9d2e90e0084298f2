"""Idle upstream connections, kept per origin for the next request.

Invariants: last in, first out, so that few connections stay warm and the rest grow old; a connection is in the pool only
while it is idle and whole; none is handed out after `idle_s`. That limit lies below the 5 s after which uvicorn, and with
it most Python backends, closes an idle connection: a request sent into that close would be lost. One timer for the whole
pool, and none while it is empty. A pool belongs to the loop that last used it; connections of another are dropped.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

from strom.transport.types import Origin

IDLE_S = 4.0


class Poolable(Protocol):
    """A connection as the pool sees it. `drop` closes it after it has left the pool."""

    idle_since: float

    def is_whole(self) -> bool: ...

    def drop(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=Poolable)


class Pool(Generic[ConnectionT]):
    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        # Dicts as ordered sets: taking the newest and removing any one are both O(1).
        self._idle: dict[Origin, dict[ConnectionT, None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def take(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> ConnectionT | None:
        """The connection that became idle last, or None."""
        if loop is not self._loop:
            self._adopt(loop)
        idle = self._idle.get(origin)
        oldest = loop.time() - self._idle_s
        while idle:
            connection, _ = idle.popitem()
            if connection.idle_since > oldest and connection.is_whole():
                return connection
            connection.drop()
        return None

    def put(self, origin: Origin, connection: ConnectionT, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            self._adopt(loop)
        connection.idle_since = loop.time()
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = {}
        idle[connection] = None
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def remove(self, origin: Origin, connection: ConnectionT) -> None:
        """Forgets a connection that is idle no longer; nothing happens if it is not in the pool."""
        idle = self._idle.get(origin)
        if idle is not None:
            idle.pop(connection, None)

    def clear(self) -> None:
        """Drops everything. From another loop than the pool's this only forgets; the sockets close with their objects."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle, self._idle = self._idle, {}
        if self._loop is None or self._loop.is_closed():
            return
        for connections in idle.values():
            for connection in connections:
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
        for origin in list(self._idle):
            idle = self._idle[origin]
            for connection in list(idle):
                if connection.idle_since > oldest:
                    break
                del idle[connection]
                connection.drop()
            if not idle:
                del self._idle[origin]
        if self._idle:
            first = min(next(iter(idle)).idle_since for idle in self._idle.values())
            self._timer = loop.call_at(first + self._idle_s, self._expire)
