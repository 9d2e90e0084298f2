"""Spans and metrics of the gateway's calls.

    request ──▶ span `chat MODEL` (server) … until the record is final
                  └─ span `chat MODEL` (client) for each request to an endpoint, with the tokens on the last one

A call's server span hangs under the client's `traceparent`; without one it begins a trace whose id is the gateway's own id of
the call. Each backend gets the `traceparent` of its attempt's span in a header; bodies are not touched. Server spans begin
when a call is first sent, at the time it came; a call that is never sent gets its span with its record. Message text stands in
a span of an attempt only when the operator says so and the endpoint's retention is not "none".
Source: opentelemetry.io/docs/specs/semconv/gen-ai, edition 1.41; www.w3.org/TR/trace-context, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from strom._version import __version__
from strom.core.record import Attempt, CallRecord
from strom.gateway.attempt import UpstreamAttempt
from strom.otel import names
from strom.otel.collector import Collector
from strom.otel.serving_metrics import ServingMetrics
from strom.otel.serving_text import TextTap, input_text
from strom.transport.types import (
    Exchange,
    Handler,
    Headers,
    Origin,
    OutgoingRequest,
    ResponseReceiver,
    UpstreamClient,
    UpstreamExchange,
)

SCOPE = "strom"
CONTEXT_HEADERS = (b"traceparent", b"tracestate")
OURS = frozenset(("failed", "incomplete"))
"""Statuses of a call that are errors of a server; a rejected call is one where the fault is not the client's."""


class _Try(msgspec.Struct):
    """A request to an endpoint. `began_ns`: Unix time."""

    endpoint_id: str
    span: Span
    began_ns: int
    tap: TextTap | None


class _Open(msgspec.Struct):
    span: Span
    tries: list[_Try]
    provider: str


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        wanted = key.encode()
        return [value.decode("latin-1") for name, value in carrier if name == wanted] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_GETTER = _HeaderGetter()
_PROPAGATOR = TraceContextTextMapPropagator()


class CallTraces:
    """An observer of records, and of requests to backends by way of `TracingClient`. `model_label` bounds what metrics name."""

    def __init__(
        self, collector: Collector, model_label: Callable[[CallRecord], str], *, message_text: bool = False
    ) -> None:
        self._collector = collector
        self._tracer = collector.tracers.get_tracer(SCOPE, __version__, names.SCHEMA_URL)
        self._metrics = ServingMetrics(collector.meters.get_meter(SCOPE, __version__, names.SCHEMA_URL), model_label)
        self._message_text = message_text
        self._open: dict[str, _Open] = {}
        self._current: Headers = []
        self.close = collector.close

    def watch(self, handle: Handler) -> Handler:
        """The same handler; a call that it refuses at once is known to belong to its client's trace."""

        def watched(exchange: Exchange) -> None:
            self._current = exchange.head.headers
            try:
                handle(exchange)
            finally:
                self._current = []

        return watched

    def client(self, client: UpstreamClient) -> UpstreamClient:
        return TracingClient(client, self)

    # -- attempts

    def begin(
        self, attempt: UpstreamAttempt, origin: Origin, request: OutgoingRequest
    ) -> tuple[OutgoingRequest, ResponseReceiver]:
        """The request with the trace in its head, and who is told of the answer."""
        call, upstream = attempt.call, attempt.endpoint.upstream
        record = call.record
        opened = self._open.get(record.trace_id)
        if opened is None:
            opened = self._open[record.trace_id] = self._begin_call(record, call.exchange.head.headers)
        opened.provider = names.provider_name(upstream.kind)
        began = int(call.services.wall() * 1e9)
        model = call.plan.model_for(attempt.endpoint)
        span = self._tracer.start_span(
            f"chat {model}",
            context=set_span_in_context(opened.span),
            kind=SpanKind.CLIENT,
            attributes=_request_attributes(attempt, origin, model),
            start_time=began,
        )
        tap: TextTap | None = None
        if self._message_text and upstream.retention != "none" and span.is_recording():
            span.set_attribute(names.INPUT_MESSAGES, input_text(call.request))
            tap = TextTap(attempt)
        opened.tries.append(_Try(attempt.endpoint.id, span, began, tap))
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span))
        kept = [field for field in request.headers if field[0] not in CONTEXT_HEADERS]
        added = [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]
        return msgspec.structs.replace(request, headers=kept + added), tap or attempt

    def _begin_call(self, record: CallRecord, headers: Headers) -> _Open:
        parent = _PROPAGATOR.extract(headers, Context(), _GETTER)
        self._collector.ids.next = int(record.trace_id, 16) or None
        span = self._tracer.start_span(
            f"chat {record.model_requested or ''}".strip(),
            context=parent,
            kind=SpanKind.SERVER,
            start_time=int(record.started_at * 1e9),
        )
        self._collector.ids.next = None
        return _Open(span, [], record.provider or "unknown")

    # -- ends

    def observe(self, record: CallRecord) -> None:
        opened = self._open.pop(record.trace_id, None)
        if opened is None:
            opened = self._begin_call(record, self._current)
        ended_ns = int((record.ended_at or record.started_at) * 1e9)
        self._end_tries(opened.tries, record, ended_ns)
        span = opened.span
        if span.is_recording():
            span.set_attributes(_known(_call_attributes(record, opened.provider)))
            if record.status in OURS or (record.status == "rejected" and record.fault != "client"):
                span.set_status(Status(StatusCode.ERROR, record.error.code if record.error is not None else None))
        self._metrics.observe(record, opened.provider, set_span_in_context(span))
        span.end(ended_ns)

    def _end_tries(self, tries: list[_Try], record: CallRecord, ended_ns: int) -> None:
        """The record's attempts in their order; those that were never sent have no span."""
        sent = iter(tries)
        current = next(sent, None)
        for attempt in record.attempts:
            if current is not None and current.endpoint_id == attempt.endpoint_id:
                is_last = attempt is record.attempts[-1]
                _end_try(current, attempt, record if is_last else None, ended_ns)
                current = next(sent, None)
        while current is not None:  # the record does not tell of it
            current.span.end(ended_ns)
            current = next(sent, None)


