"""The transport without a network: for tests of what stands on it.

`MemoryExchange` is a request whose response a test reads and whose client it plays; `MemoryClient` records what is sent
upstream and lets a test drive each response by hand, or plays scripted ones. Both keep the order of callbacks that
`types` promises, and raise AssertionError where their user breaks the order of calls. Nothing here reads a clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from strom.transport.types import (
    Headers,
    Origin,
    OutgoingRequest,
    Refusal,
    RequestHead,
    ResponseReceiver,
    TransportFailure,
)


class MemoryExchange:
    """A request and what was answered. `state`: new, started, finished, aborted or left (by the client)."""

    def __init__(
        self,
        method: str = "POST",
        path: str = "/",
        *,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        refusal: Refusal | None = None,
    ) -> None:
        path, _, query = path.partition("?")
        self.head = RequestHead(method, path, query, list(headers), "1.1", "127.0.0.1", dict(headers))
        self.body = body
        self.refusal = refusal
        self.on_disconnect: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.closed = False
        self.paused = False
        self.bytes_out = 0
        self.state = "new"
        self.status = 0
        self.headers: Headers = []
        self.length: int | None = None
        self.writes: list[bytes] = []
        """Each call of write and finish with its data, so that a test sees what left together."""

    @property
    def body_out(self) -> bytes:
        return b"".join(self.writes)

    def header_out(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    # -- Exchange

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        if self.closed:
            return
        assert self.state == "new", f"start after {self.state}"
        self.state, self.status, self.headers, self.length = "started", status, list(headers), length

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        assert self.state == "started", f"write while {self.state}"
        self.writes.append(data)
        self.bytes_out += len(data)

    def finish(self, data: bytes = b"") -> None:
        if self.closed:
            return
        self.write(data)
        self.state = "finished"
        self._drop_callbacks()

    def abort(self) -> None:
        if self.state in ("new", "started"):
            self.state, self.closed = "aborted", True
            self._drop_callbacks()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        self.start(status, headers, length=len(body))
        self.finish(body)

    # -- the client's side

    def disconnect(self) -> None:
        """The client leaves."""
        if self.state not in ("new", "started"):
            return
        self.state, self.closed = "left", True
        callback = self.on_disconnect
        self._drop_callbacks()
        if callback is not None:
            callback()

    def pause(self) -> None:
        """The client stops reading."""
        self.paused = True
        if self.on_pause is not None:
            self.on_pause()

    def resume(self) -> None:
        self.paused = False
        if self.on_resume is not None:
            self.on_resume()

    def _drop_callbacks(self) -> None:
        self.on_disconnect = self.on_pause = self.on_resume = None


class Script(msgspec.Struct, frozen=True):
    """One response: its head, its reads (each a tuple of pieces of body), and its end or failure. `status` 0: it fails
    before a head."""

    status: int = 200
    headers: Headers = msgspec.field(default_factory=list)
    reads: tuple[tuple[bytes, ...], ...] = ()
    delimited_by_close: bool = False
    failure: TransportFailure | None = None


class MemoryUpstream:
    """One request sent, to be answered by a test: `response`, `read`*, then `end` or `fail`. What is driven after an
    abort is not told, as from a socket."""

    def __init__(self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver) -> None:
        self.origin = origin
        self.request = request
        self.receiver = receiver
        self.aborted = False
        self.over = False
        self.paused = False
        self._steps: deque[Callable[[], None]] = deque()
        self._express: Callable[[bytes], None] | None = None

    # -- UpstreamExchange

    def express(self, take: Callable[[bytes], None]) -> None:
        self._express = take

    def abort(self) -> None:
        self.aborted = self.aborted or not self.over
        self.over = True
        self._steps.clear()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        was_paused, self.paused = self.paused, False
        if was_paused and self._steps:
            asyncio.get_running_loop().call_soon(self._play)

    # -- the upstream's side

    def response(self, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        if not self.over:
            self.receiver.on_response(status, list(headers))

    def read(self, *pieces: bytes) -> None:
        """One read from the socket that held these pieces of body."""
        if len(pieces) == 1 and self._express is not None and not self.over:
            self._express(pieces[0])
            return
        for piece in pieces:
            if not self.over:
                self.receiver.on_body(piece)
        if not self.over:
            self.receiver.on_read_end()

    def end(self, *pieces: bytes, delimited_by_close: bool = False) -> None:
        """The last read: pieces of body and the end."""
        for piece in pieces:
            if not self.over:
                self.receiver.on_body(piece)
        if not self.over:
            self.over = True
            self.receiver.on_end(delimited_by_close=delimited_by_close)

    def fail(self, failure: TransportFailure) -> None:
        if not self.over:
            self.over = True
            self.receiver.on_failure(failure)

    def play(self, script: Script) -> None:
        """Plays a script, one step per turn of the loop, and waits while paused."""
        if script.status:
            self._steps.append(lambda: self.response(script.status, script.headers))
        for pieces in script.reads:
            self._steps.append(lambda pieces=pieces: self.read(*pieces))  # type: ignore[misc]
        failure = script.failure
        if failure is not None:
            self._steps.append(lambda: self.fail(failure))
        else:
            self._steps.append(lambda: self.end(delimited_by_close=script.delimited_by_close))
        asyncio.get_running_loop().call_soon(self._play)

    def _play(self) -> None:
        if self.paused or not self._steps:
            return
        self._steps.popleft()()
        if self._steps:
            asyncio.get_running_loop().call_soon(self._play)


class MemoryClient:
    """Implements `UpstreamClient`. Requests beyond the scripts wait for the test to drive them through `sent`."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts: deque[Script] = deque(scripts)
        self.sent: list[MemoryUpstream] = []
        self.closed = False

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> MemoryUpstream:
        assert not self.closed, "send after close"
        assert connect_timeout_s > 0
        upstream = MemoryUpstream(origin, request, receiver)
        self.sent.append(upstream)
        if self.scripts:
            upstream.play(self.scripts.popleft())
        return upstream

    def close(self) -> None:
        self.closed = True

    def stats(self) -> dict[str, Any]:
        return {"sent": len(self.sent), "open": sum(not upstream.over for upstream in self.sent)}
