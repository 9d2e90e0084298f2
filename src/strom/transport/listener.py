"""A native server on one address: start, drain, stop.

Draining: no new connections, idle ones close at once, running exchanges may finish until the grace time is over, then
their connections are cut. `drain` returns when no connection is left.

Connections are bounded in number, all of them and those of one address. One too many is told so and closed; beyond a few of
these at once they are cut without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strom.transport.intake import Intake, always
from strom.transport.server import ServerConnection
from strom.transport.timers import LoopClock
from strom.transport.types import Handler, ServerLimits

LOG = logging.getLogger("strom.transport")
_BACKLOG = 4096
_MOST_TURNED_AWAY = 256
"""Connections too many that are being told so, at once."""
_WARNED_S = 60.0
_HANDSHAKE_S = 15.0
_CUT_S = 1.0
"""How long the loop may take to report that cut connections are gone."""


class Listener:
    """Serves `handler` on an address between `start` and `drain` or `close`."""

    def __init__(
        self, handler: Handler, limits: ServerLimits | None = None, admits: Callable[[], bool] = always
    ) -> None:
        """`admits`: asked before a body is received that does not come with its head."""
        self._handler = handler
        self._limits = limits if limits is not None else ServerLimits()
        self.intake = Intake(self._limits.max_receiving_bytes, admits)
        self._connections: set[ServerConnection] = set()
        self._turned_away: set[ServerConnection] = set()
        self._per_address: Counter[str] = Counter()
        self._warned_at = float("-inf")
        self.turned_away = 0
        """Connections that were too many, since the start."""
        self._servers: list[asyncio.Server] = []
        self._emptied = asyncio.Event()
        self._emptied.set()

    async def start(
        self,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        """Listens; port 0 takes a free one (see `port`). Raises OSError when the address cannot be had.

        `sockets`: bound ones to listen on instead.
        """
        named: dict[str, Any] = {"host": host, "port": port, "reuse_port": reuse_port or None}
        places: list[dict[str, Any]] = [{"sock": each} for each in sockets] or [named]
        for place in places:
            self._servers.append(await self._listen(ssl_context, place))

    async def _listen(self, ssl_context: ssl.SSLContext | None, place: Mapping[str, Any]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        return await loop.create_server(
            lambda: ServerConnection(self._handler, self._limits, self, clock),
            ssl=ssl_context,
            ssl_handshake_timeout=min(self._limits.head_timeout_s, _HANDSHAKE_S) if ssl_context is not None else None,
            backlog=_BACKLOG,
            **place,
        )

    @property
    def port(self) -> int:
        """The port listened on."""
        if not self._servers or not self._servers[0].sockets:
            raise RuntimeError("not listening")
        return int(self._servers[0].sockets[0].getsockname()[1])

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    @property
    def open_exchanges(self) -> int:
        """Requests being answered."""
        return sum(connection.busy for connection in self._connections)

    async def drain(self, grace_s: float) -> None:
        self.stop_accepting()
        for connection in list(self._connections):
            connection.drain()
        await self._until_empty(grace_s)
        await self.close()

    async def close(self) -> None:
        """Cuts every connection."""
        self.stop_accepting()
        for connection in [*self._connections, *self._turned_away]:
            connection.cut()
        await self._until_empty(_CUT_S)

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    # -- Roster

    def add(self, connection: ServerConnection) -> bool:
        if self._is_full(connection.peer):
            self._turn_away(connection)
            return False
        if self._limits.max_connections_per_address:
            self._per_address[connection.peer] += 1
        self._connections.add(connection)
        self._emptied.clear()
        return True

    def remove(self, connection: ServerConnection) -> None:
        if connection in self._turned_away:
            self._turned_away.remove(connection)
            return
        if connection in self._connections and self._limits.max_connections_per_address:
            self._per_address[connection.peer] -= 1
            if not self._per_address[connection.peer]:
                del self._per_address[connection.peer]
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    def _is_full(self, peer: str) -> bool:
        limits = self._limits
        if len(self._connections) >= limits.max_connections:
            return True
        most = limits.max_connections_per_address
        return bool(most) and self._per_address[peer] >= most

    def _turn_away(self, connection: ServerConnection) -> None:
        self.turned_away += 1
        now = asyncio.get_running_loop().time()
        if now - self._warned_at > _WARNED_S:
            self._warned_at = now
            LOG.warning("too many connections: %d are open, %s is turned away", len(self._connections), connection.peer)
        if len(self._turned_away) < _MOST_TURNED_AWAY:
            self._turned_away.add(connection)
        else:
            connection.cut()

    async def _until_empty(self, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._emptied.wait(), patience_s)
