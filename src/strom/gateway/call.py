"""The life of one call, from a decoded request to its record.

    dispatch ──▶ hold ──first token, or end──▶ committed ──end──▶ settled
       ▲          │ refused, failed, timed out: next endpoint
       └──────────┘

Invariants: the response head is sent with the first token-bearing frame, with the end, or when a heartbeat is due; before
that a failure is another attempt or a real status, after it an in-band error. Nothing is replayed after output. Every
path ends in `_settle`, exactly once: the upstream is closed, the timer is gone, the record is put. A second attempt finds
the client's stream as the client sees it: with a new encoder, which has written no more than the heartbeats that were sent.
Rules: streams.md sections 2, 7, 8, 9.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from strom.core.errors import Cancelled, GatewayError, ShuttingDown, StromError, TimedOut
from strom.core.evidence import Evidence
from strom.core.fold import fold
from strom.core.messages import Request
from strom.core.record import Attempt
from strom.core.tool_names import ToolNameFilter
from strom.gateway.accounts import (
    UsageEstimate,
    demands_usage,
    describe_attempt,
    describe_endpoint,
    fill_record,
    milliseconds,
    status_of,
)
from strom.gateway.attempt import UpstreamAttempt
from strom.gateway.block import encode_block
from strom.gateway.echoes import without_echoes
from strom.gateway.failures import attribute
from strom.gateway.media import wants_data
from strom.gateway.opening import Opening
from strom.gateway.outgoing import Incoming, build_outgoing
from strom.gateway.pipes import FoldPipe, StreamPipe, TranscodePipe
from strom.gateway.replying import make_context
from strom.gateway.responses import respond_error, stream_headers, upstream_id, whole_headers
from strom.gateway.services import Services
from strom.protocols.codec import Codec, StreamEncoder
from strom.transport.types import Exchange, Headers

LOG = logging.getLogger("strom.call")
MAX_HELD_FRAMES = 64
MAX_HELD_BYTES = 262_144
PAUSED_TICK_S = 1.0
LONGEST_PAUSE_S = 1800.0
"""A client that has read nothing for so long is not slow but gone, however its connection looks."""
REFUSAL_BODY_S = 10.0
"""How long an upstream may take to send the body of an error whose status is known already."""
KEEP_ALIVES = (b":", b"event: ping", b"event: keepalive")
"""How a read begins that brings nothing but a sign of life."""


class Call:
    """Created for an admitted request; `start` begins it. `codec`: the protocol of the client."""

    __slots__ = (
        "_attempt",
        "_beats",
        "_codecs",
        "_committed",
        "_dispatched_at",
        "_dropped",
        "_encoder",
        "_error",
        "_exchange",
        "_first_token_at",
        "_flowing",
        "_held",
        "_held_size",
        "_incoming",
        "_last_frame_at",
        "_last_write_at",
        "_measured_at",
        "_next_endpoint",
        "_output_sent",
        "_past",
        "_paused_at",
        "_plan",
        "_seen_deltas",
        "_settings",
        "_settled",
        "_time",
        "_timer",
        "_timer_at",
        "codec",
        "context",
        "input_estimate",
        "record",
        "request",
        "services",
    )

    def __init__(self, services: Services, codecs: dict[str, Codec], exchange: Exchange, opening: Opening) -> None:
        self.services = services
        self._settings = services.settings  # a reload binds later calls
        self._incoming = opening.incoming
        self.codec = opening.incoming.codec
        self.request = opening.incoming.request
        self.record = opening.record
        self.input_estimate = opening.input_estimate
        self._codecs = codecs
        self._exchange = exchange
        self._plan = opening.plan
        self._next_endpoint = 0
        self._attempt: UpstreamAttempt | None = None
        self._past: list[Attempt] = []
        self._dropped: tuple[str, ...] = ()
        self._encoder: StreamEncoder | None = None
        self._committed = False
        self._output_sent = False
        self._flowing = False
        self._time = services.clock.time
        self._settled = False
        self._error: StromError | None = None
        self._beats = 0  # heartbeats that the encoder wrote
        self._measured_at: float | None = None
        self._paused_at: float | None = None
        self._held: list[bytes] = []
        self._held_size = 0
        self._seen_deltas = 0
        self._dispatched_at: float | None = None
        self._first_token_at: float | None = None
        self._last_frame_at = 0.0
        self._last_write_at = services.clock.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.context = make_context(services, opening.incoming, self.record, self.input_estimate)
        self.context.block = self._block

    def now(self) -> float:
        return self.services.clock.time()

    # -- beginning, and beginning again --

    def start(self) -> None:
        exchange = self._exchange
        exchange.on_disconnect = self._client_left
        exchange.on_pause = self._client_slow
        exchange.on_resume = self._client_ready
        if exchange.closed:
            self._client_left()
            return
        self.services.running.add(self)
        self._dispatch()

    def stop(self) -> None:
        """The process ends before the call does: the client is told, and the record does not blame it."""
        if not self._settled:
            if self._attempt is not None:
                self._attempt.close()
            self._fail(ShuttingDown("The gateway was shut down before the answer was complete."))

    def _dispatch(self) -> None:
        """Try the next endpoint. Ends in a request under way, or in `attempt_failed`."""
        endpoint = self._plan.endpoints[self._next_endpoint]
        self._next_endpoint += 1
        protocol = endpoint.upstream.protocol
        codec = self.codec if self.codec.name == protocol else self._codecs[protocol]
        attempt = self._attempt = UpstreamAttempt(self, endpoint, codec, self.now())
        attempt.guarded(lambda: self._send(attempt))

    def _send(self, attempt: UpstreamAttempt) -> None:
        endpoint, settings = attempt.endpoint, self._settings
        try:
            if wants_data(self._incoming.request, endpoint.upstream, settings.fetch_media):
                self._fetch_media(attempt)
                return
            outgoing = build_outgoing(self._incoming, endpoint, attempt.codec, settings.structured_fallback)
        except StromError as error:
            self._next_or_fail(attempt, error, another_may_do=True)
            return
        self._dropped = outgoing.call.dropped
        attempt.asked_stream = outgoing.asked_stream
        attempt.relays = outgoing.relays
        attempt.check = outgoing.check
        attempt.names = outgoing.call.tool_names
        if self.request.stream:
            attempt.use(self._make_pipe(attempt))
        if self._dispatched_at is None:
            self._dispatched_at = attempt.started_at
        attempt.exchange = self.services.client.send(
            endpoint.upstream.origin,
            outgoing.request,
            attempt,
            connect_timeout_s=endpoint.upstream.timeouts.connect_s,
        )
        if self._exchange.paused:
            attempt.exchange.pause_reading()
        self._arm()

    def _fetch_media(self, attempt: UpstreamAttempt) -> None:
        """Then send. Nothing is dispatched before: the time it takes is not the backend's."""

        def fetched(result: Request | StromError) -> None:
            attempt.exchange = None
            if attempt.is_over:
                return
            if isinstance(result, StromError):
                self._next_or_fail(attempt, result, another_may_do=False)
                return
            self._incoming = msgspec.structs.replace(self._incoming, request=result, filled=True)
            attempt.started_at = self.now()
            self._send(attempt)

        limits = self._settings.fetch_media
        assert limits is not None
        attempt.exchange = self.services.media.start(
            self._incoming.request, limits, lambda result: attempt.guarded(lambda: fetched(result))
        )
        self._arm()

    def _make_pipe(self, attempt: UpstreamAttempt) -> StreamPipe:
        opened = self._encoder is not None  # by a heartbeat: a relay would open the stream a second time
        if attempt.relays and not opened:
            return attempt.codec.relay(self.context, attempt.endpoint.upstream.quirks)
        return TranscodePipe(attempt.decoder(), self._shared_encoder(), attempt.names)

    def make_fold(self, attempt: UpstreamAttempt) -> FoldPipe:
        """For a client that wants a whole reply."""
        return FoldPipe(attempt.decoder(), attempt.names)

    def _shared_encoder(self) -> StreamEncoder:
        if self._encoder is None:
            self._encoder = self.codec.encoder(self.context)
        return self._encoder

    def _renew_encoder(self) -> None:
        """What the failed attempt left in the encoder (a begun message, an open block), no client has seen; its heartbeats
        were seen, and the new one has to know of them."""
        self._encoder = None
        for _ in range(self._beats):
            self._shared_encoder().heartbeat()

    # -- progress, told by the attempt --

    def advance(self, attempt: UpstreamAttempt, out: bytes) -> None:
        """One read of a stream has passed the pipe: `out` is for the client."""
        evidence = attempt.evidence
        deltas = evidence.deltas
        if out and self._flowing and deltas != self._seen_deltas and not evidence.complete and evidence.error is None:
            self._seen_deltas = deltas  # what nearly every read is: tokens on the way to a client that has the head
            self._last_frame_at = self._last_write_at = self._time()
            self._exchange.write(out)
        else:
            self._advance_with_care(attempt, out)

    def _advance_with_care(self, attempt: UpstreamAttempt, out: bytes) -> None:
        evidence = attempt.evidence
        now = self._time()
        if evidence.deltas != self._seen_deltas:
            self._seen_deltas = evidence.deltas
            self._last_frame_at = now
            if self._first_token_at is None:
                self._first_token_at = now
                self._arm()
        elif out and attempt.codec.name != "ollama" and not out.startswith(KEEP_ALIVES):
            self._last_frame_at = now  # keep-alives are no sign of progress, and Ollama's look like any other line
        if evidence.complete or evidence.error is not None:
            self._end(attempt, out)
        elif not self.request.stream or not out:
            return
        elif self._committed:
            self._output_sent = True
            self._last_write_at = now
            if self._first_token_at is not None and not self._flowing:
                self._let_flow()
            self._exchange.write(out)
        else:
            self._hold(attempt, out)

    def _let_flow(self) -> None:
        """Tokens are on their way: there will be no other attempt, so the request's bytes are of no more use."""
        self._flowing = True
        self._incoming = Incoming(self.codec, self.request, b"", [])
        self._exchange.body = b""

    def take_whole(self, attempt: UpstreamAttempt, body: bytes) -> None:
        """A whole reply has come, whatever was asked for."""
        quirks = attempt.endpoint.upstream.quirks
        evidence = attempt.evidence
        if attempt.relays and not self.request.stream:
            reply = self.codec.relay_whole(body, self.context, quirks, evidence)
            self._take_reply(attempt, reply)
            return
        events = attempt.decode_whole(body)
        if self.request.stream:
            pipe = TranscodePipe(attempt.decoder(), self._shared_encoder(), attempt.names)
            attempt.use(pipe)
            self.advance(attempt, pipe.pass_on(events))
            return
        if attempt.names:
            events = ToolNameFilter(attempt.names).feed(events)
        evidence.observe(events)
        failed = evidence.error is not None
        self._take_reply(attempt, b"" if failed else self.codec.encode_reply(fold(events), self.context))

    def _take_reply(self, attempt: UpstreamAttempt, reply: bytes) -> None:
        evidence = attempt.evidence
        if evidence.deltas and self._first_token_at is None:
            self._first_token_at = self.now()
        if evidence.error is not None:
            self.attempt_failed(attempt, evidence.error)
        else:
            self._respond(attempt, reply)

    def attempt_failed(self, attempt: UpstreamAttempt, error: StromError) -> None:
        """The attempt is over without success: the next endpoint, a status, or an in-band error."""
        self._next_or_fail(attempt, error, another_may_do=error.retryable)

    def crash(self, attempt: UpstreamAttempt, error: Exception) -> None:
        """A defect of ours: this call fails, with the trace in the log and none of it at the client."""
        LOG.error("call %s failed by a defect", self.record.trace_id, exc_info=error)
        for each in (attempt, self._attempt):
            if each is not None:
                each.close()
        if self._settled:
            return
        failure = GatewayError("The gateway failed while it handled this call.", detail=repr(error)[:200])
        try:
            self._fail(failure)
        except Exception:
            LOG.exception("call %s cannot tell its error either", self.record.trace_id)
            self._exchange.abort()
            self._settle(failure)

    def response_began(self) -> None:
        """An upstream answered with something that has a shorter time than what was awaited."""
        if not self._settled:
            self._arm()

    # -- ends --

    def _end(self, attempt: UpstreamAttempt, out: bytes) -> None:
        """The pipe has seen a terminal event."""
        evidence = attempt.evidence
        if evidence.error is not None:
            if out and self._committed:
                self._exchange.write(out)
                self._output_sent = True
            elif out:
                self._held.append(out)
            self.attempt_failed(attempt, evidence.error)
            return
        attempt.let_end()
        if isinstance(attempt.pipe, FoldPipe):
            self._respond(attempt, self.codec.encode_reply(attempt.pipe.fold.reply(), self.context))
            return
        self._commit(attempt)
        self._exchange.finish(self._take_held() + out)
        self._settle(None)

    def _respond(self, attempt: UpstreamAttempt, body: bytes) -> None:
        headers = whole_headers(self.codec, self.record.trace_id) + self._passed_headers(attempt)
        self.record.http_status = 200
        self._exchange.respond(200, headers, body)
        self._settle(None)

    def _next_or_fail(self, attempt: UpstreamAttempt, error: StromError, *, another_may_do: bool) -> None:
        attempt.close()
        if self._settled:
            return
        attribute(error, attempt.endpoint.upstream)
        untouched = not self._output_sent and self._first_token_at is None
        if another_may_do and untouched and self._next_endpoint < len(self._plan.endpoints):
            self._past.append(describe_attempt(attempt, error, self.now()))
            self._held.clear()
            self._held_size = self._seen_deltas = 0
            self._renew_encoder()
            self._dispatch()
            return
        self._fail(error)

    def _fail(self, error: StromError) -> None:
        self._error = error
        attempt = self._attempt
        # A token and the error may have come in one read: the text is evidence the client may see.
        if attempt is not None and (self._committed or (self.request.stream and self._first_token_at is not None)):
            self._commit(attempt)
            pipe = attempt.pipe if attempt.pipe is not None else self._shared_encoder()
            self._exchange.finish(self._take_held() + pipe.fail(error))
        else:
            self.record.http_status = respond_error(self._exchange, self.codec, error, self.record.trace_id)
        self._settle(error)

    def _client_left(self) -> None:
        if self._settled:
            return
        if self._attempt is not None:
            self._attempt.close()
        self._settle(Cancelled("The client left."))

    def _settle(self, error: StromError | None) -> None:
        """Once per call: what was really produced is recorded, nothing stays behind."""
        if self._settled:
            return
        self._settled = True
        self.services.running.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._exchange.on_disconnect = self._exchange.on_pause = self._exchange.on_resume = None
        if error is not None or self._measured_at is None:
            self._fill(error)  # else the block has been written: record and block are the same
        self.record.ended_at = self.services.wall()
        self.record.bytes_out = self._exchange.bytes_out
        if isinstance(error, Cancelled):
            self.record.http_status = error.status
        self.services.records.put(self.record)
        self._attempt = self._error = (
            None  # no reference cycle outlives the call: memory goes at once, without a collection
        )
        self.context.block = _no_block

    # -- the response head --

    def _hold(self, attempt: UpstreamAttempt, out: bytes) -> None:
        """Keep frames back until one bears a token, so that an upstream that then refuses still gives a real status."""
        self._held.append(out)
        self._held_size += len(out)
        if self._first_token_at is None and len(self._held) <= MAX_HELD_FRAMES and self._held_size <= MAX_HELD_BYTES:
            return
        self._commit(attempt)
        self._send_held()

    def _commit(self, attempt: UpstreamAttempt | None) -> None:
        if self._committed:
            return
        self._committed = True
        self.record.http_status = 200
        passed = self._passed_headers(attempt) if attempt is not None else []
        self._exchange.start(200, stream_headers(self.codec, self.record.trace_id) + passed)

    def _send_held(self) -> None:
        if self._held:
            self._output_sent = True
            self._last_write_at = self.now()
            self._exchange.write(self._take_held())

    def _take_held(self) -> bytes:
        held = b"".join(self._held)
        self._held.clear()
        return held

    def _passed_headers(self, attempt: UpstreamAttempt) -> Headers:
        """The upstream's id of the request; rate-limit headers of an upstream that speaks the client's protocol."""
        passed = upstream_id(attempt.response_headers)
        if attempt.codec is not self.codec:
            return passed
        prefixes = self.codec.forward_response_headers
        return passed + [field for field in attempt.response_headers if field[0].startswith(prefixes)]

    # -- clocks --

    def _arm(self) -> None:
        """Make sure the timer goes off at the next deadline or before it. It is moved only when it would come too late."""
        due = (
            self.now() + PAUSED_TICK_S
            if self._exchange.paused
            else min(self._upstream_deadline(), self._heartbeat_due())
        )
        if self._timer is None or due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.services.clock.call_at(due, self._tick)

    def _upstream_deadline(self) -> float:
        attempt = self._attempt
        assert attempt is not None
        timeouts = attempt.endpoint.upstream.timeouts
        if attempt.refused_at is not None:
            return attempt.refused_at + REFUSAL_BODY_S
        if not attempt.shows_progress:
            return attempt.started_at + timeouts.first_token_s * self._settings.whole_reply_factor
        if self._first_token_at is None:
            return attempt.started_at + timeouts.first_token_s
        return self._last_frame_at + timeouts.idle_s

    def _heartbeat_due(self) -> float:
        if not self.request.stream:
            return float("inf")
        return self._last_write_at + self._settings.heartbeat_s

    def _tick(self) -> None:
        self._timer = None
        if self._attempt is not None:
            self._attempt.guarded(self._strike)

    def _strike(self) -> None:
        now = self.now()
        if self._exchange.paused:  # the client is slow, not the upstream: its clock stands still
            self._last_frame_at = self._last_write_at = now
            if self._paused_at is not None and now - self._paused_at > LONGEST_PAUSE_S:
                self._client_left()
                self._exchange.abort()
        elif self._upstream_deadline() <= now:
            self._time_out()
        elif self._heartbeat_due() <= now:
            self._beat()
        if not self._settled and self._timer is None:
            self._arm()

    def _time_out(self) -> None:
        attempt = self._attempt
        assert attempt is not None
        name, timeouts = attempt.endpoint.upstream.name, attempt.endpoint.upstream.timeouts
        if attempt.refused_at is not None:
            self.attempt_failed(attempt, attempt.refusal())
            return
        if self._first_token_at is not None:
            message = f"The backend {name!r} was silent for {timeouts.idle_s:g} s in the middle of its answer."
        elif attempt.shows_progress:
            message = f"The backend {name!r} gave no token within {timeouts.first_token_s:g} s."
        else:
            limit = timeouts.first_token_s * self._settings.whole_reply_factor
            message = (
                f"The backend {name!r} gave no reply within {limit:g} s; a streamed request shows progress sooner."
            )
        self.attempt_failed(attempt, TimedOut(message))

    def _beat(self) -> None:
        attempt = self._attempt
        assert attempt is not None
        self._commit(attempt)
        self._send_held()
        self._last_write_at = self.now()
        if attempt.pipe is not None:
            self._beats += self._encoder is not None
            self._exchange.write(attempt.pipe.heartbeat())

    # -- backpressure --

    def _client_slow(self) -> None:
        self._paused_at = self.now()
        if self._attempt is not None and self._attempt.exchange is not None:
            self._attempt.exchange.pause_reading()

    def _client_ready(self) -> None:
        self._last_frame_at = self._last_write_at = self.now()
        if self._attempt is not None and self._attempt.exchange is not None:
            self._attempt.exchange.resume_reading()

    # -- the record --

    def _block(self) -> bytes | None:
        """What it says is final: the record keeps the same times."""
        if self._settings.block_name is None:
            return None
        self._measured_at = self.now()
        self._fill(self._error)
        return encode_block(self.record)

    def _fill(self, error: StromError | None) -> None:
        """Bring the record up to date. Called before the block is written and once more when the call settles."""
        attempt, record = self._attempt, self.record
        now = self._measured_at if self._measured_at is not None else self.now()
        evidence = attempt.evidence if attempt is not None else Evidence()
        record.status = status_of(evidence, error, dispatched=self._dispatched_at is not None)
        fill_record(record, self._estimate(evidence, error), evidence, error)
        if record.error is not None:
            record.error.message = without_echoes(record.error.message, self.request)
        record.dropped = [*self._dropped, *evidence.notes, *evidence.lost_to(self.codec.name)]
        record.attempts = list(self._past)
        if attempt is not None:
            describe_endpoint(record, attempt, self._plan)
            record.attempts.append(describe_attempt(attempt, error, now))
        if self._dispatched_at is None or attempt is None:
            return
        if self._first_token_at is None and evidence.first_token_kind is not None:
            self._first_token_at = now  # the first token came in the read that is being passed on
        timing = record.timing
        timing.first_token_kind = evidence.first_token_kind
        timing.time_to_first_token_ms = milliseconds(self._dispatched_at, self._first_token_at)
        timing.request_duration_ms = milliseconds(self._dispatched_at, now)
        timing.upstream_response_ms = milliseconds(attempt.started_at, attempt.response_at)

    def _estimate(self, evidence: Evidence, error: StromError | None) -> UsageEstimate:
        """A call that failed before its first token used nothing that anybody knows of, whatever the protocol demands."""
        if error is not None:
            in_band = self._committed and self.codec.name == "openai-responses"  # its error event has a usage object
            demanded = evidence.deltas > 0 or in_band
        else:
            demanded = demands_usage(self.codec.name, self.request)
        return UsageEstimate(self.input_estimate, demanded=demanded)


def _no_block() -> bytes | None:
    return None
