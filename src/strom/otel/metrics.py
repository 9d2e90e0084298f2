"""The three instruments of a client: duration of an operation, time to its first token, tokens in and out.

What was not reported is not recorded. Source: opentelemetry.io/docs/specs/semconv/gen-ai, gen-ai-metrics, edition 1.41.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.metrics import Meter

from strom.core.usage import Usage
from strom.otel import names

Attributes = dict[str, str | int]


class Instruments:
    def __init__(self, meter: Meter) -> None:
        self._duration = meter.create_histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS_S,
        )
        self._first_chunk = meter.create_histogram(
            names.OPERATION_FIRST_CHUNK,
            unit="s",
            description="Time to receive the first chunk, from when the request is issued.",
            explicit_bucket_boundaries_advisory=names.FIRST_CHUNK_BUCKETS_S,
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )

    def record_times(
        self, duration_ms: float | None, first_ms: float | None, attributes: Attributes, context: Context
    ) -> None:
        if duration_ms is not None:
            self._duration.record(duration_ms / 1000.0, attributes, context)
        if first_ms is not None:
            self._first_chunk.record(first_ms / 1000.0, attributes, context)

    def record_usage(self, usage: Usage | None, attributes: Attributes, context: Context) -> None:
        if usage is None:
            return
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**attributes, names.TOKEN_TYPE: kind}, context)
