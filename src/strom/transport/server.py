"""One HTTP/1.1 client connection: bytes in, complete requests to the handler, one answer at a time.

llhttp frames the bytes; `requests.judge` says what is accepted; `NativeExchange` writes. A plain request that comes whole
in one read between two others is read by `whole` instead; llhttp never hears of it, nor exists before it is needed.
Invariants:

* Requests are answered strictly in order. Reading goes on while one is answered, because only reading shows that the
  client left; what it pipelines meanwhile is parsed and queued, and reading pauses beyond `max_pipelined_bytes`.
* An end of input counts as the client's leaving, also a half-closed one (as in nginx): nobody who shuts down his sending
  side early can be told apart from one who is gone, and a model should not compute for the latter.
* After a refusal, or a request without keep-alive, further input is discarded. A refused client may still be sending:
  the connection then lingers, reading and dropping a bounded amount for a bounded time, so that the answer is not lost
  to a reset.
* While the client leaves more of the last answer unread than the high-water mark, no further request is handed over:
  who pipelines and does not read cannot make answers pile up. He has `slow_reader_s`, and longer only while he reads on;
  so has whoever does not read an answer under way, before he counts as gone.
* A body has to come without long silence and, on the whole, at a minimum rate; all bodies together are bounded.
* One timer per connection, re-armed only when it fires: it waits for the head, the next piece of a body, the next
  request, the end of lingering, or a reader; never for the handler.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Protocol, cast

import httptools

from strom.transport.exchange import NativeExchange
from strom.transport.intake import Intake
from strom.transport.requests import Refused, RequestPlan, bad_request, judge, split_target
from strom.transport.timers import Clock, Handle
from strom.transport.types import NO_HEADERS, Handler, RequestHead, ServerLimits
from strom.transport.whole import is_roomy, whole_request

_LINGER_S = 5.0
_LINGER_BYTES = 67_108_864
_FLUSH_S = 30.0
"""How long a closing connection may take to hand its last bytes to the client; as long again while enough of them go."""
_MIN_FLUSHED_BYTES = 15_000
_CHUNK_OVERHEAD_BYTES = 65_536
_CHUNK_OVERHEAD_FACTOR = 8
"""Framing (sizes, extensions, trailers) a chunked body may have: a fixed part and a part per byte of body. One-byte
chunks take 5 bytes of framing per byte."""
_MAX_TRAILERS = 64
_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TURNED_AWAY_S = 1.0
_FULL = b"""\
HTTP/1.1 503 Service Unavailable\r
content-type: application/json\r
retry-after: 1\r
content-length: 94\r
connection: close\r
\r
{"error":{"message":"Too many connections: try again in a moment.","type":"overloaded_error"}}"""

# What the next byte belongs to.
_IDLE, _HEAD, _BODY = range(3)


class Roster(Protocol):
    """Knows the open connections: each is added when made and removed when lost."""

    intake: Intake

    def add(self, connection: ServerConnection) -> bool:
        """False: there are too many; the connection is to be turned away."""
        ...

    def remove(self, connection: ServerConnection) -> None: ...


class ServerConnection(asyncio.Protocol):
    """A client's connection, from accepted to lost."""

    __slots__ = (
        "_advancing", "_backlog", "_begun", "_body", "_body_since", "_clock", "_current", "_deadline", "_deaf",
        "_discarded", "_expected", "_fires_at", "_handler", "_head_bytes", "_headers", "_held_bytes", "_incoming",
        "_limits", "_parser", "_paused", "_phase", "_plan", "_quick", "_raw_bytes", "_reading_paused", "_ready", "_roster",
        "_skip_head", "_target", "_timer", "_trailers", "_unsent_bytes", "draining", "peer", "transport",
    )  # fmt: skip

    def __init__(self, handler: Handler, limits: ServerLimits, roster: Roster, clock: Clock) -> None:
        self._handler = handler
        self._limits = limits
        self._roster = roster
        self._clock = clock
        self._parser: httptools.HttpRequestParser | None = None
        self._quick = is_roomy(limits)
        self.peer = ""
        self._current: NativeExchange | None = None
        self._ready: list[NativeExchange] | None = None
        self._incoming: NativeExchange | None = None
        self._plan: RequestPlan | None = None
        self._phase = _IDLE
        self._target = b""
        self._headers = NO_HEADERS
        self._body: bytearray | None = None
        self._head_bytes = self._raw_bytes = self._trailers = 0
        self._backlog = self._discarded = 0
        self._begun = self._deaf = self.draining = self._expected = False
        self._paused = self._reading_paused = self._advancing = self._skip_head = False
        self._timer: Handle | None = None
        self._deadline = self._fires_at = self._body_since = _NEVER
        self._held_bytes = self._unsent_bytes = 0

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.transport.set_write_buffer_limits(high=self._limits.write_high_water_bytes)
        if self._roster.add(self):
            self._wait(self._limits.head_timeout_s)
            return
        self._deaf = True
        if not self.transport.is_closing():
            self.transport.write(_FULL)
            self._linger(_TURNED_AWAY_S)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._discard(len(data))
            return
        size = len(data)
        if self._quick and self._phase == _IDLE and self._current is None and not (self._head_bytes or self._paused):
            whole = whole_request(data, self.peer)
            if whole is not None:
                self._hand_over(NativeExchange(self, whole[0], closes=False, body=whole[1]))
                return
        if self._phase == _BODY:
            self._raw_bytes += size
            self._feed(data)
        else:
            self._head_bytes += size
            if self._head_bytes <= self._limits.max_head_bytes:
                self._feed(data)
            else:
                self._feed_long(data)
        if self._current is None and not self._paused:
            self._advance()
        else:
            self._hold_back(size)

    def eof_received(self) -> bool:
        if self._current is not None:
            self._client_left()
            self.transport.abort()
        else:
            self._close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._roster.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._client_left()
        self._parser = None  # which holds this connection

    def pause_writing(self) -> None:
        self._paused = True
        if self._current is not None:
            self._current.writing_paused()
        if self._current is not None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._wait(self._limits.slow_reader_s)

    def resume_writing(self) -> None:
        self._paused = False
        if self._current is not None:
            self._deadline = _NEVER
            self._current.writing_resumed()
        elif self._ready is not None or not self._deaf:
            self._deadline = _NEVER
            self._advance()

    # -- ResponseOwner

    def response_done(self, exchange: NativeExchange, *, close: bool) -> None:
        self._current = None
        if exchange.refusal is not None:
            self._linger()
        elif close or self.draining:
            self._close()
        elif self._paused:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._wait(self._limits.slow_reader_s)
        elif self._ready is None and self._phase == _IDLE and not self._backlog:
            # Nothing else came meanwhile, so that there is nothing to hand over or to resume but patience.
            self._begun = False
            self._wait(self._limits.keep_alive_s)
        else:
            self._advance()

    def response_aborted(self, *, reset: bool) -> None:
        self._current = None
        if reset:
            raw = self.transport.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    # -- for the listener

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._current is not None

    def drain(self) -> None:
        """Takes no further request: closes now if idle, else after the running one."""
        self.draining = True
        if self._current is None and self._phase == _IDLE and not self._deaf:
            self._close()

    def cut(self) -> None:
        self.transport.abort()

    # -- httptools callbacks

    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._target = b""
        self._headers = []
        self._trailers = 0
        self._begun = True

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self._limits.max_target_bytes and not self._skip_head:
            raise Refused(414, "head_too_large", "request target too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:
            self._headers.append((name.lower(), value.strip(b" \t")))
            return
        # A trailer: counted and dropped, since nothing in a request's trailers is of use here.
        self._trailers += 1
        if self._trailers > _MAX_TRAILERS:
            raise bad_request("too many trailers")

    def on_headers_complete(self) -> None:
        self._raw_bytes = self._head_bytes = 0
        if self._skip_head:
            self._skip_head = False
            self._phase = _BODY
            return
        parser = self._reader()
        method = parser.get_method().decode()
        version = parser.get_http_version()
        if len(self._headers) > self._limits.max_header_count:
            raise Refused(431, "head_too_large", "too many header fields")
        self._plan = plan = judge(method, self._target, version, self._headers)
        head = RequestHead(method, plan.path, plan.query, self._headers, version, self.peer, dict(self._headers))
        self._incoming = NativeExchange(self, head, closes=not parser.should_keep_alive())
        self._expected = plan.expects_continue
        self._phase = _BODY
        self._body_since = _NEVER
        if plan.content_length is not None and plan.content_length > self._limits.max_body_bytes:
            raise self._too_large()
        if self._has_body() and not self._roster.intake.admits():
            raise _overloaded()

    def on_body(self, data: bytes) -> None:
        if self._body is None:
            self._body = bytearray(data)
        else:
            self._body += data
        if len(self._body) > self._limits.max_body_bytes:
            raise self._too_large()
        if not self._roster.intake.take(len(data)):
            raise _overloaded()
        self._held_bytes += len(data)

    def on_message_complete(self) -> None:
        incoming = self._incoming
        if incoming is None or (self._reader().should_upgrade() and self._has_body()):
            return
        if self._body is not None:
            incoming.body = bytes(self._body)
        self._let_go()
        self._phase = _IDLE
        self._queue(incoming)

    # -- reading

    def _reader(self) -> httptools.HttpRequestParser:
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        return self._parser

    def _feed_long(self, data: bytes) -> None:
        """Feeds as much as a head may have; if it is complete then, the rest follows."""
        room = len(data) - (self._head_bytes - self._limits.max_head_bytes)
        self._feed(data[:room])
        if self._head_bytes > self._limits.max_head_bytes:
            self._refuse(Refused(431, "head_too_large", "request head too large"))
        else:
            self._raw_bytes += len(data) - room
            self._feed(data[room:])

    def _feed(self, data: bytes) -> None:
        if self._deaf:
            return
        rest: bytes | None = None
        try:
            self._reader().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._refuse_broken(error)
        if rest is not None:  # out of the handler: what is broken in the rest has a cause of its own, or none
            self._ignore_upgrade(rest)

    def _refuse_broken(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refused):
            self._refuse(cause)
        elif cause is not None:
            raise cause
        elif str(error) in ("Invalid HTTP version", "Pause on PRI/Upgrade"):
            self._refuse(Refused(505, "version_not_supported", str(error)))
        else:
            self._refuse(bad_request(str(error)))

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Goes on as if the request had not asked for another protocol. llhttp takes it to end at its head, so its body,
        if it has one, is framed by a second parser that is given the framing and not the rest of the head."""
        if self._incoming is not None and self._plan is not None:
            length = (
                b"transfer-encoding: chunked"
                if self._plan.chunked
                else b"content-length: %d" % (self._plan.content_length or 0)
            )
            headers, target = self._headers, self._target
            self._parser = None
            self._skip_head = True
            self._reader().feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % length)
            self._headers, self._target = headers, target
            self._raw_bytes = len(rest)
        if rest:
            self._feed(rest)

    def _has_body(self) -> bool:
        return self._plan is not None and (self._plan.chunked or bool(self._plan.content_length))

    def _hold_back(self, size: int) -> None:
        """Bytes came while a request is being answered: pipelined ones, to be bounded."""
        self._backlog += size
        if self._backlog > self._limits.max_pipelined_bytes and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _LINGER_BYTES:
            self.transport.abort()

    # -- requests to the handler

    def _queue(self, exchange: NativeExchange) -> None:
        if self._ready is None:
            self._ready = [exchange]
        else:
            self._ready.append(exchange)
        if exchange.closes:
            self._deaf = True

    def _advance(self) -> None:
        """Hands requests over while none is being answered."""
        if self._advancing:
            return
        self._advancing = True
        while self._ready and self._current is None and not self._paused:
            self._hand_over(self._ready.pop(0))
        self._advancing = False
        if not self._ready:
            self._ready = None
        if self._current is None and not self._deaf and not self._paused:
            self._resume_input()

    def _hand_over(self, exchange: NativeExchange) -> None:
        self._current = exchange
        exchange.paused = self._paused
        self._deadline = _NEVER
        self._handler(exchange)

    def _resume_input(self) -> None:
        """Nothing is being answered: what was held back because of pipelining may come, and patience with the client
        begins."""
        self._backlog = 0
        if self._reading_paused and not self.transport.is_closing():
            self._reading_paused = False
            self.transport.resume_reading()
        limits = self._limits
        if self._phase == _BODY:
            self._want_body()
        elif self._deadline == _NEVER or (self._begun and self._phase == _HEAD):
            self._begun = False
            self._wait(limits.keep_alive_s if self._phase == _IDLE else limits.head_timeout_s)

    def _want_body(self) -> None:
        body_bytes = len(self._body) if self._body is not None else 0
        if self._raw_bytes > _CHUNK_OVERHEAD_BYTES + (_CHUNK_OVERHEAD_FACTOR + 1) * body_bytes:
            self._refuse(bad_request("more chunk framing than body"))
            self._advance()
            return
        if self._expected:
            self._expected = False
            if not body_bytes and not self._raw_bytes:
                self.transport.write(_CONTINUE)
        now, patience_s = self._clock.time(), self._limits.body_timeout_s
        if self._body_since == _NEVER:
            self._body_since = now
        at_least_s = self._body_since + patience_s + body_bytes / self._limits.min_body_bytes_per_s - now
        self._wait(min(patience_s, at_least_s))

    def _too_large(self) -> Refused:
        return Refused(413, "body_too_large", f"request body over {self._limits.max_body_bytes} bytes")

    def _refuse(self, refused: Refused) -> None:
        """Queues the request in progress, as far as it is known, with its refusal; no further one is read. What comes
        after a request with `connection: close` is no request."""
        if self._deaf:
            return
        incoming = self._incoming
        head = incoming.head if incoming is not None else self._known_head()
        self._let_go()
        self._phase = _IDLE
        self._queue(NativeExchange(self, head, closes=True, refusal=refused.refusal))

    def _let_go(self) -> None:
        """Of the request that is being received: it is complete, or nothing will come of it."""
        self._body = self._incoming = self._plan = None
        if self._held_bytes:
            self._roster.intake.give_back(self._held_bytes)
            self._held_bytes = 0

    def _known_head(self) -> RequestHead:
        method, path, query = "GET", "/", ""
        if self._phase == _HEAD and self._target:
            method = self._reader().get_method().decode()
            try:
                path, query = split_target(self._target)
            except Refused:
                path = "/"
        headers = self._headers if self._phase == _HEAD else []
        return RequestHead(method, path, query, headers, "1.1", self.peer, dict(headers))

    # -- leaving

    def _client_left(self) -> None:
        current, self._current = self._current, None
        self._ready = None
        self._let_go()
        self._deaf = True
        if current is not None:
            current.client_left()

    def _linger(self, seconds: float = _LINGER_S) -> None:
        self._discarded = 0
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._wait(seconds)

    def _close(self) -> None:
        self._deaf = True
        self._ready = None
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self.transport.close()
        self._wait(_FLUSH_S)

    # -- time

    def _wait(self, seconds: float) -> None:
        """Sets the time of patience from now on. A timer that fires too early re-arms itself, so that a connection that
        serves one request after the other touches no timer."""
        self._deadline = self._clock.time() + seconds
        if self._timer is None or self._fires_at > self._deadline:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = self._deadline
        self._timer = self._clock.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._clock.time() < self._deadline:
            if self._deadline != _NEVER:
                self._arm()
        elif self._phase == _IDLE or self._deaf or self._paused:
            if self._is_read():
                self._wait(_FLUSH_S)
            else:
                self.transport.abort()
        else:
            self._refuse(Refused(408, "timeout", "request not received in time"))
            self._advance()

    def _is_read(self) -> bool:
        """Whether the client took, since the last look, enough of what is still unsent."""
        before, self._unsent_bytes = self._unsent_bytes, self.transport.get_write_buffer_size()
        return 0 < self._unsent_bytes <= before - _MIN_FLUSHED_BYTES


def _overloaded() -> Refused:
    return Refused(503, "overloaded", "too much is being received at once")
