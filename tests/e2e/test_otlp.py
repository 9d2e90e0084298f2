"""A gateway and a collector as real processes: what is exported, and that nothing is when nobody asked."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.otel.collecting import attributes, collector
from tests.patience import PATIENCE_S

CHAT = "/v1/chat/completions"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
PROVIDER_KEY = "provider/key+0123456789abcdef"
CONFIG = """
[telemetry]
{telemetry}
[[providers]]
name = "p"
protocol = "openai-chat"
base_url = "http://127.0.0.1:{port}"
api_key_env = "PROVIDER_KEY"
retention = "{retention}"
"""


@pytest.fixture
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def configured(folder: Path, behind: Upstream, telemetry: str, retention: str = "30 days") -> list[str]:
    file = folder / "strom.toml"
    file.write_text(CONFIG.format(telemetry=telemetry, port=behind.port, retention=retention))
    return ["--config", str(file)]


def stop(running: Gateway) -> None:
    running.signal(signal.SIGTERM)
    assert running.wait() == 0


def test_spans_and_metrics_reach_a_collector(behind: Upstream, tmp_path: Path) -> None:
    with collector() as collected:
        arguments = configured(tmp_path, behind, f'otlp_endpoint = "{collected.url}"')
        with gateway(tmp_path, *arguments, PROVIDER_KEY=PROVIDER_KEY) as running:
            answered = httpx.post(running.url + CHAT, json=ask("n=3 SENTINEL"), headers=HEADERS, timeout=PATIENCE_S)
            httpx.post(running.url + CHAT, json=ask("refuse=500 SENTINEL"), timeout=PATIENCE_S)
            httpx.post(running.url + CHAT, json={"broken": "SENTINEL"}, timeout=PATIENCE_S)
            stop(running)
    assert len(collected.spans) == 5
    server = next(
        span for span in collected.spans if span.trace_id.hex() == TRACE and span.kind == span.SPAN_KIND_SERVER
    )
    client = next(
        span for span in collected.spans if span.trace_id.hex() == TRACE and span.kind == span.SPAN_KIND_CLIENT
    )
    assert client.parent_span_id == server.span_id
    assert server.parent_span_id.hex() == "00f067aa0ba902b7"
    assert attributes(server)["strom.trace_id"] == answered.headers["x-strom-trace-id"]
    sent = [re.search(r"traceparent: (\S+)", head) for head, body in behind.requests if body]
    assert sent[0] is not None
    assert sent[0][1] == f"00-{TRACE}-{client.span_id.hex()}-01"
    assert collected.resources[0]["service.name"] == "strom"
    assert set(collected.metrics) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
        "gen_ai.client.token.usage",
    }
    for body in collected.raw:
        assert b"SENTINEL" not in body
        assert PROVIDER_KEY.encode() not in body


def test_variables_alone_are_enough(behind: Upstream, tmp_path: Path) -> None:
    with collector() as collected:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url,
            "OTEL_SERVICE_NAME": "mine",
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a",
            "OTEL_METRICS_EXPORTER": "none",
        }
        with gateway(tmp_path, "--backend", f"http://127.0.0.1:{behind.port}", **variables) as running:
            httpx.post(running.url + CHAT, json=ask("n=3 hello"), timeout=PATIENCE_S)
            stop(running)
    assert len(collected.spans) == 2
    assert collected.resources[0]["service.name"] == "mine"
    assert collected.headers[0]["x-tenant"] == "a"
    assert collected.metrics == {}


@pytest.mark.parametrize(("retention", "shown"), [("30 days", True), ("none", False)])
def test_text_is_sent_where_configuration_and_retention_allow(
    retention: str, shown: bool, behind: Upstream, tmp_path: Path
) -> None:
    with collector() as collected:
        telemetry = f'otlp_endpoint = "{collected.url}"\nmessage_text = true'
        arguments = configured(tmp_path, behind, telemetry, retention)
        with gateway(tmp_path, *arguments, PROVIDER_KEY=PROVIDER_KEY) as running:
            httpx.post(running.url + CHAT, json=ask("n=3 SENTINEL"), timeout=PATIENCE_S)
            stop(running)
    assert (b"SENTINEL" in b"".join(collected.raw)) is shown


def test_a_collector_that_is_away_holds_nothing_up(behind: Upstream, tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        arguments = configured(tmp_path, behind, f'otlp_endpoint = "http://127.0.0.1:{deaf.getsockname()[1]}"')
        with gateway(tmp_path, *arguments, PROVIDER_KEY=PROVIDER_KEY) as running:
            for _ in range(3):
                assert httpx.post(running.url + CHAT, json=ask("n=3 hello"), timeout=8).status_code == 200
            began = time.monotonic()
            stop(running)
            assert time.monotonic() - began < 30


def test_without_a_collector_nothing_is_imported_and_no_header_is_added(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, "--backend", f"http://127.0.0.1:{behind.port}", PYTHONVERBOSE="1") as running:
        httpx.post(running.url + CHAT, json=ask("n=3 hello"), timeout=PATIENCE_S)
        stop(running)
    assert "strom.telemetry.calls" in running.log.read_text()
    assert "opentelemetry" not in running.log.read_text()
    assert [head for head, _ in behind.requests if "traceparent" in head] == []
