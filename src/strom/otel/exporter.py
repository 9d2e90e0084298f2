"""A sink of the library's tracer that makes spans and metrics.

    TraceCall ─▶ span `chat MODEL` begins ─▶ TraceResponse, or its reader left ─▶ it ends, and its metrics are recorded
    TraceTool … TraceBatch ─▶ spans `execute_tool NAME`, laid into the time of their batch

A span's parent is what is current where the stream is read, so calls and tools hang under the program's own spans. Every
span ends exactly once. Text stands in it only if both the tracer and the exporter include it.
"""

from __future__ import annotations

import heapq
import threading

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from strom._version import __version__
from strom.client.evidence import CompletionMetadata, StreamMetrics
from strom.client.tracer import TraceBatch, TraceCall, TraceEvent, Tracer, TraceResponse, TraceTool
from strom.otel import names
from strom.otel.content import input_messages, json_text, output_messages
from strom.otel.metrics import Attributes, Instruments

SCOPE = "strom"
GOOD = frozenset(("completed", "tool_calls", "cancelled"))
"""Statuses of a response that are no error; who cancels has what it asked for."""


def export(
    tracer: Tracer,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    include_text: bool = False,
) -> Exporter:
    """From now on, what `tracer` records becomes spans and metrics.

    Without providers: those that the program has set globally. `include_text` shows messages, arguments and results, and
    only if the tracer has them (`Tracer(include_text=True)`).
    """
    exporter = Exporter(
        tracer_provider or get_tracer_provider(), meter_provider or get_meter_provider(), include_text=include_text
    )
    tracer.add_sink(exporter.record, on_left=exporter.leave)
    return exporter


class Exporter:
    """Safe to use from several threads."""

    def __init__(
        self, tracer_provider: TracerProvider, meter_provider: MeterProvider, *, include_text: bool = False
    ) -> None:
        self._tracer = tracer_provider.get_tracer(SCOPE, __version__, names.SCHEMA_URL)
        self._instruments = Instruments(meter_provider.get_meter(SCOPE, __version__, names.SCHEMA_URL))
        self._include_text = include_text
        self._lock = threading.Lock()
        self._open: dict[int, tuple[Span, TraceCall]] = {}
        self._tools: dict[int, list[TraceTool]] = {}

    def record(self, event: TraceEvent) -> None:
        match event:
            case TraceCall():
                self._begin(event)
            case TraceResponse():
                self._end(event)
            case TraceTool():
                with self._lock:
                    self._tools.setdefault(event.number, []).append(event)
            case TraceBatch():
                self._add_tools(event)

    def leave(self, number: int, metrics: StreamMetrics) -> None:
        """The reader of this call closed its stream: the span ends here."""
        found = self._take(number)
        if found is None:
            return
        span, call = found
        span.set_attribute(names.STATUS, "left")
        _set(span, _timing(metrics))
        span.end()
        attributes = _dimensions(call.provider, call)
        first_ms = metrics.time_to_first_token_ms
        self._instruments.record_times(metrics.request_duration_ms, first_ms, attributes, set_span_in_context(span))

    # -- calls

    def _begin(self, call: TraceCall) -> None:
        span = self._tracer.start_span(
            f"chat {call.model}",
            kind=SpanKind.CLIENT,
            attributes=_request(call),
            start_time=_ns(call.at),
        )
        if self._include_text and call.conversation and span.is_recording():
            span.set_attribute(names.INPUT_MESSAGES, input_messages(call.conversation))
        with self._lock:
            self._open[call.number] = (span, call)

    def _end(self, response: TraceResponse) -> None:
        found = self._take(response.number)
        if found is None:
            return
        span, call = found
        attributes = _dimensions(response.provider, call)
        if response.metadata.provider_model:
            attributes[names.RESPONSE_MODEL] = response.metadata.provider_model
        if response.status not in GOOD:
            attributes[names.ERROR_TYPE] = response.status
            span.set_status(Status(StatusCode.ERROR, response.detail if self._include_text else None))
        if span.is_recording():
            _set(span, {**attributes, names.STATUS: response.status, **_answer(response.metadata)})
            if self._include_text and _has_text(response.metadata):
                span.set_attribute(names.OUTPUT_MESSAGES, output_messages(response.metadata))
        span.end(_ns(response.at))
        self._measure(response.metadata, attributes, set_span_in_context(span))

    def _measure(self, metadata: CompletionMetadata, attributes: Attributes, context: Context) -> None:
        timing = metadata.timing
        self._instruments.record_times(timing.request_duration_ms, timing.time_to_first_token_ms, attributes, context)
        self._instruments.record_usage(metadata.usage, attributes, context)

    def _take(self, number: int) -> tuple[Span, TraceCall] | None:
        """None: the call began before this exporter listened."""
        with self._lock:
            return self._open.pop(number, None)

    # -- tools

    def _add_tools(self, batch: TraceBatch) -> None:
        """Each tool took the first free of `concurrency` places (0: one each) when its turn came."""
        with self._lock:
            tools = self._tools.pop(batch.number, [])
        start = batch.at - batch.ms / 1000.0
        free = [start] * min(batch.concurrency or len(tools), len(tools))
        for tool in tools:
            begun = heapq.heappop(free)
            ended = begun + tool.ms / 1000.0
            heapq.heappush(free, ended)
            self._add_tool(tool, begun, ended)

    def _add_tool(self, tool: TraceTool, begun: float, ended: float) -> None:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: tool.call_id,
            names.CORRELATION_ID: tool.correlation_id,
        }
        if self._include_text and tool.arguments is not None:
            attributes[names.TOOL_ARGUMENTS] = json_text(tool.arguments)
            attributes[names.TOOL_RESULT] = json_text(tool.result)
        span = self._tracer.start_span(f"execute_tool {tool.name}", attributes=attributes, start_time=_ns(begun))
        if tool.failed:
            span.set_attribute(names.ERROR_TYPE, "tool_error")
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(ended))


