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

import logging

import msgspec

from strom.core.errors import Cancelled, GatewayError, ShuttingDown, StromError, let_go
from strom.core.fold import fold
from strom.core.messages import Request
from strom.core.record import Attempt
from strom.core.tool_names import ToolNameFilter
from strom.gateway.accounts import describe_attempt, milliseconds
from strom.gateway.attempt import UpstreamAttempt
from strom.gateway.block import encode_block
from strom.gateway.clocks import departure, expired, is_unread, upstream_deadline
from strom.gateway.continuation import StoryPipe, go_on, make_story, may_continue
from strom.gateway.failures import attribute
from strom.gateway.filling import bring_up_to_date
from strom.gateway.hops import FIRST, Hop, following, next_hop
from strom.gateway.media import wants_data
from strom.gateway.opening import Opening
from strom.gateway.outgoing import Incoming, build_outgoing
from strom.gateway.pipes import FoldPipe, StreamPipe, TranscodePipe
from strom.gateway.replying import make_context
from strom.gateway.responses import passed_headers, respond_error, stream_headers, whole_headers
from strom.gateway.services import Services
from strom.gateway.waiting import COMMENTED, must_queue, rest, waiting_beat
from strom.protocols.codec import Codec, StreamEncoder, no_block
from strom.transport.timers import Handle
from strom.transport.types import Exchange
from strom.upstreams.timeouts import HEADER as WISHES_HEADER
from strom.upstreams.timeouts import parse_wishes

LOG = logging.getLogger("strom.call")
MAX_HELD_FRAMES = 64
MAX_HELD_BYTES = 262_144
PAUSED_TICK_S = 1.0
KEEP_ALIVES = (b":", b"event: ping", b"event: keepalive")
"""How a read begins that brings nothing but a sign of life."""


