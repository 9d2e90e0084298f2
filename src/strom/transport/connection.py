"""One connection to an upstream and the request under way on it.

Invariants:

* The receiver hears of a response once: on_response, on_body*, then on_end or on_failure; after `abort` nothing.
* A connection goes back to the pool only after a complete message with keep-alive, nothing behind it and nothing of the
  request left to send. Aborted, cut and broken ones are closed.
* A request is sent a second time only if its connection was a reused one that ended before any byte of a response: then
  the upstream had closed it while idle. A fresh connection that ends so has failed.
* llhttp reads what has no plain form, and exists only then. A plain stream is read without it as long as every read is whole
  chunks; the first other one makes it, with the framing for a head, and it reads the rest of the message.
* Exceptions of a receiver are not caught here: they leave `data_received`, the loop reports them and closes the
  connection, and `connection_lost` finds in them the failure kind `protocol`.

Source: RFC 9112 sections 6.3 (message body length), 8 (incomplete messages) and 9.3 (persistence).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from strom.transport.decoding import CodingError, DecodingReceiver, content_coding
from strom.transport.heads import BODILESS_STATUSES
from strom.transport.types import NO_HEADERS, FailureKind, Headers, Origin, ResponseReceiver, TransportFailure
from strom.transport.whole import WholeResponse, streamed_response, whole_response

MAX_HEAD_BYTES = 65_536
_LARGE_BYTES = 65_536

# Where a connection stands. SENT: no byte of the response yet; HEAD: inside it, or between interim ones; DONE: the
# message is complete, the read it came with is not yet over.
_IDLE, _SENT, _HEAD, _BODY, _DONE, _CLOSED = range(6)


_MOST_EXPRESS = 2048


def _chunk_heads() -> list[bytes]:
    """By the length of a whole chunk, framing included: the one head that it can have (RFC 9112 section 7.1), as nearly
    everybody writes it; other spellings are left to llhttp. Of a length that no chunk has: what is longer than the data.
    """
    heads = [b" " * _MOST_EXPRESS] * _MOST_EXPRESS
    for length in range(1, _MOST_EXPRESS):
        head = b"%x\r\n" % length
        size = len(head) + length + 2
        if size < _MOST_EXPRESS:
            heads[size] = head
    return heads


_CHUNK_HEADS = _chunk_heads()
_LAST_CHUNK = b"0\r\n\r\n"


def _lone_chunk(data: bytes) -> bytes | None:
    """What the one chunk holds that `data` is; None: it is something else, or longer than what tokens come in."""
    size = len(data)
    if size < _MOST_EXPRESS:
        head = _CHUNK_HEADS[size]
        if data.startswith(head) and data.endswith(b"\r\n"):
            return data[len(head) : -2]
    return None


class _Nobody:
    """Receives what still comes out of the parser after a response is over."""

    __slots__ = ()

    def on_response(self, status: int, headers: Headers) -> None:
        pass

    def on_body(self, data: bytes) -> None:
        pass

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        pass

    def on_failure(self, failure: TransportFailure) -> None:
        pass


_NOBODY = _Nobody()


class _WithoutBody(_Nobody):
    """Stands before the receiver of a response that has no body whatever follows its head: it hears of the end alone."""

    __slots__ = ("_receiver",)

    def __init__(self, receiver: ResponseReceiver) -> None:
        self._receiver = receiver

    def on_end(self, *, delimited_by_close: bool) -> None:
        self._receiver.on_end(delimited_by_close=delimited_by_close)

    def on_failure(self, failure: TransportFailure) -> None:
        self._receiver.on_failure(failure)


class _Broken(Exception):
    """A response that cannot be accepted."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Owner(Protocol):
    """The client, as connections and requests see it."""

    def release(self, connection: UpstreamConnection) -> bool:
        """Takes back a connection that is whole; False: it is to be closed."""
        ...

    def send_again(self, call: NativeUpstreamExchange, origin: Origin) -> None:
        """Sends over a fresh connection."""
        ...


