"""One connection of the replay server: whole requests in, scripts out, down to the bytes.

It stands beside `strom.transport`'s server on purpose: a backend that misbehaves has to write what no honest server
would. Invariants: one request is answered after the other; one task per answer, cancelled when the client leaves; no more is
written while the client does not read.

Source: RFC 9112 sections 6 and 7 (framing), 9.3 (persistence), 9.6 (tear-down).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, assert_never, cast

import httptools

from strom.replay.recording import Asked
from strom.replay.script import Pause, Script, Send, Stop, StopKind

MAX_BODY_BYTES = 67_108_864
MAX_HEAD_BYTES = 65_536
_BODILESS = frozenset({204, 304})
_RESET_DELAY_S = 0.02
"""Time for the peer to read what came before a reset: some systems drop unread bytes with it."""
_HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"
"""A fatal TLS alert. Source: RFC 8446 section 6.2."""


class Answerer(Protocol):
    """The server, as its connections see it."""

    def answer(self, asked: Asked) -> Script: ...

    def add(self, connection: ReplayConnection) -> None: ...

    def remove(self, connection: ReplayConnection) -> None: ...


class ReplayConnection(asyncio.Protocol):
    def __init__(self, server: Answerer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[Asked, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()
        self._head_bytes = 0

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError:
            self.cut()

    def eof_received(self) -> bool:
        """A client that will send nothing more has left, as everywhere in Strom."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        self._writable.set()
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        del self._parser  # which holds this connection

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- httptools

    def on_message_begin(self) -> None:
        self._target, self._headers, self._body, self._head_bytes = b"", [], bytearray(), 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        if ("expect", "100-continue") in [(name, value.lower()) for name, value in self._headers]:
            self._open_transport().write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            self.cut()

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        asked = Asked(method, self._target.decode("latin-1") or "/", tuple(self._headers), bytes(self._body))
        self._waiting.append((asked, self._parser.should_keep_alive()))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_all())

    # -- answering

    def cut(self) -> None:
        self._open_transport().abort()

    async def _answer_all(self) -> None:
        while self._waiting:
            asked, keep_alive = self._waiting.popleft()
            script = self._server.answer(asked)
            ended_well = await _Play(self._open_transport(), self._writable).play(script, asked, keep_alive=keep_alive)
            if not ended_well:
                return
        self._task = None

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            self.cut()

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise RuntimeError("not connected")
        return self._transport


class RefusedHandshake(asyncio.Protocol):
    """Answers the first bytes of a client as a server does that cannot agree on TLS with it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(_HANDSHAKE_FAILURE)
        self._transport.close()


class _Play:
    """Plays one script on a transport. Delays add up from the request on, so that waiting does not drift."""

    def __init__(self, transport: asyncio.Transport, writable: asyncio.Event) -> None:
        self._transport = transport
        self._writable = writable
        self._due = asyncio.get_running_loop().time()
        self._frame: Callable[[bytes], bytes] = bytes

    async def play(self, script: Script, asked: Asked, *, keep_alive: bool) -> bool:
        """Whether the connection may serve again."""
        lasts = keep_alive and script.framing != "close"
        await self._wait(script.head_delay_s)
        if script.status:
            self._transport.write(_head(script, lasts=lasts))
        bodiless = asked.method == "HEAD" or script.status in _BODILESS
        self._frame = _chunk if script.framing == "chunked" else bytes
        for step in script.steps:
            match step:
                case Send():
                    await self._send(step, silent=bodiless)
                case Pause(seconds):
                    await self._pause(seconds)
                case Stop(kind):
                    await self._stop(kind)
                    return False
                case _:
                    assert_never(step)
        if script.framing == "chunked" and not bodiless:
            self._transport.write(b"0\r\n\r\n")
        if not lasts:
            self._transport.close()
        return lasts

    async def _send(self, step: Send, *, silent: bool) -> None:
        await self._wait(step.delay_s)
        await self._writable.wait()
        if step.data and not silent:
            self._transport.write(self._frame(step.data))

    async def _wait(self, seconds: float) -> None:
        """Without a delay other connections still get their turn."""
        self._due += seconds
        await asyncio.sleep(max(0.0, self._due - asyncio.get_running_loop().time()))

    async def _pause(self, seconds: float | None) -> None:
        if seconds is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._wait(seconds)

    async def _stop(self, kind: StopKind) -> None:
        match kind:
            case "close":
                self._transport.close()
            case "half":
                with contextlib.suppress(OSError):
                    self._transport.write_eof()
            case "reset":
                await self._reset()
            case _:
                assert_never(kind)

    async def _reset(self) -> None:
        self._transport.set_write_buffer_limits(0)  # writable again means: all of it is with the system
        await self._writable.wait()
        await asyncio.sleep(_RESET_DELAY_S)
        raw = self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(script: Script, *, lasts: bool) -> bytes:
    try:
        phrase = HTTPStatus(script.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {script.status} {phrase}", *(f"{name}: {value}" for name, value in script.headers)]
    if script.status not in _BODILESS:
        match script.framing:
            case "chunked":
                lines.append("transfer-encoding: chunked")
            case "length":
                lines.append(f"content-length: {script.length}")
            case "close":
                pass
            case _:
                assert_never(script.framing)
    if not lasts:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
