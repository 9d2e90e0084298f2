"""What the transport offers and what it asks of its users.

Two directions, both callback-driven, without a task, queue or future per request or per piece of body:

* a *server* hands every complete request to a handler as an `Exchange`; the handler answers through it;
* an upstream *client* sends one request and reports the response to a `ResponseReceiver`.

Nothing here knows what an LLM is. Bodies are bytes, header names are lower-case `bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

Headers = list[tuple[bytes, bytes]]
"""Header fields in the order they stood on the wire, names in lower case."""

NO_HEADERS: Headers = []
"""Shared by all that has none (yet). Never written to."""
_NO_FIELDS: dict[bytes, bytes] = {}


class RequestHead(msgspec.Struct, frozen=True):
    """The head of a request a client sent us. `path` is percent-encoded as it came, without the query."""

    method: str
    path: str
    query: str
    headers: Headers
    http_version: str
    peer: str
    """Address of the client, for the log; "" where there is none."""
    fields: dict[bytes, bytes]
    """The same as `headers` by name, for a quick look; of a name that comes several times, the last field."""

    def header(self, name: bytes) -> bytes | None:
        """The first field of that (lower-case) name."""
        if name not in self.fields:
            return None
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def bare(self) -> RequestHead:
        """Without its header fields: as much as writing the answer takes."""
        return RequestHead(self.method, self.path, self.query, NO_HEADERS, self.http_version, self.peer, _NO_FIELDS)

    def header_all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name] if name in self.fields else []


RefusalReason = Literal[
    "body_too_large",
    "head_too_large",
    "bad_request",
    "timeout",
    "not_implemented",
    "version_not_supported",
    "expectation_failed",
    "draining",
    "overloaded",
]


class Refusal(msgspec.Struct, frozen=True):
    """Why the transport did not accept a request: the handler words the answer, in the caller's protocol."""

    status: int
    reason: RefusalReason
    detail: str


