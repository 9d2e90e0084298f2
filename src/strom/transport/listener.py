"""A native server on one address: start, drain, stop.

Draining: no new connections, idle ones close at once, running exchanges may finish until the grace time is over, then
their connections are cut. `drain` returns when no connection is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from strom.transport.server import ServerConnection
from strom.transport.types import Handler, ServerLimits

_BACKLOG = 4096
_CUT_S = 1.0
"""How long the loop may take to report that cut connections are gone."""


class Listener:
    """Serves `handler` on an address between `start` and `drain` or `close`."""

    def __init__(self, handler: Handler, limits: ServerLimits | None = None) -> None:
        self._handler = handler
        self._limits = limits if limits is not None else ServerLimits()
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._emptied = asyncio.Event()
        self._emptied.set()

    async def start(
        self, host: str, port: int, *, ssl_context: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> None:
        """Listens; port 0 takes a free one (see `port`). Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self._handler, self._limits, self, loop),
            host,
            port,
            ssl=ssl_context,
            reuse_port=reuse_port or None,
            backlog=_BACKLOG,
        )

    @property
    def port(self) -> int:
        """The port listened on."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("not listening")
        return int(self._server.sockets[0].getsockname()[1])

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
        for connection in list(self._connections):
            connection.cut()
        await self._until_empty(_CUT_S)

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    # -- Roster

    def add(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        self._emptied.clear()

    def remove(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    async def _until_empty(self, patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._emptied.wait(), patience_s)