class NativeUpstreamExchange:
    """A request under way: connecting, or on a connection, or over (then `receiver` is None)."""

    __slots__ = (
        "body", "connect_timeout_s", "connecting", "connection", "decoder", "head", "method", "paused", "receiver",
    )  # fmt: skip

    def __init__(
        self, method: str, head: bytes, body: bytes, receiver: ResponseReceiver, connect_timeout_s: float = 0.0
    ) -> None:
        self.method = method
        self.head = head
        self.body = body
        """What is sent; both are dropped when the response begins."""
        self.receiver: ResponseReceiver | None = receiver
        self.connect_timeout_s = connect_timeout_s
        self.connecting: asyncio.Task[None] | None = None
        self.connection: UpstreamConnection | None = None
        self.decoder: DecodingReceiver | None = None
        self.paused = False

    def abort(self) -> None:
        self.receiver = None
        if self.decoder is not None:
            self.decoder.stop()
        if self.connecting is not None:
            self.connecting.cancel()
            self.connecting = None
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.drop()

    def pause_reading(self) -> None:
        if not self.paused:
            self.paused = True
            if self.connection is not None:
                self.connection.pause()
            if self.decoder is not None:
                self.decoder.pause()

    def express(self, take: Callable[[bytes], None]) -> None:
        if self.connection is not None and self.decoder is None:
            self.connection.express(take)

    def resume_reading(self) -> None:
        if self.paused:
            self.paused = False
            if self.connection is not None:
                self.connection.resume()
            if self.decoder is not None:
                self.decoder.resume()

    def fail(self, failure: TransportFailure) -> None:
        """Ends the request, closes its connection and tells the receiver, unless it is over already."""
        receiver = self.receiver
        self.abort()
        if receiver is not None:
            receiver.on_failure(failure)


