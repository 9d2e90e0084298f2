"""Where the gateway's spans and metrics go: to a collector, by OTLP over HTTP, from threads of OpenTelemetry's own SDK.

What the SDK's variables say holds (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS …); an address in the
configuration goes before OTEL_EXPORTER_OTLP_ENDPOINT.
Source: opentelemetry.io/docs/specs/otel/protocol/exporter and …/configuration/sdk-environment-variables, read 2026-03.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

import msgspec
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from strom._version import __version__

LAST_EXPORT_S = 5.0


class TraceIds(RandomIdGenerator):
    """`next`: the id of the next trace that begins here; the gateway's own id of a call is one. Span ids are random."""

    def __init__(self) -> None:
        self.next: int | None = None

    def generate_trace_id(self) -> int:
        return self.next if self.next else super().generate_trace_id()


class Collector(msgspec.Struct, frozen=True):
    tracers: TracerProvider
    meters: MeterProvider
    ids: TraceIds

    def close(self) -> None:
        """Send what has gathered; a collector that does not answer is not waited for longer than LAST_EXPORT_S."""
        until = time.monotonic() + LAST_EXPORT_S
        closing = [threading.Thread(target=each.shutdown, daemon=True) for each in (self.tracers, self.meters)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, until - time.monotonic()))


def connect(endpoint: str | None, environ: Mapping[str, str] = os.environ) -> Collector:
    """`endpoint`: base URL, without /v1/traces. None: what the variables say."""
    resource = Resource.create(_names(environ))
    ids = TraceIds()
    tracers = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    readers = []
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none":
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(_signal(endpoint, "traces"))))
    if environ.get("OTEL_METRICS_EXPORTER", "otlp") != "none":
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(_signal(endpoint, "metrics"))))
    return Collector(tracers, MeterProvider(readers, resource, shutdown_on_exit=False), ids)


def _signal(endpoint: str | None, name: str) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{name}"


def _names(environ: Mapping[str, str]) -> dict[str, str]:
    names = {"service.version": __version__, "service.instance.id": f"{os.uname().nodename}-{os.getpid()}"}
    if not environ.get("OTEL_SERVICE_NAME") and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        names["service.name"] = "strom"
    return names
