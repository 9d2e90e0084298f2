"""Streams that go on after their connection broke, through a gateway that keeps them (`resume=True`).

    send ──▶ answer with x-strom-stream-id ──▶ frames … cut ──pause──▶ GET /v1/streams/{id}, Last-Event-ID ──▶ frames … end

It stands between a stream and its transport, as one more `UpstreamClient`: what reads the answer sees one body without a break,
and without the numbers of its frames. Only whole frames pass, each once and in order; a gap is an error. A gateway that gives
no id (or a backend that is none) is read as without. Attempts that bring nothing are bounded; then the first failure is told.
Leaving early cancels the stream at the gateway, which would otherwise wait for somebody to come back.
Source: docs/how-to/resumable-streams.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from strom.client.network import client_for
from strom.core.errors import InvalidStreamEvent
from strom.transport.types import (
    Headers,
    Origin,
    OutgoingRequest,
    ResponseReceiver,
    TransportFailure,
    UpstreamClient,
    UpstreamExchange,
)
from strom.wire.ndjson import NdjsonParser
from strom.wire.sse import SseParser

MAX_ATTEMPTS = 7
"""In a row, without a frame that came."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 3.0
NOT_KEPT = "resume: the backend gave no x-strom-stream-id"
_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")
_OF_THE_CALL = frozenset((b"content-type", b"accept", b"x-strom-resumable"))
_MAX_FRAME_BYTES = 268_435_456


class Resuming:
    """What is known of a run's resumptions. `count`: how often its streams went on after a break."""

    def __init__(self) -> None:
        self.count = 0
        self.kept = True
        """False: an answer came that cannot be resumed."""

    @property
    def told(self) -> int | None:
        return self.count if self.kept else None

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.kept else (NOT_KEPT,)

    def over(self, transport: UpstreamClient | None) -> UpstreamClient:
        return ResumingClient(self, transport)


class ResumingClient:
    """`transport` None: the pool of the loop on which `send` is called."""

    def __init__(self, state: Resuming, transport: UpstreamClient | None) -> None:
        self._state = state
        self._transport = transport

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        client = self._transport or client_for(asyncio.get_running_loop())

        def ask(asked: OutgoingRequest, hearer: ResponseReceiver) -> UpstreamExchange:
            return client.send(origin, asked, hearer, connect_timeout_s=connect_timeout_s)

        exchange = _Exchange(self._state, request, receiver, ask)
        exchange.begin()
        return exchange

    def close(self) -> None:
        """The pool is not its own."""

    def stats(self) -> dict[str, Any]:
        return {}


class _Frames(Protocol):
    """Bytes of a kept stream → the bytes of its whole frames, without their numbers. `last`: the number of the last one."""

    last: int

    def feed(self, data: bytes) -> bytes:
        """Raises InvalidStreamEvent for a gap."""
        ...

    def end(self) -> bytes: ...

    def restart(self) -> None:
        """What stands of a frame that is not whole will come again."""
        ...


class _Events:
    def __init__(self) -> None:
        self.last = 0
        self.restart()

    def restart(self) -> None:
        self._parser = SseParser(_MAX_FRAME_BYTES)

    def feed(self, data: bytes) -> bytes:
        return b"".join([self._take(frame.raw) for frame in self._parser.feed(data)])

    def end(self) -> bytes:
        return self._take(self._parser.pending)

    def _take(self, raw: bytes) -> bytes:
        if not raw.startswith(b"id: "):
            return raw
        line, _, rest = raw.partition(b"\n")
        number = line[4:].strip()
        if not number.isdigit():
            return raw
        if int(number) <= self.last:
            return b""
        if int(number) > self.last + 1:
            raise InvalidStreamEvent(f"Frame {self.last + 1} of a resumed stream is missing.")
        self.last += 1
        return rest


class _Lines:
    def __init__(self) -> None:
        self.last = 0
        self.restart()

    def restart(self) -> None:
        self._parser = NdjsonParser(_MAX_FRAME_BYTES)

    def feed(self, data: bytes) -> bytes:
        lines = self._parser.feed(data)
        self.last += len(lines)
        return b"".join(lines)

    def end(self) -> bytes:
        return self._parser.pending


