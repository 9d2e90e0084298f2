"""A whole small request as a coroutine: for model lists, readiness and token counts, not for model calls."""

from __future__ import annotations

import asyncio

import msgspec

from strom.core.errors import ProviderError
from strom.gateway.failures import explain
from strom.gateway.outgoing import BASE_HEADERS
from strom.transport.types import Headers, OutgoingRequest, TransportFailure, UpstreamClient
from strom.upstreams.upstream import Upstream

MAX_BYTES = 8_388_608
LOOK_CONNECT_S = 2.0


class Fetched(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


class _Collector:
    def __init__(self, upstream: Upstream, done: asyncio.Future[Fetched]) -> None:
        self._upstream = upstream
        self._done = done
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    def on_response(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_BYTES:
            self._parts.append(data)

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        if self._done.done():
            return
        if self._size > MAX_BYTES:
            self._done.set_exception(ProviderError("The backend's answer is too long."))
        else:
            self._done.set_result(Fetched(self._status, self._headers, b"".join(self._parts)))

    def on_failure(self, failure: TransportFailure) -> None:
        if not self._done.done():
            self._done.set_exception(explain(self._upstream.name, failure))


async def fetch(
    client: UpstreamClient, upstream: Upstream, path: str, *, body: bytes | None = None, headers: Headers | None = None
) -> Fetched:
    """GET, or POST when there is a body. Raises ProviderError; cancelling it closes the connection.

    Nobody waits long for a look: a GET has 2 s to connect. What is posted has the time of any call.
    """
    done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    fields = [*BASE_HEADERS, *(headers or []), *upstream.auth_headers]
    request = OutgoingRequest("GET" if body is None else "POST", upstream.target(path), fields, body or b"")
    connect_s = upstream.timeouts.connect_s
    limit_s = connect_s if body is not None else min(LOOK_CONNECT_S, connect_s)
    exchange = client.send(upstream.origin, request, _Collector(upstream, done), connect_timeout_s=limit_s)
    try:
        return await done
    finally:
        if not done.done() or done.cancelled():
            exchange.abort()
