"""One try at one upstream: transport callbacks in, progress of the call out.

What the upstream answers decides how it is read (`_Mode`): an event stream feeds the pipe; a whole body and an error body are
collected within a limit. Everything that one read brought leaves in one write (`on_read_end`). This is also the one place where
an exception nobody foresaw is caught: it fails this call and no other.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from strom.core.errors import (
    IncompleteStream,
    InvalidStreamEvent,
    ProviderError,
    StromError,
    TimedOut,
    Unreachable,
)
from strom.protocols.codec import Codec, ToolName
from strom.transport.types import Headers, TransportFailure, UpstreamExchange

if TYPE_CHECKING:
    from strom.gateway.call import Call
    from strom.gateway.pipes import StreamPipe
    from strom.gateway.plan import Endpoint

MAX_ERROR_BYTES = 1_048_576


class _Mode(enum.Enum):
    WAITING = 0
    STREAM = 1
    WHOLE = 2
    ERROR = 3
    OVER = 4


class UpstreamAttempt:
    """A ResponseReceiver. `exchange` is set right after `send`; `over` once nothing more will be used of this attempt."""

    __slots__ = (
        "_body",
        "_body_size",
        "_call",
        "_feed",
        "_mode",
        "_out",
        "asked_stream",
        "codec",
        "connected_at",
        "endpoint",
        "ended",
        "exchange",
        "names",
        "pipe",
        "response_at",
        "response_headers",
        "started_at",
        "status",
    )

    def __init__(self, call: Call, endpoint: Endpoint, codec: Codec, started_at: float) -> None:
        self._call = call
        self._mode = _Mode.WAITING
        self._out = b""
        self._body: list[bytes] = []
        self._body_size = 0
        self.endpoint = endpoint
        self.codec = codec
        self.started_at = started_at
        self.response_at: float | None = None
        self.status = 0
        self.response_headers: Headers = []
        self.exchange: UpstreamExchange | None = None
        self.ended = False
        self.asked_stream = False
        self.names: dict[str, ToolName] = {}
        self.pipe: StreamPipe

    # -- ResponseReceiver --

    def on_response(self, status: int, headers: Headers) -> None:
        if self._mode is _Mode.OVER:
            return
        self.status = status
        self.response_at = self._call.now()
        self.response_headers = headers
        if not 200 <= status < 300:
            self._mode = _Mode.ERROR
        elif self._is_stream(headers):
            self._mode = _Mode.STREAM
            self._feed = self.pipe.feed
        else:
            self._mode = _Mode.WHOLE

    def on_body(self, data: bytes) -> None:
        if self._mode is _Mode.STREAM:
            try:
                out = self._feed(data)
            except Exception as error:
                self._call.crash(self, error)
                return
            self._out = self._out + out if self._out else out
        elif self._mode is not _Mode.OVER:
            self._collect(data)

    def on_read_end(self) -> None:
        if self._mode is _Mode.STREAM:
            out, self._out = self._out, b""
            try:
                self._call.advance(self, out)
            except Exception as error:
                self._call.crash(self, error)

    def on_end(self, *, delimited_by_close: bool) -> None:  # noqa: ARG002 - the protocol's own proof counts, not HTTP's
        self.ended = True
        mode = self._mode
        try:
            if mode is _Mode.STREAM:
                out, self._out = self._out, b""
                self._call.advance(self, out + self.pipe.finish())
            elif mode is _Mode.WHOLE:
                self._mode = _Mode.OVER
                self._call.take_whole(self, b"".join(self._body))
            elif mode is _Mode.ERROR:
                self._call.attempt_failed(self, self._refusal())
        except Exception as error:
            self._call.crash(self, error)

    def on_failure(self, failure: TransportFailure) -> None:
        self.ended = True
        if self._mode is _Mode.OVER:
            return
        try:
            if self._mode is _Mode.STREAM:  # what came before the failure is the client's
                out, self._out = self._out, b""
                self._call.advance(self, out)
            self._call.attempt_failed(self, self._explain(failure))
        except Exception as error:
            self._call.crash(self, error)

    # -- for the call --

    def close(self) -> None:
        """Nothing more of this attempt is wanted: its connection is closed unless its body has ended."""
        self._mode = _Mode.OVER
        self._body.clear()
        if not self.ended and self.exchange is not None:
            self.exchange.abort()

    def let_end(self) -> None:
        """The stream has proven its end; its body may end by itself, so that the connection can serve again."""
        self._mode = _Mode.OVER
        if not self.ended and self.exchange is not None:
            self._call.services.lingering.add(self.exchange)

    # -- inside --

    def _is_stream(self, headers: Headers) -> bool:
        """By content type; one that says nothing of use is what was asked for."""
        kind = next((value for name, value in headers if name == b"content-type"), b"").lower()
        if b"event-stream" in kind or b"ndjson" in kind:
            return True
        return self.asked_stream and b"json" not in kind and b"html" not in kind

    def _collect(self, data: bytes) -> None:
        self._body_size += len(data)
        limit = MAX_ERROR_BYTES if self._mode is _Mode.ERROR else self._call.services.settings.max_reply_bytes
        if self._body_size <= limit:
            self._body.append(data)
        elif self._mode is _Mode.ERROR:
            self._call.attempt_failed(self, self._refusal())
        else:
            self._call.attempt_failed(self, InvalidStreamEvent(f"The upstream's reply is longer than {limit} bytes."))

    def _refusal(self) -> StromError:
        return self.codec.decode_error(self.status, self.response_headers, b"".join(self._body))

    def _explain(self, failure: TransportFailure) -> StromError:
        """The error behind a failed exchange, in words that say what to look at."""
        name = self.endpoint.upstream.name
        match failure.kind:
            case "connect":
                return Unreachable(f"The backend {name!r} cannot be reached. Is it running?", detail=failure.detail)
            case "connect_timeout":
                return TimedOut(f"The backend {name!r} did not accept a connection in time.", detail=failure.detail)
            case "tls":
                message = f"The TLS connection to the backend {name!r} could not be set up: check its certificate."
                return Unreachable(message, detail=failure.detail)
            case "proxy":
                message = f"The proxy on the way to the backend {name!r} refused: check the proxy variables."
                return Unreachable(message, detail=failure.detail)
            case "closed_before_response":
                message = f"The backend {name!r} closed the connection without an answer."
                return ProviderError(message, detail=failure.detail)
            case "cut":
                message = f"The connection to the backend {name!r} broke before its answer was complete."
                return IncompleteStream(message, detail=failure.detail)
            case "protocol" | "too_large" | "decoding":
                message = f"The backend {name!r} answered with something that is no valid HTTP response."
                return ProviderError(message, detail=failure.detail)