class TracingClient:
    """An UpstreamClient that knows which requests belong to calls."""

    def __init__(self, client: UpstreamClient, traces: CallTraces) -> None:
        self._client = client
        self._traces = traces
        self.close = client.close
        self.stats = client.stats

    def send(
        self, origin: Origin, request: OutgoingRequest, receiver: ResponseReceiver, *, connect_timeout_s: float
    ) -> UpstreamExchange:
        if isinstance(receiver, UpstreamAttempt):
            request, receiver = self._traces.begin(receiver, origin, request)
        return self._client.send(origin, request, receiver, connect_timeout_s=connect_timeout_s)


def _end_try(ended: _Try, attempt: Attempt, record: CallRecord | None, ended_ns: int) -> None:
    """`record`: of the attempt that ended the call."""
    span = ended.span
    if span.is_recording():
        found: dict[str, AttributeValue | None] = {names.OUTCOME: attempt.outcome}
        if record is not None:
            found |= _answer_attributes(record)
            if ended.tap is not None:
                found[names.OUTPUT_MESSAGES] = ended.tap.output_text(record.finish_reason)
        if attempt.outcome != "ok":
            found[names.ERROR_TYPE] = attempt.reason or attempt.outcome
        span.set_attributes(_known(found))
        if attempt.outcome not in ("ok", "cancelled"):
            span.set_status(Status(StatusCode.ERROR, attempt.reason))
    lasted_ns = int((attempt.ms or 0.0) * 1e6)
    span.end(min(ended.began_ns + lasted_ns, max(ended_ns, ended.began_ns)))


def _request_attributes(attempt: UpstreamAttempt, origin: Origin, model: str) -> dict[str, AttributeValue]:
    upstream = attempt.endpoint.upstream
    found: dict[str, Any] = {
        names.OPERATION: "chat",
        names.PROVIDER: names.provider_name(upstream.kind),
        names.REQUEST_MODEL: model,
        names.REQUEST_STREAM: attempt.asked_stream,
        names.SERVER_ADDRESS: origin.host,
        names.SERVER_PORT: origin.port,
        names.ENDPOINT: attempt.endpoint.id,
        names.REGION: upstream.region,
        names.PROTOCOL_OUT: upstream.protocol,
    }
    return _known(found)


def _call_attributes(record: CallRecord, provider: str) -> dict[str, AttributeValue | None]:
    cost = record.cost_estimate
    return {
        names.OPERATION: operation(record),
        names.PROVIDER: provider,
        names.REQUEST_MODEL: record.model_requested or None,
        names.REQUEST_STREAM: record.streamed,
        names.HTTP_STATUS: record.http_status,
        names.ERROR_TYPE: record.error.code if record.error is not None else None,
        names.STATUS: record.status,
        names.FAULT: record.fault,
        names.TRACE_ID: record.trace_id,
        names.ENDPOINT: record.endpoint_id,
        names.REGION: record.inference_region,
        names.POLICY: record.policy_id,
        names.KEY_NAME: record.key_name,
        names.PROTOCOL_IN: record.protocol_in,
        names.PROTOCOL_OUT: record.protocol_out,
        names.ATTEMPTS: len(record.attempts),
        names.COST: float(cost.amount) if cost is not None else None,
        names.CURRENCY: cost.currency if cost is not None else None,
        **_answer_attributes(record),
    }


def _answer_attributes(record: CallRecord) -> dict[str, AttributeValue | None]:
    usage, first_ms = record.usage, record.timing.time_to_first_token_ms
    return {
        names.RESPONSE_MODEL: record.model_used,
        names.FINISH_REASONS: (record.finish_reason,) if record.finish_reason else None,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cached_tokens,
        names.CACHE_WRITE_TOKENS: usage.parts.cache_write,
        names.REASONING_TOKENS: usage.reasoning_tokens,
        names.TIME_TO_FIRST_CHUNK: None if first_ms is None else first_ms / 1000.0,
        names.FIRST_TOKEN_KIND: record.timing.first_token_kind,
    }


def operation(record: CallRecord) -> str:
    """A complete answer of a model that was asked for words says why it ended; embeddings do not."""
    embedded = record.complete and record.provider is not None and record.finish_reason is None
    return "embeddings" if embedded else "chat"


def _known(attributes: dict[str, Any]) -> dict[str, AttributeValue]:
    return {name: value for name, value in attributes.items() if value is not None}