class UpstreamConnection(asyncio.Protocol):
    """A connection to one origin, for one request after the other."""

    __slots__ = (
        "_by_close", "_call", "_express", "_extra", "_headers", "_interim", "_keep_alive", "_origin", "_owner", "_parser",
        "_phase", "_receiver", "_reused", "_taker", "_transport", "_unread_bytes", "idle_since", "loop", "shelf",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        origin: Origin,
        shelf: dict[UpstreamConnection, None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._owner = owner
        self.loop = loop
        """Where it lives, for an owner that keeps it while idle."""
        self._origin = origin
        self.shelf = shelf
        """Where it stands while idle."""
        self._parser: httptools.HttpResponseParser | None = None
        """None: what has come of this message is whole chunks, or nothing."""
        self._call: NativeUpstreamExchange | None = None
        self._receiver: ResponseReceiver = _NOBODY
        self._transport: asyncio.Transport | None = None
        self._headers = NO_HEADERS
        self._unread_bytes = 0
        """Bytes since the last piece of body: of a head, of trailers, of chunk extensions."""
        self._phase = _IDLE
        self._taker: Callable[[bytes], None] | None = None
        """Who takes whole chunks, and `_express` the same while no chunk is begun."""
        self._express: Callable[[bytes], None] | None = None
        self._by_close = self._extra = self._interim = self._keep_alive = self._reused = False
        self.idle_since = 0.0

    def is_whole(self) -> bool:
        return self._phase == _IDLE and self._transport is not None and not self._transport.is_closing()

    def begin(self, call: NativeUpstreamExchange, receiver: ResponseReceiver, *, reused: bool) -> None:
        """Sends a request; the response goes to `receiver`. What is known of the response before needs no reset: a
        connection that is used again has ended its message, with keep-alive, by its framing, with nothing behind."""
        transport = self._transport
        if transport is None:
            raise RuntimeError("not connected")
        self._call = call
        self._receiver = receiver
        call.connection = self
        self._reused = reused
        self._phase = _SENT
        if len(call.body) < _LARGE_BYTES:
            transport.write(call.head + call.body)
        else:
            transport.writelines((call.head, call.body))
        if call.paused:
            self.pause()

    def pause(self) -> None:
        transport = self._open_transport()
        if not transport.is_closing():
            transport.pause_reading()

    def resume(self) -> None:
        transport = self._open_transport()
        if not transport.is_closing():
            transport.resume_reading()

    def drop(self) -> None:
        """Closes at once, without a word to anybody."""
        self._phase = _CLOSED
        self._taker = self._express = None
        self._call = None
        self._receiver = _NOBODY
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._phase == _CLOSED:
            transport.close()

    def express(self, take: Callable[[bytes], None]) -> None:
        """Whole chunks go to `take`; nothing of them passes llhttp, which stands between two chunks all the while."""
        self._taker = take
        if self._parser is None:
            self._express = take

    def data_received(self, data: bytes) -> None:
        if self._express is not None:
            piece = _lone_chunk(data)
            if piece is not None:
                self._express(piece)
                return
        if self._parser is None and self._phase == _BODY:
            self._take_chunks(data)
        elif self._phase == _BODY or self._expects_head(data):
            self._parse(data)

    def _take_chunks(self, data: bytes) -> None:
        """A read of a stream that llhttp knows nothing of: one chunk, the end, or both."""
        ends = data.endswith(_LAST_CHUNK)
        rest = data[: -len(_LAST_CHUNK)] if ends else data
        piece = _lone_chunk(rest)
        if piece is None and (rest or not ends):
            self._reader().feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            self._parse(data)
            return
        if piece is not None:
            self._receiver.on_body(piece)
        if self._phase == _BODY:
            if ends:
                self._complete()
            else:
                self._receiver.on_read_end()

    def _reader(self) -> httptools.HttpResponseParser:
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        return self._parser

    def _parse(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        try:
            self._reader().feed_data(data)
        except httptools.HttpParserError as error:
            self._parse_failed(error)
            return
        if self._express is not None and not data.endswith(b"\r\n"):
            self._express = None  # a chunk's head has begun, of which llhttp has not told yet
        if self._unread_bytes > MAX_HEAD_BYTES and self._phase in (_HEAD, _BODY):
            self._fail("too_large", "response head, trailers or chunk extensions too large")
        elif self._phase == _BODY:
            self._receiver.on_read_end()
        elif self._phase == _DONE:
            self._complete()

    def eof_received(self) -> bool:
        self._peer_ended(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer_ended(exc)
        self._parser = None  # which holds this connection

    # -- httptools callbacks

    def on_message_begin(self) -> None:
        if self._phase == _DONE:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:
            self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        if self._phase != _HEAD:
            return
        status = self._reader().get_status_code()
        if status == 101:
            raise _Broken("protocol", "the upstream changed to a protocol nobody asked for")
        if status < 200:
            self._interim = True
            return
        call = self._call
        if call is None:
            return
        declared = self._judge_framing(status, call.method)
        self._phase = _BODY
        call.head = call.body = b""
        if declared and status not in BODILESS_STATUSES and call.method != "HEAD":
            self._decode(call, declared)
        self._receiver.on_response(status, self._headers)
        if call.method == "HEAD" and self._phase == _BODY:
            # llhttp waits for the body that the head describes; there is none, and what comes in its place is nobody's.
            self._phase = _DONE
            self._receiver = _WithoutBody(self._receiver)

    def on_body(self, data: bytes) -> None:
        if self._phase == _BODY:  # else of a response that nobody asked for, behind the one that is complete
            self._unread_bytes = 0
            self._receiver.on_body(data)

    def on_chunk_header(self) -> None:
        self._express = None

    def on_chunk_complete(self) -> None:
        self._express = self._taker

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self._headers = []
        elif self._phase == _BODY:
            self._phase = _DONE

    # -- the head of a response

    def _expects_head(self, data: bytes) -> bool:
        """Bytes came while no body is due. False: they are not for llhttp."""
        if self._phase == _SENT:
            call = self._call
            if call is not None and call.method != "HEAD":
                whole = whole_response(data)
                if whole is not None:
                    self._take_whole(call, whole)
                    return False
                streamed = streamed_response(data)
                if streamed is not None:
                    self._take_streamed(call, streamed)
                    return False
            self._phase = _HEAD
            self._headers = []
            self._unread_bytes = 0
            return True
        if self._phase == _IDLE:
            # An answer nobody asked for: who knows what the next one would belong to.
            self.shelf.pop(self, None)
            self.drop()
        return self._phase == _HEAD

    def _take_head(self, call: NativeUpstreamExchange, found: WholeResponse) -> None:
        self._phase = _BODY
        self._keep_alive = True
        self._unread_bytes = 0
        call.head = call.body = b""
        self._receiver.on_response(found[0], found[1])

    def _take_whole(self, call: NativeUpstreamExchange, whole: WholeResponse) -> None:
        """Tells of a response that llhttp never sees. The receiver may end the request at every step."""
        self._take_head(call, whole)
        self._receiver.on_body(whole[2])
        if self._phase == _BODY:
            self._complete()

    def _take_streamed(self, call: NativeUpstreamExchange, streamed: WholeResponse) -> None:
        """The same for a stream of which the head has come, maybe with the first chunks."""
        self._take_head(call, streamed)
        if self._phase != _BODY:
            return
        if streamed[2]:
            self._take_chunks(streamed[2])
        else:
            self._receiver.on_read_end()

    def _judge_framing(self, status: int, method: str) -> list[bytes]:
        """Finds how the body is framed, and which content codings are declared."""
        length = coding = None
        declared = []
        for name, value in self._headers:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                if coding is not None or value.lower() != b"chunked":
                    raise _Broken("protocol", "transfer coding other than chunked")
                coding = value
            elif name == b"content-encoding":
                declared.append(value)
        if self._unread_bytes > MAX_HEAD_BYTES and _size(self._headers) > MAX_HEAD_BYTES:
            raise _Broken("too_large", "response head too large")
        self._unread_bytes = 0
        bodiless = status in BODILESS_STATUSES or method == "HEAD"
        self._by_close = length is None and coding is None and not bodiless
        self._keep_alive = method != "HEAD" and self._reader().should_keep_alive()
        return declared

    def _decode(self, call: NativeUpstreamExchange, declared: list[bytes]) -> None:
        coding = content_coding(declared)
        if coding is not None:
            try:
                self._receiver = call.decoder = DecodingReceiver(coding, self._receiver, call)
            except CodingError as error:
                raise _Broken("decoding", str(error)) from None
            if call.paused:
                call.decoder.pause()

    # -- ends

    def _complete(self) -> None:
        """A whole message, and the read it came with is parsed."""
        call, receiver = self._detach()
        transport = self._transport
        if transport is None:
            raise RuntimeError("not connected")
        self._phase = _IDLE
        self._parser = None
        self._headers = NO_HEADERS
        whole = self._keep_alive and not self._extra and not self._by_close and not transport.is_closing()
        if whole and call is not None and call.paused:
            transport.resume_reading()
        # An upstream may answer before it has read the whole request: what is still unsent would go into the next one.
        if not whole or transport.get_write_buffer_size() or not self._owner.release(self):
            self.drop()
        receiver.on_end(delimited_by_close=False)

    def _parse_failed(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _Broken):
            self._fail(cause.kind, str(cause))
        elif cause is not None:
            raise cause
        elif self._phase == _DONE:
            self._extra = True
            self._complete()
        else:
            self._fail("protocol", f"no HTTP response: {error}")

    def _peer_ended(self, exc: Exception | None) -> None:
        phase = self._phase
        if phase == _CLOSED:
            return
        if phase == _IDLE:
            self.shelf.pop(self, None)
            self.drop()
        elif exc is not None and not isinstance(exc, OSError):
            self._fail("protocol", f"failed inside the receiver: {type(exc).__name__}")
        elif phase == _SENT:
            self._ended_unanswered(exc)
        elif phase == _BODY and self._by_close and exc is None:
            _, receiver = self._detach()
            self.drop()
            receiver.on_end(delimited_by_close=True)
        else:
            self._fail("cut", _reason(exc, "head" if phase == _HEAD else "body"))

    def _ended_unanswered(self, exc: Exception | None) -> None:
        call = self._call
        if self._reused and call is not None:
            call.connection = None
            self.drop()
            self._owner.send_again(call, self._origin)
        else:
            self._fail("closed_before_response", _reason(exc, "request"))

    def _fail(self, kind: FailureKind, detail: str) -> None:
        call, receiver = self._detach()
        self.drop()
        if call is not None:
            receiver.on_failure(TransportFailure(kind, detail, sent=True))

    def _detach(self) -> tuple[NativeUpstreamExchange | None, ResponseReceiver]:
        """Ends the tie between request and connection; the receiver (or its decoder) is still to be told."""
        call, receiver = self._call, self._receiver
        self._call = None
        self._receiver = _NOBODY
        self._taker = self._express = None
        if call is not None:
            call.connection = None
            if call.decoder is None:
                call.receiver = None
        return call, receiver

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise RuntimeError("not connected")
        return self._transport


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)


def _reason(exc: Exception | None, where: str) -> str:
    how = "closed" if exc is None else f"lost ({exc})"
    return f"connection {how} after the request" if where == "request" else f"connection {how} inside the {where}"