def _dimensions(provider: str, call: TraceCall) -> Attributes:
    """What both spans and metrics have. `provider`: who answered, which may be a fallback."""
    found: Attributes = {
        names.OPERATION: "chat",
        names.PROVIDER: names.provider_name(provider),
        names.REQUEST_MODEL: call.model,
    }
    if call.server and provider == call.provider:
        found[names.SERVER_ADDRESS] = call.server
        if call.port is not None:
            found[names.SERVER_PORT] = call.port
    return found


def _request(call: TraceCall) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {**_dimensions(call.provider, call), names.CORRELATION_ID: call.correlation_id}
    if call.streamed:
        found[names.REQUEST_STREAM] = True
    return found


def _answer(metadata: CompletionMetadata) -> dict[str, AttributeValue | None]:
    usage, cost = metadata.usage, metadata.cost
    found: dict[str, AttributeValue | None] = {
        names.RESPONSE_ID: metadata.response_id,
        names.FINISH_REASONS: (metadata.finish_reason,) if metadata.finish_reason else None,
        names.ATTEMPTS: len(metadata.attempts) if len(metadata.attempts) > 1 else None,
        names.HTTP_STATUS: metadata.attempts[-1].status if metadata.attempts else None,
        **_timing(metadata.timing),
    }
    if usage is not None:
        found |= {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHE_READ_TOKENS: usage.cached_tokens,
            names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
        }
    if cost is not None:
        found |= {names.COST: cost.amount, names.CURRENCY: cost.currency}
    return found


def _timing(metrics: StreamMetrics) -> dict[str, AttributeValue | None]:
    first_ms = metrics.time_to_first_token_ms
    return {
        names.TIME_TO_FIRST_CHUNK: None if first_ms is None else first_ms / 1000.0,
        names.FIRST_TOKEN_KIND: metrics.first_token_kind,
    }


def _set(span: Span, attributes: dict[str, AttributeValue | None]) -> None:
    """What is not known is not set."""
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def _has_text(metadata: CompletionMetadata) -> bool:
    return bool(metadata.text or metadata.thinking or metadata.tool_calls)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
