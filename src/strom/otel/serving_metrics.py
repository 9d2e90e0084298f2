"""The gateway's instruments: duration of a request, time to its first token, time for each token after it, and tokens.

What is not known is not recorded. Source: opentelemetry.io/docs/specs/semconv/gen-ai, gen-ai-metrics, edition 1.41.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter

from strom.core.record import CallRecord
from strom.otel import names

Attributes = dict[str, str | int]


class ServingMetrics:
    def __init__(self, meter: Meter, model_label: Callable[[CallRecord], str]) -> None:
        self._model_label = model_label
        self._duration = _seconds(meter, names.SERVER_DURATION, "Duration of a request.", names.DURATION_BUCKETS_S)
        self._first = _seconds(
            meter, names.SERVER_FIRST_TOKEN, "Time to the first token of a good answer.", names.FIRST_CHUNK_BUCKETS_S
        )
        self._each = _seconds(
            meter, names.SERVER_TOKEN_TIME, "Time for each token after the first.", names.TOKEN_TIME_BUCKETS_S
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )

    def observe(self, record: CallRecord, provider: str, context: Context) -> None:
        attributes: Attributes = {
            names.OPERATION: "chat",
            names.PROVIDER: provider,
            names.REQUEST_MODEL: self._model_label(record),
        }
        for kind, count in (("input", record.usage.input_tokens), ("output", record.usage.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**attributes, names.TOKEN_TYPE: kind}, context)
        if record.error is not None:
            attributes[names.ERROR_TYPE] = record.error.code[:100]
        if record.ended_at is not None:
            self._duration.record(max(0.0, record.ended_at - record.started_at), attributes, context)
        if record.error is None:
            self._observe_tokens(record, attributes, context)

    def _observe_tokens(self, record: CallRecord, attributes: Attributes, context: Context) -> None:
        first_ms, all_ms = record.timing.time_to_first_token_ms, record.timing.request_duration_ms
        if first_ms is None or all_ms is None or not record.streamed:
            return
        self._first.record(first_ms / 1000.0, attributes, context)
        produced = record.usage.output_tokens or 0
        if produced > 1:
            self._each.record((all_ms - first_ms) / 1000.0 / (produced - 1), attributes, context)


def _seconds(meter: Meter, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
    return meter.create_histogram(name, unit="s", description=description, explicit_bucket_boundaries_advisory=buckets)
