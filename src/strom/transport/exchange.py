"""The answer to one request on a native connection: `Exchange` over an asyncio transport.

Order: start, write*, finish or abort; or respond alone. Head and first bytes leave in one write, every piece in one
write, last piece and end in one write. A call out of order raises RuntimeError; once the client has left, or after
`abort`, every call is a no-op. The connection is told exactly once that its response is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from strom.transport.heads import BODILESS_STATUSES, response_head
from strom.transport.types import Headers, Refusal, RequestHead

# How the next bytes are written. NEW: no head yet; DUE: head built, not sent; the rest say how a body is framed.
_NEW, _DUE, _CHUNKED, _PLAIN, _BODILESS, _DONE, _CLOSED = range(7)

_CHUNKED_LINES = b"transfer-encoding: chunked\r\nconnection: keep-alive\r\n"
_LARGE_BYTES = 65_536
"""From this size on a body is not copied behind its head; the loop sends both with one system call anyway."""


class ResponseOwner(Protocol):
    """The connection, as its exchange sees it."""

    transport: asyncio.Transport

    draining: bool
    """Whether the connection closes after the running response."""

    def response_done(self, exchange: NativeExchange, *, close: bool) -> None: ...

    def response_aborted(self, *, reset: bool) -> None: ...


class NativeExchange:
    """One request and its response. `paused` and `bytes_out` are kept current by connection and writes. What `start`
    sets is not there before it."""

    __slots__ = (
        "_framing", "_head", "_left", "_mode", "_owner", "_transport", "body", "bytes_out", "closed", "closes", "head",
        "on_disconnect", "on_pause", "on_resume", "paused", "refusal",
    )  # fmt: skip

    _head: bytes
    _framing: int
    _left: int
    """Bytes still promised by content-length; -1: none was told."""

    def __init__(
        self,
        owner: ResponseOwner,
        head: RequestHead,
        *,
        closes: bool,
        body: bytes = b"",
        refusal: Refusal | None = None,
    ) -> None:
        self._owner = owner
        self._transport = owner.transport
        self._mode = _NEW
        self.closes = closes
        """The connection serves no further request after this one."""
        self.head = head
        self.body = body
        self.refusal = refusal
        self.on_disconnect: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.closed = False
        self.paused = False
        self.bytes_out = 0

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        if self._mode != _NEW:
            self._out_of_order("start")
            return
        own, framing = self._own_lines(status, length)
        self._head = response_head(status, headers, own)
        self._framing = framing
        self._left = -1 if length is None or framing == _BODILESS else length
        self._mode = _DUE

    def write(self, data: bytes) -> None:
        if self._mode == _CHUNKED and data:
            self.bytes_out += len(data)
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._write_rare(data)

    def finish(self, data: bytes = b"") -> None:
        if self._mode == _CHUNKED:
            self.bytes_out += len(data)
            self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")
            self._end()
            return
        if self._mode in (_NEW, _DONE, _CLOSED):
            self._out_of_order("finish")
            return
        tail = b"0\r\n\r\n" if self._framing == _CHUNKED else b""
        self._send_framed(data, tail)
        if self._left > 0:
            self.abort()
        else:
            self._end()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        if self._mode != _NEW:
            self._out_of_order("respond")
            return
        own, framing = self._own_lines(status, len(body))
        head = response_head(status, headers, own)
        if framing == _BODILESS:
            body = b""
        self.bytes_out = size = len(body)
        if size < _LARGE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        self._end()

    def abort(self) -> None:
        if self._mode in (_DONE, _CLOSED):
            return
        # A body that ends by close is complete to its reader unless the connection is reset.
        reset = self._mode == _PLAIN and self._left < 0
        self._mode = _CLOSED
        self.closed = True
        self._drop_callbacks()
        self._owner.response_aborted(reset=reset)

    # -- called by the connection

    def client_left(self) -> None:
        """Marks the response as over and tells the user, once."""
        if self._mode in (_DONE, _CLOSED):
            return
        self._mode = _CLOSED
        self.closed = True
        callback = self.on_disconnect
        self._drop_callbacks()
        if callback is not None:
            callback()

    def writing_paused(self) -> None:
        self.paused = True
        if self.on_pause is not None:
            self.on_pause()

    def writing_resumed(self) -> None:
        self.paused = False
        if self.on_resume is not None:
            self.on_resume()

    # -- inside

    def _own_lines(self, status: int, length: int | None) -> tuple[bytes, int]:
        """The transport's header lines, and how the body is framed."""
        head = self.head
        if self.closes or self._owner.draining or head.http_version == "1.0" or head.method == "HEAD":
            return self._rare_lines(status, length)
        if status in BODILESS_STATUSES:
            return self._rare_lines(status, length)
        if length is None:
            return _CHUNKED_LINES, _CHUNKED
        return b"content-length: %d\r\n" % length, _PLAIN

    def _rare_lines(self, status: int, length: int | None) -> tuple[bytes, int]:
        """The same for every response there is."""
        old = self.head.http_version == "1.0"
        close = self.closes or self._owner.draining
        bodiless = status in BODILESS_STATUSES or self.head.method == "HEAD"
        if status in BODILESS_STATUSES:
            lines, framing = b"", _BODILESS
        elif length is not None:
            lines, framing = b"content-length: %d\r\n" % length, _PLAIN
        elif old:
            lines, framing, self.closes = b"", _PLAIN, self.closes or not bodiless
            close = close or self.closes
        else:
            lines, framing = b"transfer-encoding: chunked\r\n", _CHUNKED
        if close:
            lines += b"connection: close\r\n"
        elif old or length is None:
            lines += b"connection: keep-alive\r\n"
        return lines, _BODILESS if bodiless else framing

    def _write_rare(self, data: bytes) -> None:
        """Everything but a further piece of a chunked body."""
        if self._mode in (_NEW, _DONE, _CLOSED):
            self._out_of_order("write")
        elif data or self._mode == _DUE:
            self._send_framed(data, b"")

    def _send_framed(self, data: bytes, tail: bytes) -> None:
        """Sends the head if due, the data in its framing, and `tail`, in one write."""
        framing = self._framing
        if self._left >= 0:
            if len(data) > self._left:
                self.abort()
                raise ValueError("more body than the content-length told")
            self._left -= len(data)
        head, self._head = self._head, b""
        self._mode = framing
        if framing == _BODILESS:
            data = b""
        self.bytes_out += len(data)
        if framing == _CHUNKED and data:
            self._transport.write(b"%b%x\r\n%b\r\n%b" % (head, len(data), data, tail))
        elif head or data or tail:
            self._send_plain(head, data + tail if tail else data)

    def _send_plain(self, head: bytes, data: bytes) -> None:
        if len(data) >= _LARGE_BYTES:
            self._transport.writelines((head, data))
        else:
            self._transport.write(head + data)

    def _end(self) -> None:
        self._mode = _DONE
        self.on_disconnect = self.on_pause = self.on_resume = None
        self._owner.response_done(self, close=self.closes)

    def _drop_callbacks(self) -> None:
        self.on_disconnect = self.on_pause = self.on_resume = None

    def _out_of_order(self, call: str) -> None:
        if self._mode != _CLOSED:
            raise RuntimeError(f"{call} out of order")
