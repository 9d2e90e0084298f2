"""One try at one upstream: transport callbacks in, progress of the call out.

What the upstream answers decides how it is read (`_Mode`): an event stream feeds the pipe; a whole body and an error body are
collected within a limit. Everything that one read brought leaves in one write (`on_read_end`). This is also the one place where
an exception nobody foresaw is caught: it fails this call and no other.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from strom.core.errors import InvalidStreamEvent, StromError
from strom.core.events import Event
from strom.core.evidence import Evidence
from strom.gateway.failures import explain, name_silence, redirected
from strom.gateway.queue import Place
from strom.gateway.responses import upstream_id
from strom.gateway.structured import AnswerCheck, CheckedDecoder
from strom.protocols.codec import Codec, Lone, StreamDecoder, ToolName
from strom.transport.types import NO_HEADERS, Headers, TransportFailure, UpstreamExchange
from strom.upstreams.timeouts import Timeouts

if TYPE_CHECKING:
    from strom.gateway.call import Call
    from strom.gateway.pipes import StreamPipe
    from strom.gateway.plan import Endpoint
    from strom.gateway.seam import Seam

LOG = logging.getLogger("strom.call")
MAX_ERROR_BYTES = 1_048_576
MAX_READ_BYTES = 1_048_576
"""What one read may bring before it is passed on in pieces: a compressed body can unfold to a thousand times its size."""


class _Mode(enum.Enum):
    WAITING = 0
    STREAM = 1
    WHOLE = 2
    ERROR = 3
    OVER = 4


_STREAM = _Mode.STREAM
_LONGEST_KIND_BYTES = 256
"""No more of a content type is looked at, and remembered."""
_NO_NAMES: dict[str, ToolName] = {}
"""Never written to."""


def _never(data: bytes) -> None:
    return None


class UpstreamAttempt:
    """A ResponseReceiver. `exchange` is set right after `send`; `over` once nothing more will be used of this attempt."""

    __slots__ = (
        "_again",
        "_body",
        "_body_size",
        "_call",
        "_feed",
        "_lone",
        "_mode",
        "_read",
        "asked_stream",
        "check",
        "codec",
        "dispatched",
        "ended",
        "endpoint",
        "evidence",
        "exchange",
        "inherited",
        "names",
        "pipe",
        "place",
        "refused_at",
        "relays",
        "response_at",
        "response_headers",
        "seam",
        "started_at",
        "status",
        "timeouts",
        "waits",
    )

    def __init__(self, call: Call, endpoint: Endpoint, codec: Codec, started_at: float, timeouts: Timeouts) -> None:
        self._call = call
        self._mode = _Mode.WAITING
        self._read = b""
        self._body: list[bytes] = []
        self._body_size = 0
        self._lone: Lone = _never
        self._again: Callable[[str], bytes] | None = None
        self.endpoint = endpoint
        self.codec = codec
        self.started_at = started_at
        self.timeouts = timeouts
        self.seam: Seam | None = None
        self.inherited = 0
        """Deltas that earlier upstreams of a continued answer gave."""
        self.response_at: float | None = None
        self.refused_at: float | None = None
        """When the head of an error came."""
        self.status = 0
        self.response_headers = NO_HEADERS
        self.exchange: UpstreamExchange | None = None
        self.place: Place | None = None
        """At an endpoint that serves only so many at once."""
        self.waits = False
        """Nothing is sent yet, for there is no place or it is not time; then `exchange` is what is waited for."""
        self.ended = False
        self.dispatched = False
        self.asked_stream = False
        self.names = _NO_NAMES
        self.relays = False
        """The answer can go to the client as it comes."""
        self.check: AnswerCheck | None = None
        self.pipe: StreamPipe | None = None
        """None while a whole reply is awaited."""
        self.evidence = Evidence()

    # -- ResponseReceiver --

    def on_response(self, status: int, headers: Headers) -> None:
        if self._mode is _Mode.OVER:
            return
        self.status = status
        self.response_at = self._call.now()
        self.response_headers = headers
        if not 200 <= status < 300:
            self._mode = _Mode.ERROR
            self.refused_at = self.response_at
            self._call.response_began()
        elif self._is_stream(headers):
            self._mode = _Mode.STREAM
            if self.pipe is None:
                self.use(self._call.make_fold(self))
                self._call.response_began()
        else:
            self._mode = _Mode.WHOLE

    def on_body(self, data: bytes) -> None:
        if self._mode is _STREAM:
            self._read = self._read + data if self._read else data
            if len(self._read) > MAX_READ_BYTES:
                self.on_read_end()
        elif self._mode is not _Mode.OVER:
            self._body_size += len(data)
            if self._body_size > self._body_limit():
                self.guarded(self._overflow)
            else:
                self._body.append(data)

    def on_read_end(self) -> None:
        read = self._read
        if read and self._mode is _STREAM:
            self._read = b""
            try:  # `guarded` and `_flush` written out: this runs for every read of every stream
                self._call.advance(self, self._feed(read))
            except Exception as error:  # noqa: BLE001
                self._call.crash(self, error)

    def take_piece(self, data: bytes) -> None:
        """`on_body` and `on_read_end` in one, and `Call.advance` with them: what happens for every token that flows."""
        call, evidence = self._call, self.evidence
        try:
            text = self._lone(data)
            if text is not None:
                evidence.deltas += 1
                evidence.output_characters += len(text)
                call.last_frame_at = call.last_write_at = call.time()
                again = self._again
                call.write(data if again is None else again(text))
            elif self._mode is _STREAM:
                call.seen_deltas = evidence.deltas
                call.advance(self, self._feed(data))
                self.look_ahead()
        except Exception as error:  # noqa: BLE001
            call.crash(self, error)

    def look_ahead(self) -> None:
        """Find the short way for the reads to come, if there is one."""
        pipe = self.pipe
        found = pipe.express() if pipe is not None and self._mode is _STREAM else None
        self._lone, self._again = found if found is not None else (_never, None)

    def on_end(self, *, delimited_by_close: bool) -> None:  # the protocol's own proof counts, not HTTP's
        self.ended = True
        self.exchange = None  # it refers to us: without this, only a collection would free the two
        self.guarded(self._finish)

    def on_failure(self, failure: TransportFailure) -> None:
        self.ended = True
        self.exchange = None
        if self._mode is not _Mode.OVER:
            self.guarded(lambda: self._break_off(failure))

    @property
    def call(self) -> Call:
        return self._call

    # -- for the call --

    def decoder(self) -> StreamDecoder:
        decoder = self.codec.decoder(self.endpoint.upstream.quirks)
        return decoder if self.check is None else CheckedDecoder(decoder, self.check)

    def decode_whole(self, body: bytes) -> list[Event]:
        events = self.codec.decode_reply(body, self.endpoint.upstream.quirks)
        return events if self.check is None else self.check.feed(events)

    def use(self, pipe: StreamPipe) -> None:
        self.pipe = pipe
        self.evidence = pipe.evidence
        self._feed = pipe.feed

    @property
    def shows_progress(self) -> bool:
        """Whether the upstream streams, or was asked to: then silence means something."""
        return self.asked_stream or self._mode is _Mode.STREAM

    @property
    def is_over(self) -> bool:
        return self._mode is _Mode.OVER

    def close(self) -> None:
        """Nothing more of this attempt is wanted: its connection is closed unless its body has ended."""
        self._mode = _Mode.OVER
        self._body.clear()
        exchange, self.exchange = self.exchange, None
        if not self.ended and exchange is not None:
            exchange.abort()

    def let_end(self) -> None:
        """The stream has proven its end; its body may end by itself, so that the connection can serve again."""
        self._mode = _Mode.OVER
        if not self.ended and self.exchange is not None:
            self.exchange.resume_reading()  # a slow client may have stopped it
            self._call.services.lingering.add(self.exchange)

    # -- inside --

    def guarded(self, step: Callable[[], None]) -> None:
        """A defect of ours ends this call, and no other."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the one place (see the module's head)
            self._call.crash(self, error)

    def _flush(self) -> None:
        read, self._read = self._read, b""
        self._call.advance(self, self._feed(read))

    def _finish(self) -> None:
        match self._mode:
            case _Mode.STREAM:
                self._finish_stream()
            case _Mode.WHOLE:
                self._mode = _Mode.OVER
                self._call.take_whole(self, b"".join(self._body))
            case _Mode.ERROR:
                self._call.attempt_failed(self, self.refusal())
            case _Mode.WAITING | _Mode.OVER:
                pass

    def _finish_stream(self) -> None:
        read, self._read = self._read, b""
        if self.pipe is not None:
            out = (self.pipe.feed(read) if read else b"") + self.pipe.finish()
            name_silence(self.evidence)
            self._call.advance(self, out)

    def _break_off(self, failure: TransportFailure) -> None:
        """What came before the failure is the client's."""
        if self._mode is _Mode.STREAM and self._read:
            self._flush()
        if not self.is_over:  # the last read may have held the proof
            name = self.endpoint.upstream.name
            LOG.info("call %s: backend %r: %s: %s", self._call.record.trace_id, name, failure.kind, failure.detail)
            self._call.attempt_failed(self, explain(name, failure))

    def _body_limit(self) -> int:
        return MAX_ERROR_BYTES if self._mode is _Mode.ERROR else self._call.services.settings.max_reply_bytes

    def _overflow(self) -> None:
        if self._mode is _Mode.ERROR:
            self._call.attempt_failed(self, self.refusal())
        else:
            limit = self._body_limit()
            self._call.attempt_failed(self, InvalidStreamEvent(f"The upstream's reply is longer than {limit} bytes."))

    def _is_stream(self, headers: Headers) -> bool:
        """By content type; one that says nothing of use is what was asked for."""
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        return _tells_stream(kind[:_LONGEST_KIND_BYTES], asked=self.asked_stream)

    def refusal(self) -> StromError:
        """What the error that the upstream answered with stands for, as far as its body has come."""
        if 300 <= self.status < 400:
            return redirected(self.endpoint.upstream.name, self.status)
        error = self.codec.decode_error(self.status, self.response_headers, b"".join(self._body))
        error.headers += upstream_id(self.response_headers)
        return error


@lru_cache(256)
def _tells_stream(content_type: bytes, *, asked: bool) -> bool:
    kind = content_type.lower()
    if b"event-stream" in kind or b"ndjson" in kind:
        return True
    return asked and b"json" not in kind and b"html" not in kind
