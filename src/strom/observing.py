"""Observation put together: metrics and access log always, OpenTelemetry where it has somewhere to send to.

The SDK of OpenTelemetry is an extra, and not even imported unless it is wanted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from strom.config.settings import Settings
from strom.core.errors import ConfigError
from strom.gateway.gateway import Gateway
from strom.logs import write_lines
from strom.server.metrics import MetricsPage
from strom.telemetry.access_log import AccessLog
from strom.telemetry.model_names import ModelNames, find_configured
from strom.telemetry.sources import endpoint_health, limit_decisions, lost_records, upstream_connections
from strom.telemetry.station import Station
from strom.transport.types import Handler

if TYPE_CHECKING:
    from strom.otel.serving import CallTraces

LOG = logging.getLogger("strom.telemetry")
OTLP_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)  # fmt: skip


class Observation:
    """Made inside a running loop, before the first call. `replace_settings`: after the gateway has its new state."""

    def __init__(self, gateway: Gateway, settings: Settings, lost: Callable[[], int]) -> None:
        """`lost`: records that could not be kept. Raises ConfigError."""
        self.settings = settings
        services, telemetry = gateway.services, settings.telemetry
        names = ModelNames(lambda name: find_configured(gateway.state.router.models, name), telemetry.max_models)
        self._traces = make_traces(settings, names)
        self.station = Station(services, names, _directory(settings), _access_log(settings))
        for source in (
            lost_records(lost),
            upstream_connections(services.client.stats),
            endpoint_health(gateway),
            limit_decisions(gateway),
        ):
            self.station.add(source)
        if self._traces is not None:
            services.observers.append(self._traces.observe)
            services.client = self._traces.client(services.client)
        self.page = MetricsPage(gateway, self.station.render, self.station.refresh, self._is_public)
        self.station.start()

    def watch(self, handle: Handler) -> Handler:
        return handle if self._traces is None else self._traces.watch(handle)

    def replace_settings(self, settings: Settings) -> None:
        self.settings = settings
        self.station.forget_names()

    async def close(self) -> None:
        """Everything is written and sent, as far as somebody takes it. No call runs any more."""
        await asyncio.to_thread(self.station.close)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)

    def _is_public(self) -> bool:
        return self.settings.on_loopback or self.settings.server.metrics_public


def make_traces(settings: Settings, names: ModelNames, environ: Mapping[str, str] = os.environ) -> CallTraces | None:
    """None: nobody wants them. Raises ConfigError when the configuration does and the extra is missing."""
    telemetry = settings.telemetry
    if not wants_otlp(telemetry.otlp_endpoint, environ):
        return None
    try:
        from strom.otel.collector import connect
        from strom.otel.serving import CallTraces
    except ImportError as error:
        if telemetry.otlp_endpoint is not None:
            raise ConfigError("telemetry.otlp_endpoint: needs OpenTelemetry: pip install 'strom[otel]'") from error
        LOG.warning("OTEL_* variables name a collector, but OpenTelemetry is not installed: pip install 'strom[otel]'")
        return None
    return CallTraces(connect(telemetry.otlp_endpoint, environ), names.label, message_text=telemetry.message_text)


def wants_otlp(endpoint: str | None, environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return endpoint is not None or any(environ.get(name) for name in OTLP_VARIABLES)


def _directory(settings: Settings) -> Path | None:
    return Path(settings.runtime_folder, "metrics") if settings.runtime_folder is not None else None


def _access_log(settings: Settings) -> AccessLog | None:
    server = settings.server
    wanted = server.log_format == "json" if server.access_log == "auto" else server.access_log
    return AccessLog(write_lines, server.log_format) if wanted else None
