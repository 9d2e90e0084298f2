"""The second face of the server: the same `Exchange` over ASGI 3, for whoever runs a server of his own.

Dearer than the native transport by some 10 µs per chunk, since every piece passes through a coroutine. Invariants: head
and first bytes leave together, pieces written meanwhile leave as one; `receive` is awaited all the while, because `send`
is silent about a client that left; what `send` has not taken is bounded by pausing the producer; the handler hears of a
disconnect once. An aborted response ends without its last message, upon which servers cut the connection.

Source: ASGI 3.0, HTTP & WebSocket protocol 2.4 and Lifespan protocol 2.0 (asgi.readthedocs.io).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from strom.transport.heads import BODILESS_STATUSES, check_headers
from strom.transport.types import Handler, Headers, Refusal, RequestHead, ServerLimits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]


class AsgiExchange:
    """One request. The writing side only collects; `run` hands it to the server."""

    __slots__ = (
        "_bodiless",
        "_high_water",
        "_length",
        "_over",
        "_pending",
        "_pending_bytes",
        "_start",
        "_started",
        "_wake",
        "aborted",
        "body",
        "bytes_out",
        "closed",
        "head",
        "on_disconnect",
        "on_pause",
        "on_resume",
        "paused",
        "refusal",
    )  # fmt: skip

    def __init__(self, head: RequestHead, body: bytes, refusal: Refusal | None, *, high_water_bytes: int) -> None:
        self.head = head
        self.body = body
        self.refusal = refusal
        self.on_disconnect: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.closed = False
        self.paused = False
        self.aborted = False
        self.bytes_out = 0
        self._high_water = high_water_bytes
        self._wake = asyncio.Event()
        self._start: Message | None = None
        self._started = self._over = self._bodiless = False
        self._length: int | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    # -- Exchange

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        if self.closed:
            return
        if self._started:
            raise RuntimeError("start out of order")
        check_headers(headers)
        own: Headers = []
        self._bodiless = self.head.method == "HEAD" or status in BODILESS_STATUSES
        if length is not None and status not in BODILESS_STATUSES:
            own.append((b"content-length", b"%d" % length))
        elif length is None and self.head.http_version == "1.1":
            own.append((b"connection", b"keep-alive"))
        self._length = length
        self._start = {"type": "http.response.start", "status": status, "headers": [*headers, *own]}
        self._started = True

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if not self._started or self._over:
            raise RuntimeError("write out of order")
        self.bytes_out += len(data)
        if self._length is not None and self.bytes_out > self._length:
            self.abort()
            raise ValueError("more body than the content-length told")
        if data and not self._bodiless:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._pending_bytes > self._high_water and not self.paused:
                self.paused = True
                if self.on_pause is not None:
                    self.on_pause()
        self._wake.set()

    def finish(self, data: bytes = b"") -> None:
        if self.closed:
            return
        self.write(data)
        if self._length is not None and self.bytes_out < self._length:
            self.abort()
            return
        self._over = True
        self._drop_callbacks()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self.start(status, headers, length=len(body))
        self.finish(body)

    def abort(self) -> None:
        if self.closed or self._over:
            return
        self.closed = self.aborted = True
        self._drop_callbacks()
        self._wake.set()

    # -- the server's side

    def client_left(self) -> None:
        if self.closed or self._over:
            return
        self.closed = True
        callback = self.on_disconnect
        self._drop_callbacks()
        self._wake.set()
        if callback is not None:
            callback()

    async def run(self, send: Send) -> None:
        """Sends what is written until the response is over or cut."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            # What was written before an abort still goes out; after the client left nobody wants it.
            if self.closed and not self.aborted:
                return
            await self._send_pending(send)
            if self.closed or (self._over and not self._wake.is_set()):
                return

    async def _send_pending(self, send: Send) -> None:
        start, self._start = self._start, None
        pieces, self._pending = self._pending, []
        self._pending_bytes = 0
        over = self._over
        if start is not None and (over or pieces or not self.aborted):
            await send(start)
        if over or pieces:
            await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": not over})
        if self.paused and self._pending_bytes <= self._high_water:
            self.paused = False
            if self.on_resume is not None:
                self.on_resume()

    def _drop_callbacks(self) -> None:
        self.on_disconnect = self.on_pause = self.on_resume = None


class AsgiAdapter:
    """An ASGI application that serves `handler`. The hooks run in the server's lifespan, if it has one."""

    def __init__(
        self,
        handler: Handler,
        limits: ServerLimits | None = None,
        on_startup: Hook | None = None,
        on_shutdown: Hook | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits if limits is not None else ServerLimits()
        self._on_startup = on_startup
        self._on_shutdown = on_shutdown

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            raise ValueError(f"unknown ASGI scope {scope['type']!r}")

    async def _live(self, receive: Receive, send: Send) -> None:
        for hook, phase in ((self._on_startup, "startup"), (self._on_shutdown, "shutdown")):
            await receive()
            if hook is not None:
                await hook()  # an exception ends the lifespan, which servers report as a failed start
            await send({"type": f"lifespan.{phase}.complete"})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        head = request_head(scope)
        try:
            body, refusal = await self._read_body(head, receive)
        except EOFError:
            return
        exchange = AsgiExchange(head, body, refusal, high_water_bytes=self._limits.write_high_water_bytes)
        watching = asyncio.create_task(_watch(exchange, receive))
        try:
            self._handler(exchange)
            await exchange.run(send)
        except OSError:  # how servers of ASGI 2.4 say that the client is gone
            pass
        finally:
            exchange.client_left()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

    async def _read_body(self, head: RequestHead, receive: Receive) -> tuple[bytes, Refusal | None]:
        """Raises EOFError when the client leaves before its request is complete."""
        limit = self._limits.max_body_bytes
        refusal = Refusal(413, "body_too_large", f"request body over {limit} bytes")
        told = head.header(b"content-length")
        if told is not None and told.isdigit() and int(told) > limit:
            return b"", refusal
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise EOFError
            body += message.get("body", b"")
            if len(body) > limit:
                return b"", refusal
            if not message.get("more_body", False):
                return bytes(body), None


async def _watch(exchange: AsgiExchange, receive: Receive) -> None:
    """Waits for the client's leaving; the rest of a refused body is passed over."""
    while not exchange.closed:
        message = await receive()
        if message["type"] == "http.disconnect":
            exchange.client_left()
            return


def request_head(scope: Message) -> RequestHead:
    """The head of an `http` scope. Where the application is mounted below a path (`root_path`), that part is left out."""
    raw = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else quote(scope["path"], safe="/:@!$&'()*+,;=~-._%")
    root = scope.get("root_path", "").rstrip("/")
    if root and path.startswith(root + "/"):
        path = path[len(root) :]
    client = scope.get("client")
    headers = [(bytes(name).lower(), bytes(value)) for name, value in scope["headers"]]
    return RequestHead(
        scope["method"],
        path.partition("?")[0],
        scope.get("query_string", b"").decode("latin-1"),
        headers,
        scope.get("http_version", "1.1"),
        str(client[0]) if client else "",
        dict(headers),
    )