class Call:
    """Created for an admitted request; `start` begins it. `codec`: the protocol of the client."""

    __slots__ = (
        "_beats",
        "_codecs",
        "_encoder",
        "_error",
        "_flowing",
        "_grant",
        "_held",
        "_held_frames",
        "_hop",
        "_measured_at",
        "_output_sent",
        "_own_headers",
        "_settled",
        "_timer",
        "_timer_at",
        "_wishes",
        "attempt",
        "codec",
        "committed",
        "context",
        "dispatched_at",
        "dropped",
        "exchange",
        "first_token_at",
        "incoming",
        "input_estimate",
        "last_frame_at",
        "last_write_at",
        "past",
        "paused_at",
        "plan",
        "record",
        "request",
        "seen_deltas",
        "services",
        "settings",
        "story",
        "time",
        "window_at",
        "window_chars",
        "write",
    )

    def __init__(self, services: Services, codecs: dict[str, Codec], exchange: Exchange, opening: Opening) -> None:
        self.services = services
        self.settings = services.settings  # a reload binds later calls
        self.incoming = opening.incoming
        self.codec = opening.incoming.codec
        self.request = opening.incoming.request
        self.record = opening.record
        self.input_estimate = opening.input_estimate
        self._codecs = codecs
        self.exchange = exchange
        self.plan = opening.plan
        self._grant = opening.grant
        self._own_headers = opening.grant.headers if opening.grant is not None else []
        wishes = exchange.head.header_all(WISHES_HEADER)
        self._wishes = parse_wishes(b",".join(wishes)) if wishes else None
        self.story = make_story(self.request) if opening.plan.continuation else None
        self._hop = FIRST
        self.attempt: UpstreamAttempt | None = None
        self.past: tuple[Attempt, ...] = ()
        self.dropped: tuple[str, ...] = ()
        self._encoder: StreamEncoder | None = None
        self.committed = False
        self._output_sent = False
        self._flowing = False
        self.time = services.clock.time
        self.write = exchange.write
        self._settled = False
        self._error: StromError | None = None
        self._beats = self._held_frames = self.seen_deltas = 0  # beats: heartbeats that the encoder wrote
        self._measured_at: float | None = None
        self.paused_at: float | None = None
        self._held = b""
        self.dispatched_at: float | None = None
        self.first_token_at: float | None = None
        self.last_frame_at = self.window_at = 0.0
        self.window_chars = 0  # from this count on, since window_at, the throughput is watched
        self.last_write_at = services.clock.time()
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self.context = make_context(services, opening.incoming, self.record, self.input_estimate)
        self.context.block = self._block

    def now(self) -> float:
        return self.services.clock.time()

    # -- beginning, and beginning again --

    def start(self) -> None:
        exchange = self.exchange
        exchange.on_disconnect = self._client_left
        exchange.on_pause = self._client_slow
        exchange.on_resume = self._client_ready
        if exchange.closed:
            self._client_left()
            return
        self.services.running.add(self)
        self._dispatch(FIRST)

    def stop(self, error: StromError | None = None) -> None:
        """End it with an error that the client is told. None: the process ends before the call does, which blames nobody."""
        if not self._settled:
            if self.attempt is not None:
                self.attempt.close()
            self._fail(error or ShuttingDown("The gateway was shut down before the answer was complete."))

    def _dispatch(self, hop: Hop) -> None:
        """Ends in a request under way, in one that waits, or in `attempt_failed`."""
        self._hop = hop
        endpoint = self.plan.endpoints[hop.at]
        protocol = endpoint.upstream.protocol
        codec = self.codec if self.codec.name == protocol else self._codecs[protocol]
        timeouts = endpoint.timeouts if self._wishes is None else self._wishes.tightening(endpoint.timeouts)
        attempt = self.attempt = UpstreamAttempt(self, endpoint, codec, self.now(), timeouts)
        if hop.delay_s:
            rest(self, attempt, hop.delay_s)
        attempt.guarded(lambda: self._send(attempt))

    def wake(self, attempt: UpstreamAttempt, error: StromError | None) -> None:
        """What the attempt waited for is there, or will not come."""
        attempt.exchange, attempt.waits = None, False
        if attempt.is_over:
            return
        if error is not None:
            self.attempt_failed(attempt, error)
            return
        attempt.started_at = self.now()
        self._send(attempt)

    def _send(self, attempt: UpstreamAttempt) -> None:
        endpoint, settings = attempt.endpoint, self.settings
        try:
            self.plan.check(endpoint)
            if wants_data(self.incoming.request, endpoint.upstream, settings.fetch_media):
                self._fetch_media(attempt)
                return
            if attempt.waits or must_queue(self, attempt):
                self._arm()
                return
            incoming = self.incoming
            if self.record.continued and self.story is not None:
                incoming, attempt.seam = go_on(incoming, self.story, endpoint.upstream.quirks)
            outgoing = build_outgoing(incoming, endpoint, attempt.codec, settings.structured_fallback)
        except StromError as error:
            self._next_or_fail(attempt, error, another_may_do=True)
            return
        self.dropped = outgoing.call.dropped
        attempt.asked_stream = outgoing.asked_stream
        attempt.relays = outgoing.relays
        attempt.check = outgoing.check
        attempt.names = outgoing.call.tool_names or attempt.names
        if self.request.stream:
            attempt.use(self._make_pipe(attempt))
        if self.dispatched_at is None:
            self.dispatched_at = attempt.started_at
            self.services.begin(self.record)
        attempt.dispatched = True
        self.services.health.began(endpoint)
        attempt.exchange = self.services.client.send(
            endpoint.upstream.origin,
            outgoing.request,
            attempt,
            connect_timeout_s=attempt.timeouts.connect_s,
        )
        if self.request.stream:  # it may be open for long; what another attempt needs of its head is in `incoming`
            self.exchange.head = self.exchange.head.bare()
        if self.exchange.paused:
            attempt.exchange.pause_reading()
        self._arm()

    def _fetch_media(self, attempt: UpstreamAttempt) -> None:
        """Then send. Nothing is dispatched before: the time it takes is not the backend's."""

        def fetched(result: Request | StromError) -> None:
            if isinstance(result, Request) and not attempt.is_over:
                self.incoming = msgspec.structs.replace(self.incoming, request=result, filled=True)
            self.wake(attempt, result if isinstance(result, StromError) else None)

        limits = self.settings.fetch_media
        assert limits is not None
        attempt.exchange = self.services.media.start(
            self.incoming.request, limits, lambda result: attempt.guarded(lambda: fetched(result))
        )
        self._arm()

    def _make_pipe(self, attempt: UpstreamAttempt) -> StreamPipe:
        opened = self._encoder is not None  # by a heartbeat: a relay would open the stream a second time
        if attempt.relays and not opened and self.story is None:
            return attempt.codec.relay(self.context, attempt.endpoint.upstream.quirks)
        return self._translation(attempt)

    def _translation(self, attempt: UpstreamAttempt) -> TranscodePipe:
        if self.story is None:
            return TranscodePipe(attempt.decoder(), self._shared_encoder(), attempt.names)
        attempt.inherited = self.story.evidence.deltas
        return StoryPipe(self.story, attempt.decoder(), self._shared_encoder(), attempt.names, attempt.seam)

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
        if out and self._flowing and deltas != self.seen_deltas and not evidence.complete and evidence.error is None:
            self.seen_deltas = deltas  # what nearly every read is: tokens on the way to a client that has the head
            self.last_frame_at = self.last_write_at = self.time()
            self.exchange.write(out)
        else:
            self._advance_with_care(attempt, out)

    def _advance_with_care(self, attempt: UpstreamAttempt, out: bytes) -> None:
        evidence = attempt.evidence
        now = self.time()
        if evidence.deltas != self.seen_deltas:
            self.seen_deltas = evidence.deltas
            self.last_frame_at = now
            if self.first_token_at is None:
                self.first_token_at = self.window_at = now
                self._arm()
        elif out and attempt.codec.name != "ollama" and not out.startswith(KEEP_ALIVES):
            self.last_frame_at = now  # keep-alives are no sign of progress, and Ollama's look like any other line
        if evidence.complete or evidence.error is not None:
            self._end(attempt, out)
        elif not self.request.stream or not out:
            return
        elif self.committed:
            self._output_sent = True
            self.last_write_at = now
            if self.first_token_at is not None and not self._flowing:
                self._let_flow()
            self.exchange.write(out)
        else:
            self._hold(attempt, out)

    def _let_flow(self) -> None:
        """Tokens are on their way: there will be no other attempt, so the request's bytes are of no more use."""
        self._flowing = True
        attempt = self.attempt
        if attempt is not None and attempt.exchange is not None:
            attempt.exchange.express(attempt.take_piece)
            attempt.look_ahead()
        if self.story is None:
            self.incoming = Incoming(self.codec, self.request, b"", [])
            self.exchange.body = b""

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
            pipe = self._translation(attempt)
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
        if evidence.deltas and self.first_token_at is None:
            self.first_token_at = self.now()
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
        for each in (attempt, self.attempt):
            if each is not None:
                each.close()
        if self._settled:
            return
        failure = GatewayError("The gateway failed while it handled this call.", detail=repr(error)[:200])
        try:
            self._fail(failure)
        except Exception:
            LOG.exception("call %s cannot tell its error either", self.record.trace_id)
            self.exchange.abort()
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
            if out and self.committed:
                self.exchange.write(out)
                self._output_sent = True
            elif out:
                self._held += out
            self.attempt_failed(attempt, evidence.error)
            return
        attempt.let_end()
        if isinstance(attempt.pipe, FoldPipe):
            self._respond(attempt, self.codec.encode_reply(attempt.pipe.fold.reply(), self.context))
            return
        self._commit(attempt)
        self.exchange.finish(self._take_held() + out)
        self._settle(None)

    def _respond(self, attempt: UpstreamAttempt, body: bytes) -> None:
        headers = whole_headers(self.codec, self.record.trace_id) + passed_headers(
            self.codec, attempt, self._own_headers
        )
        self.record.http_status = 200
        self.exchange.respond(200, headers, body)
        self._settle(None)

    def _next_or_fail(self, attempt: UpstreamAttempt, error: StromError, *, another_may_do: bool) -> None:
        attempt.close()
        let_go(error)
        if self._settled:
            return
        attribute(error, attempt.endpoint.upstream)
        hop: Hop | None = None
        untouched = not self._output_sent and self.first_token_at is None
        if untouched:
            elapsed_s = self.now() - (self.dispatched_at or self.now())
            hop = next_hop(self.plan, self._hop, error, another_may_do=another_may_do, elapsed_s=elapsed_s)
        elif self.story is not None and may_continue(self.story, error):
            hop = following(self.plan, self._hop)
            self.record.continued = self.record.continued or hop is not None
        if hop is None:
            self._fail(error)
            return
        self._rate(attempt, error)
        self.past = (*self.past, describe_attempt(attempt, error, self.now(), self.plan))
        if untouched:
            self._held = b""
            self._held_frames = self.seen_deltas = 0
            self._renew_encoder()
        self._dispatch(hop)

    def _fail(self, error: StromError) -> None:
        self._error = error
        attempt = self.attempt
        # A token and the error may have come in one read: the text is evidence the client may see.
        if attempt is not None and (self.committed or (self.request.stream and self.first_token_at is not None)):
            self._commit(attempt)
            if self.dispatched_at is None:
                self.context.input_estimate = 0  # no backend has read the prompt
            pipe = attempt.pipe if attempt.pipe is not None else self._shared_encoder()
            self.exchange.finish(self._take_held() + pipe.fail(error))
        else:
            own = self._own_headers
            if own:  # an upstream's limits are not this client's
                error.headers = [field for field in error.headers if field[0] == b"retry-after"] + own
            self.record.http_status = respond_error(self.exchange, self.codec, error, self.record.trace_id)
        self._settle(error)

    def _client_left(self) -> None:
        if self._settled:
            return
        if self.attempt is not None:
            self.attempt.close()
        self._settle(departure(self))

    def _settle(self, error: StromError | None) -> None:
        """Once per call: what was really produced is recorded, nothing stays behind."""
        if self._settled:
            return
        self._settled = True
        self.services.running.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.exchange.on_disconnect = self.exchange.on_pause = self.exchange.on_resume = None
        try:
            if error is not None or self._measured_at is None:
                self._fill(error)  # else the block has been written: record and block are the same
        except Exception:  # whatever the record then lacks, it is kept, and what the call holds is given back
            LOG.exception("call %s has no complete record", self.record.trace_id)
            self.record.status = "failed"
        self.record.ended_at = self.services.wall()
        self.record.bytes_out = self.exchange.bytes_out
        if isinstance(error, Cancelled):
            self.record.http_status = error.status
        if self.attempt is not None:
            self._rate(self.attempt, error)
        if self._grant is not None:
            self._grant.settle(self.record)
        self.services.settle(self.record)
        self.attempt = self._error = None  # no circle outlives the call: memory goes without a collection
        self.context.block = no_block

    def _rate(self, attempt: UpstreamAttempt, error: StromError | None) -> None:
        if attempt.dispatched:
            first_token_ms = milliseconds(attempt.started_at, self.first_token_at)
            self.services.health.ended(attempt.endpoint, error, first_token_ms)
        if attempt.place is not None:
            attempt.place.leave()

    # -- the response head --

    def _hold(self, attempt: UpstreamAttempt, out: bytes) -> None:
        """Keep frames back until one bears a token, so that an upstream that then refuses still gives a real status."""
        self._held += out
        self._held_frames += 1
        if self.first_token_at is None and self._held_frames <= MAX_HELD_FRAMES and len(self._held) <= MAX_HELD_BYTES:
            return
        self._commit(attempt)
        self._send_held()

    def _commit(self, attempt: UpstreamAttempt | None) -> None:
        if self.committed:
            return
        self.committed = True
        self.record.http_status = 200
        passed = passed_headers(self.codec, attempt, self._own_headers)
        self.exchange.start(200, stream_headers(self.codec, self.record.trace_id) + passed)

    def _send_held(self) -> None:
        if self._held:
            self._output_sent = True
            self.last_write_at = self.now()
            self.exchange.write(self._take_held())

    def _take_held(self) -> bytes:
        held, self._held = self._held, b""
        return held

    # -- clocks --

    def _arm(self) -> None:
        """Make sure the timer goes off at the next deadline or before it. It is moved only when it would come too late."""
        assert self.attempt is not None
        due = min(upstream_deadline(self, self.attempt), self._heartbeat_due())
        if self.exchange.paused:
            due = self.now() + PAUSED_TICK_S
        if self._timer is None or due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.services.clock.call_at(due, self._tick)

    def _heartbeat_due(self) -> float:
        if not self.request.stream:
            return float("inf")
        return self.last_write_at + self.settings.heartbeat_s

    def _tick(self) -> None:
        self._timer = None
        if self.attempt is not None:
            self.attempt.guarded(self._strike)

    def _strike(self) -> None:
        now, attempt = self.now(), self.attempt
        assert attempt is not None
        if self.exchange.paused:  # the client is slow, not the upstream
            self._hold_clocks(now)
        if is_unread(self, now):
            self._client_left()
            self.exchange.abort()
        elif (error := expired(self, attempt, now)) is not None:
            self.attempt_failed(attempt, error)
        elif self._heartbeat_due() <= now:
            self._beat()
        if not self._settled and self._timer is None:
            self._arm()

    def _hold_clocks(self, now: float) -> None:
        self.last_frame_at = self.last_write_at = self.window_at = now
        if self.attempt is not None:
            self.window_chars = self.attempt.evidence.output_characters

    def _beat(self) -> None:
        attempt = self.attempt
        assert attempt is not None
        self._commit(attempt)
        self._send_held()
        self.last_write_at = self.now()
        if attempt.pipe is not None:
            self._beats += self._encoder is not None
            self.exchange.write(attempt.pipe.heartbeat())
        elif attempt.waits:
            encoder = None if self.codec.name in COMMENTED else self._shared_encoder()
            self._beats += encoder is not None
            self.exchange.write(waiting_beat(attempt.place, encoder))

    # -- backpressure --

    def _client_slow(self) -> None:
        self.paused_at = self.now()
        if self.attempt is not None and self.attempt.exchange is not None:
            self.attempt.exchange.pause_reading()

    def _client_ready(self) -> None:
        self._hold_clocks(self.now())
        if self.attempt is not None and self.attempt.exchange is not None:
            self.attempt.exchange.resume_reading()

    # -- the record --

    def _block(self) -> bytes | None:
        """What it says is final: the record keeps the same times."""
        if self.settings.block_name is None:
            return None
        self._measured_at = self.now()
        self._fill(self._error)
        return encode_block(self.record)

    def _fill(self, error: StromError | None) -> None:
        """Bring the record up to date. Called before the block is written and once more when the call settles."""
        bring_up_to_date(self, error, self._measured_at if self._measured_at is not None else self.now())
