"""Observation is put together as the settings say; OpenTelemetry only for who wants it."""

from __future__ import annotations

import sys

import pytest

from strom.config.schema import ServerSettings, TelemetryTable
from strom.config.settings import Settings
from strom.core.errors import ConfigError
from strom.observing import Observation, make_traces, wants_otlp
from strom.telemetry.model_names import ModelNames
from strom.transport.memory import MemoryClient, MemoryExchange
from tests.gateway.rig import DONE, FINISH, ROLE, SSE, USAGE, Rig, text

NAMES = ModelNames(lambda name: name)
HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("endpoint", "environ", "wanted"),
    [
        (None, {}, False),
        ("http://127.0.0.1:9", {}, True),
        (None, HERE, True),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ("http://127.0.0.1:9", {"OTEL_SDK_DISABLED": "true"}, False),
        (None, {"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_who_wants_opentelemetry(endpoint: str | None, environ: dict[str, str], wanted: bool) -> None:
    assert wants_otlp(endpoint, environ) is wanted


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strom.otel.collector", None)


@pytest.mark.usefixtures("without_the_extra")
def test_a_configured_collector_needs_the_extra() -> None:
    settings = Settings(telemetry=TelemetryTable(otlp_endpoint="http://127.0.0.1:9"))
    with pytest.raises(ConfigError, match=r"strom\[otel\]"):
        make_traces(settings, NAMES, {})


@pytest.mark.usefixtures("without_the_extra")
def test_variables_without_the_extra_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert make_traces(Settings(), NAMES, HERE) is None
    assert "strom[otel]" in caplog.text


class Observed(Rig):
    """A gateway that is observed as `settings` say."""

    def __init__(self, **server: object) -> None:
        super().__init__()
        settings = Settings(server=ServerSettings(**server))  # type: ignore[arg-type]
        assert isinstance(self.services.client, MemoryClient)
        self.services.client.stats = lambda: dict.fromkeys(("idle", "connecting", "opened", "reused"), 0)  # type: ignore[method-assign]
        self.observation = Observation(self.gateway, settings, lambda: 0)

    async def metrics(self) -> MemoryExchange:
        exchange = MemoryExchange("GET", "/metrics")
        await self.observation.page.show(exchange)
        return exchange

    def finish(self) -> None:
        self.upstream().response(200, SSE)
        self.upstream().read(ROLE, text("x"))
        self.upstream().end(FINISH, USAGE, DONE)


async def test_calls_are_seen_while_they_run_and_when_they_end() -> None:
    rig = Observed()
    rig.call()
    body = (await rig.metrics()).body_out
    assert b"strom_active_streams 1.0" in body
    assert b"strom_dispatch_overhead_seconds_count 1.0" in body
    rig.finish()
    exchange = await rig.metrics()
    assert exchange.status == 200
    assert exchange.header_out(b"content-type") == b"text/plain; version=0.0.4; charset=utf-8"
    assert b"strom_active_streams 0.0" in exchange.body_out
    assert b'status="completed"' in exchange.body_out
    assert b'model="m"' in exchange.body_out
    await rig.observation.close()


@pytest.mark.parametrize(
    ("form", "wanted", "lines"),
    [("json", "auto", 1), ("console", "auto", 0), ("console", True, 1), ("json", False, 0)],
)
async def test_the_access_log_as_configured(
    form: str, wanted: object, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr("strom.observing.write_lines", written.append)
    rig = Observed(log_format=form, access_log=wanted)
    rig.call()
    rig.finish()
    await rig.observation.close()
    assert "".join(written).count("strom.access") == lines
