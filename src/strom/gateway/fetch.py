"""A whole small request as a coroutine: for model lists, readiness and token counts, not for model calls."""

from __future__ import annotations

import asyncio

import msgspec

from strom.core.errors import ProviderError, Unreachable
from strom.gateway.outgoing import BASE_HEADERS
from strom.transport.types import Headers, OutgoingRequest, TransportFailure, UpstreamClient
from strom.upstreams.upstream import Upstream

MAX_BYTES = 8_388_608


class Fetched(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes


class _Collector:
    def __init__(self, done: asyncio.Future[Fetched]) -> None:
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
            self._done.set_exception(Unreachable("The backend cannot be reached.", detail=failure.detail))


async def fetch(
    client: UpstreamClient, upstream: Upstream, path: str, *, body: bytes | None = None, headers: Headers | None = None
) -> Fetched:
    """GET, or POST when there is a body. Raises ProviderError; cancelling it closes the connection."""
    done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    fields = [*BASE_HEADERS, *(headers or []), *upstream.auth_headers]
    request = OutgoingRequest("GET" if body is None else "POST", upstream.target(path), fields, body or b"")
    exchange = client.send(
        upstream.origin, request, _Collector(done), connect_timeout_s=min(2.0, upstream.timeouts.connect_s)
    )
    try:
        return await done
    finally:
        if not done.done() or done.cancelled():
            exchange.abort()
