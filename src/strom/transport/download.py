"""One GET to an address that was chosen before: no name is looked up here, no proxy is used, no connection is kept.

For whoever has to know exactly whom it talks to: the name in `origin` goes into the host header and is what a certificate is
verified against; the connection goes to `address`. The body is read up to a limit.
"""

from __future__ import annotations

import asyncio
import ssl

import msgspec

from strom.transport.connect import ConnectError, TlsContexts
from strom.transport.connection import NativeUpstreamExchange, UpstreamConnection
from strom.transport.heads import RequestRoute, request_head
from strom.transport.types import Headers, Origin, OutgoingRequest, TransportFailure


class Downloaded(msgspec.Struct, frozen=True):
    """The body is empty for any status but 200."""

    status: int
    headers: Headers
    body: bytes


class TooLong(Exception):
    """The body is longer than it may be."""


class _Nobody:
    """Owns connections that serve once."""

    def release(self, connection: UpstreamConnection) -> bool:
        return False

    def send_again(self, call: NativeUpstreamExchange, origin: Origin) -> None:
        raise AssertionError("a fresh connection is never sent again on")


class _Collector:
    def __init__(self, max_bytes: int) -> None:
        self.done: asyncio.Future[Downloaded] = asyncio.get_running_loop().create_future()
        self._max_bytes = max_bytes
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    def on_response(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, list(headers)
        length = next((value for name, value in headers if name == b"content-length"), b"")
        if status != 200:
            self._finish()
        elif length.isdigit() and int(length) > self._max_bytes:
            self._fail(TooLong())

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._max_bytes:
            self._fail(TooLong())
        else:
            self._parts.append(data)

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        self._finish()

    def on_failure(self, failure: TransportFailure) -> None:
        self._fail(ConnectError(failure.kind, failure.detail))

    def _finish(self) -> None:
        if not self.done.done():
            body = b"".join(self._parts) if self._status == 200 else b""
            self.done.set_result(Downloaded(self._status, self._headers, body))

    def _fail(self, error: Exception) -> None:
        self._parts.clear()
        if not self.done.done():
            self.done.set_exception(error)


async def download(
    origin: Origin, address: str, request: OutgoingRequest, *, tls: TlsContexts, max_bytes: int
) -> Downloaded:
    """Raises ConnectError, TooLong; ValueError for a request that is none. How long it may take is the caller's matter."""
    call_head = request_head(RequestRoute.to(origin), request)
    context = tls.choose(origin) if origin.scheme == "https" else None
    name = origin.host if context is not None else None
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(_Nobody(), origin, {}), address, origin.port, ssl=context, server_hostname=name
        )
    except ssl.SSLError as error:
        raise ConnectError("tls", str(error)) from None
    except OSError as error:
        raise ConnectError("connect", f"{type(error).__name__}: {error}") from None
    collector = _Collector(max_bytes)
    call = NativeUpstreamExchange(request.method, call_head, b"", collector)
    connection.begin(call, collector, reused=False)
    try:
        return await collector.done
    finally:
        call.abort()