class _Exchange:
    """An UpstreamExchange for the stream, and the ResponseReceiver of every request that it takes."""

    def __init__(
        self,
        state: Resuming,
        request: OutgoingRequest,
        receiver: ResponseReceiver,
        ask: Callable[[OutgoingRequest, ResponseReceiver], UpstreamExchange],
    ) -> None:
        self._state = state
        self._request = request
        self._receiver = receiver
        self._ask = ask
        self._inner: UpstreamExchange | None = None
        self._frames: _Frames | None = None
        """None: nothing that could be resumed has come."""
        self._path = ""
        self._failure: TransportFailure | None = None
        """The first one of a break; None: nothing is broken."""
        self._status = 0
        self._attempts = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._over = False

    def begin(self) -> None:
        request = self._request
        headers = [*request.headers, (b"x-strom-resumable", b"1")]
        self._inner = self._ask(OutgoingRequest(request.method, request.target, headers, request.body), self)

    # -- UpstreamExchange --

    def abort(self) -> None:
        if self._over:
            return
        self._finish()
        if self._inner is not None:
            self._inner.abort()
        if self._frames is not None:
            self._ask(self._below("DELETE"), _Nobody())

    def express(self, take: Callable[[bytes], None]) -> None:
        """Frames have numbers to be taken off first."""

    def pause_reading(self) -> None:
        self._paused = True
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._inner is not None:
            self._inner.resume_reading()

    # -- ResponseReceiver --

    def on_response(self, status: int, headers: Headers) -> None:
        self._status = status
        if self._failure is not None:
            if status == 200:
                self._failure = None
                self._state.count += 1
            return
        found = dict(headers)
        if status == 200:
            self._begin_frames(found.get(b"x-strom-stream-id", b""), found.get(b"content-type", b""))
        self._receiver.on_response(status, headers)

    def on_body(self, data: bytes) -> None:
        if self._failure is not None or self._over:
            return  # the words of a refusal
        if self._frames is None:
            self._receiver.on_body(data)
            return
        try:
            self._pass_on(self._frames.feed(data))
        except InvalidStreamEvent as error:
            self._finish()
            if self._inner is not None:
                self._inner.abort()
            self._receiver.on_failure(TransportFailure("protocol", error.message, sent=True))

    def on_read_end(self) -> None:
        if self._failure is None and not self._over:
            self._receiver.on_read_end()

    def on_end(self, *, delimited_by_close: bool) -> None:
        if self._over:
            return
        if self._failure is not None:
            self._refused()
        elif self._frames is not None and delimited_by_close:
            self._break(TransportFailure("cut", "the connection ended", sent=True))  # which proves no end of a body
        else:
            if self._frames is not None:
                self._pass_on(self._frames.end())
            self._finish()
            self._receiver.on_end(delimited_by_close=delimited_by_close)

    def on_failure(self, failure: TransportFailure) -> None:
        if self._over:
            return
        if self._frames is None:
            self._finish()
            self._receiver.on_failure(failure)
        else:
            self._break(failure)

    # -- inside --

    def _begin_frames(self, stream_id: bytes, content_type: bytes) -> None:
        target = self._request.target.partition("?")[0]
        suffix = next((path for path in _PATHS if target.endswith(path)), None)
        if stream_id and suffix is not None:
            self._path = f"{target.removesuffix(suffix)}/v1/streams/{stream_id.decode('latin-1')}"
            self._frames = _Lines() if b"ndjson" in content_type else _Events()
        else:
            self._state.kept = False

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._attempts = 0
            self._receiver.on_body(data)

    def _break(self, failure: TransportFailure) -> None:
        """Again, after a pause."""
        assert self._frames is not None
        self._receiver.on_read_end()
        self._inner = None
        if self._failure is None:
            self._failure = failure
        if self._attempts >= MAX_ATTEMPTS:
            self._give_up(f"{self._attempts} attempts to resume brought nothing")
            return
        self._frames.restart()
        pause_s = min(FIRST_PAUSE_S * 2**self._attempts, LONGEST_PAUSE_S)
        self._attempts += 1
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        if not self._over:
            self._inner = self._ask(self._below("GET"), self)
            if self._paused:
                self._inner.pause_reading()

    def _refused(self) -> None:
        """An answer that is not the stream: for now, or for good."""
        failure = self._failure
        assert failure is not None
        if self._status >= 500 or self._status == 429:
            self._break(failure)
        else:
            self._give_up(f"resuming was refused with HTTP {self._status}")

    def _give_up(self, why: str) -> None:
        failure = self._failure
        assert failure is not None
        self._finish()
        detail = f"{failure.detail}; {why}"
        self._receiver.on_failure(TransportFailure(failure.kind, detail, sent=failure.sent))

    def _finish(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _below(self, method: str) -> OutgoingRequest:
        headers = [field for field in self._request.headers if field[0] not in _OF_THE_CALL]
        if method == "GET" and self._frames is not None:
            headers.append((b"last-event-id", b"%d" % self._frames.last))
        return OutgoingRequest(method, self._path, headers)


class _Nobody:
    """Takes an answer that does not matter."""

    def on_response(self, status: int, headers: Headers) -> None: ...

    def on_body(self, data: bytes) -> None: ...

    def on_read_end(self) -> None: ...

    def on_end(self, *, delimited_by_close: bool) -> None: ...

    def on_failure(self, failure: TransportFailure) -> None: ...
