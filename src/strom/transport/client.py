"""The upstream client: takes an idle connection or opens one, sends, and hands connection and receiver to each other.

On an idle connection the request is written inside `send`; for a new one there is one task until it stands. Nothing
else here outlives a call. Usable from any running loop; a pool serves the loop that used it last.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from threading import get_ident
from typing import Any

from strom.transport.connect import ConnectError, Proxies, Proxy, TlsContexts, connect
from strom.transport.connection import NativeUpstreamExchange, UpstreamConnection
from strom.transport.heads import RequestRoute, request_head
from strom.transport.pool import IDLE_S, Pool, Shelf
from strom.transport.types import Origin, OutgoingRequest, ResponseReceiver, TransportFailure, UpstreamExchange


class _Route:
    """What the client knows of one origin: how it is reached, and its idle connections."""

    __slots__ = ("head", "origin", "proxy", "shelf")

    def __init__(self, origin: Origin, proxy: Proxy | None, shelf: Shelf[UpstreamConnection]) -> None:
        self.origin = origin
        self.proxy = proxy
        self.shelf = shelf
        lines = proxy.authorization if proxy is not None and origin.scheme == "http" else None
        self.head = RequestRoute.to(origin, proxy_lines=lines)


class NativeClient:
    """Implements `UpstreamClient`. `environ` is read once, for proxies; None: the process's own."""

    def __init__(self, *, idle_s: float = IDLE_S, environ: Mapping[str, str] | None = None) -> None:
        self._pool: Pool[UpstreamConnection] = Pool(idle_s)
        self._proxies = Proxies(os.environ if environ is None else environ)
        self._tls = TlsContexts()
        self._routes: dict[Origin, _Route] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._closed = False
        self._opened = self._reused = self._sent_again = 0

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        """Raises ValueError for a request that is none (bad header, target, method)."""
        loop = self._loop
        if loop is None or self._thread_id != get_ident() or not loop.is_running():
            loop = self._find_loop()
        route = self._routes.get(origin) or self._new_route(origin)
        head = request_head(route.head, request)
        call = NativeUpstreamExchange(request.method, head, request.body, receiver, connect_timeout_s)
        if self._closed:
            loop.call_soon(call.fail, TransportFailure("connect", "the client is closed", sent=False))
            return call
        connection = self._pool.take(route.shelf, loop)
        if connection is None:
            self._connect(call, route)
        else:
            self._reused += 1
            connection.begin(call, receiver, reused=True)
        return call

    def close(self) -> None:
        self._closed = True
        self._pool.clear()

    def stats(self) -> dict[str, Any]:
        return {
            "idle": len(self._pool),
            "connecting": len(self._connecting),
            "opened": self._opened,
            "reused": self._reused,
            "sent_again": self._sent_again,
        }

    # -- Owner

    def release(self, connection: UpstreamConnection) -> bool:
        if self._closed:
            return False
        self._pool.put(connection.shelf, connection, connection.loop or asyncio.get_running_loop())
        return True

    def send_again(self, call: NativeUpstreamExchange, origin: Origin) -> None:
        self._sent_again += 1
        self._connect(call, self._routes[origin])

    def _find_loop(self) -> asyncio.AbstractEventLoop:
        """Sought only when the last one does not run here, because Python 3.11 asks the kernel for the process id each time."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        return self._loop

    # -- new connections

    def _new_route(self, origin: Origin) -> _Route:
        route = self._routes[origin] = _Route(origin, self._proxies.choose(origin), self._pool.new_shelf())
        return route

    def _connect(self, call: NativeUpstreamExchange, route: _Route) -> None:
        call.connecting = task = asyncio.get_running_loop().create_task(self._open_for(call, route))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _open_for(self, call: NativeUpstreamExchange, route: _Route) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection = await connect(
                route.origin,
                route.proxy,
                self._tls,
                lambda: UpstreamConnection(self, route.origin, route.shelf, loop),
                timeout_s=call.connect_timeout_s,
            )
        except ConnectError as error:
            call.connecting = None
            call.fail(error.failure)
            return
        call.connecting = None
        self._opened += 1
        if call.receiver is None:
            connection.drop()
        else:
            connection.begin(call, call.receiver, reused=False)