class Exchange(Protocol):
    """One request and the writing of its response. Implemented natively, by the ASGI adapter and in memory.

    Order: `start` once, `write` any number of times, then `finish` or `abort` once; or `respond` alone. After
    the client left, every one of these is a no-op (so that callers need not check), and `closed` is true.
    """

    head: RequestHead
    body: bytes
    refusal: Refusal | None
    """Set when the transport could not accept the request; the handler must `respond` (the connection closes then)."""
    on_disconnect: Callable[[], None] | None
    """Called once, when the client left before the response was finished."""
    on_pause: Callable[[], None] | None
    """The client reads too slowly: stop producing until `on_resume`. At most the high-water mark is buffered."""
    on_resume: Callable[[], None] | None

    @property
    def closed(self) -> bool: ...

    @property
    def paused(self) -> bool:
        """True between on_pause and on_resume."""
        ...

    @property
    def bytes_out(self) -> int:
        """Body bytes handed over so far (without framing)."""
        ...

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        """Begin the response. Nothing is sent yet: head and first bytes leave together. `length` None: chunked, or
        delimited by close towards HTTP/1.0. The transport adds content-length, transfer-encoding and connection: these
        in `headers`, or CR, LF, NUL in a value, raise ValueError. Calls out of order raise RuntimeError."""
        ...

    def write(self, data: bytes) -> None:
        """Send one piece of body now, in one write with the head if that is still due. Empty data sends the head."""
        ...

    def finish(self, data: bytes = b"") -> None:
        """Send the last bytes and the end of the body in one write. The connection may serve another request."""
        ...

    def abort(self) -> None:
        """Cut the connection so that the client sees that the body is not complete. What was written before still goes
        out."""
        ...

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole response with content-length. For HEAD the body is left out and its length is told."""
        ...


Handler = Callable[[Exchange], None]
"""Called once per request, when it is complete. It must return at once (start its own work) and must not raise."""


class ServerLimits(msgspec.Struct, frozen=True):
    max_body_bytes: int = 33_554_432
    max_head_bytes: int = 65_536
    max_header_count: int = 200
    max_target_bytes: int = 16_384
    head_timeout_s: float = 30.0
    """From the first byte of a request (or from the connection's start) to the end of its head."""
    body_timeout_s: float = 120.0
    """Longest silence while a body is being received."""
    min_body_bytes_per_s: float = 500.0
    """How fast a body has to come on the whole, counted from `body_timeout_s` after its beginning."""
    keep_alive_s: float = 75.0
    """How long an idle connection is kept. Case 158 needs more than 30 s."""
    write_high_water_bytes: int = 65_536
    max_pipelined_bytes: int = 65_536
    slow_reader_s: float = 300.0
    """How long a client may leave a whole answer unread."""
    max_connections: int = 10_000
    max_connections_per_address: int = 0
    """0: no limit but that on all."""
    max_receiving_bytes: int = 1_073_741_824
    """Bodies that are being received, of all connections together."""


class Origin(msgspec.Struct, frozen=True):
    """Where an upstream is: the key of the connection pool."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    verify_tls: bool = True

    @property
    def authority(self) -> bytes:
        """Value of the host header: with brackets for IPv6, with the port only when it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host.encode() if self.port == default else f"{host}:{self.port}".encode()


FailureKind = Literal[
    "connect",
    "connect_timeout",
    "tls",
    "proxy",
    "closed_before_response",
    "cut",
    "protocol",
    "too_large",
    "decoding",
]


class TransportFailure(msgspec.Struct, frozen=True):
    """Why an upstream exchange did not end well.

    connect: refused, unreachable or not resolved; connect_timeout; tls: handshake or certificate; proxy: the proxy refused;
    closed_before_response: the connection ended before any byte of a response; cut: it ended inside the head or body;
    protocol: bytes that are no HTTP response; too_large: a head over its limit; decoding: a broken gzip or deflate body.
    """

    kind: FailureKind
    detail: str
    """For the log and the record: what happened, without headers or bodies."""
    sent: bool
    """True when bytes of the request may have reached the upstream."""


class ResponseReceiver(Protocol):
    """Told about one response, in this order: on_response, on_body*, then on_end or on_failure, exactly once.

    `on_read_end` comes after the callbacks of one read from the socket (several on_body calls), so that the receiver
    can forward everything of one read in one write. on_end and on_failure end their read: no `on_read_end` follows them,
    so that the last bytes of a body and its end can leave in one write too. No callback comes after `abort`.
    """

    def on_response(self, status: int, headers: Headers) -> None: ...

    def on_body(self, data: bytes) -> None:
        """A piece of the body: chunked framing and content coding are already removed."""
        ...

    def on_read_end(self) -> None: ...

    def on_end(self, *, delimited_by_close: bool) -> None:
        """The body is complete by its own framing; `delimited_by_close`: it ended because the connection did (HTTP/1.0)."""
        ...

    def on_failure(self, failure: TransportFailure) -> None: ...


class OutgoingRequest(msgspec.Struct, frozen=True):
    """`target` is path and query. The transport adds host, content-length and connection; the caller gives the rest
    (naming one of those three, transfer-encoding or upgrade, or CR, LF, NUL in a value: ValueError from `send`)."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""


class UpstreamExchange(Protocol):
    """A request under way. `abort` closes its connection at once, in every phase; it is idempotent and silent."""

    def abort(self) -> None: ...

    def express(self, take: Callable[[bytes], None]) -> None:
        """From now on, a read that brought one whole piece of body and nothing else may come to `take` alone, in place of
        `on_body` and `on_read_end`. What every read of a running stream is, so that it passes fewer hands."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class UpstreamClient(Protocol):
    """Sends requests over pooled connections."""

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        """Never raises for what the network does: failures come through `receiver.on_failure`, never inside this call."""
        ...

    def close(self) -> None:
        """Close idle connections and refuse further use."""
        ...

    def stats(self) -> dict[str, Any]: ...
