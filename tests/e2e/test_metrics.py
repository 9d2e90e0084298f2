"""Metrics and access log of real processes: the workers' numbers are one, and nothing secret is among them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
CLIENT_KEY = "client-key-0123456789abcdef"
PROVIDER_KEY = "provider/key+0123456789abcdef"
SECRET = "SECRETTEXT of the client"
CONFIG = """
[server]
{server}
[auth]
required = true
[[providers]]
name = "p"
protocol = "openai-chat"
base_url = "http://127.0.0.1:{port}"
api_key_env = "PROVIDER_KEY"
[[keys]]
name = "ci"
key_env = "CLIENT_KEY"
admin = {admin}
"""


@pytest.fixture
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


def total(text: str, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == name and wanted <= set(sample.labels.items()))


def metrics(running: Gateway) -> str:
    """Over a connection of its own: any worker may answer."""
    response = httpx.get(running.url + "/metrics", timeout=PATIENCE_S)
    assert response.status_code == 200
    return response.text


def call(running: Gateway, text: str) -> None:
    httpx.post(
        running.url + CHAT, json=ask(text), headers={"authorization": f"Bearer {CLIENT_KEY}"}, timeout=PATIENCE_S
    )


def workers(running: Gateway) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(running.process.pid)], capture_output=True, text=True, check=True
    )
    return [int(pid) for pid in found.stdout.split()]


def test_any_worker_tells_of_all_and_a_killed_one_is_not_forgotten(behind: Upstream, tmp_path: Path) -> None:
    arguments = ["--backend", f"http://127.0.0.1:{behind.port}", "--workers", "2"]
    with gateway(tmp_path, *arguments) as running:
        for _ in range(12):
            call(running, "n=3 hello")
        assert {total(metrics(running), "strom_calls_total", status="completed") for _ in range(6)} == {12}
        before = total(metrics(running), "strom_tokens_total", kind="output")
        os.kill(workers(running)[0], signal.SIGKILL)
        wait_until(lambda: total(metrics_or_nothing(running), "strom_workers") == 2)
        for _ in range(6):
            text = metrics(running)
            assert total(text, "strom_calls_total", status="completed") == 12
            assert total(text, "strom_tokens_total", kind="output") == before
        call(running, "n=3 again")
        assert total(metrics(running), "strom_calls_total", status="completed") == 13
        assert total(text, "strom_build_info") == 1
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def metrics_or_nothing(running: Gateway) -> str:
    try:
        return metrics(running)
    except httpx.HTTPError:  # it went to the worker that was killed
        return ""


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_text_and_no_key_in_access_log_and_metrics(form: str, behind: Upstream, tmp_path: Path) -> None:
    server = f'log_format = "{form}"\naccess_log = true\nlog_level = "debug"'
    file = tmp_path / "strom.toml"
    file.write_text(CONFIG.format(port=behind.port, server=server, admin="true"))
    with gateway(tmp_path, "--config", str(file), CLIENT_KEY=CLIENT_KEY, PROVIDER_KEY=PROVIDER_KEY) as running:
        for orders in ("n=2", "n=2 end=error", "n=1 end=cut", "refuse=400", "refuse=401", "refuse=500"):
            call(running, f"{orders} {SECRET}")
        assert (
            httpx.post(
                running.url + CHAT, json=ask(SECRET), headers={"x-api-key": "wrong"}, timeout=PATIENCE_S
            ).status_code
            == 401
        )
        text = metrics(running)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    log = running.log.read_text()
    for secret in (CLIENT_KEY, PROVIDER_KEY, "SECRETTEXT"):
        assert secret not in log
        assert secret not in text
    lines = [line for line in log.splitlines() if "strom.access" in line]
    assert len(lines) == 7
    if form == "json":
        calls = [json.loads(line) for line in lines]
        assert calls[0]["status"] == "completed"
        assert {entry["key"] for entry in calls} == {"ci", None}
        assert all(json.loads(line) for line in log.splitlines() if line.startswith("{"))
    assert total(text, "strom_calls_total") == 7
    assert total(text, "strom_attempts_total") == 6


@pytest.mark.parametrize(
    ("public", "admin", "statuses"), [(False, True, (401, 200)), (False, False, (401, 403)), (True, False, (200, 200))]
)
def test_who_may_read_metrics_elsewhere(
    public: bool, admin: bool, statuses: tuple[int, int], behind: Upstream, tmp_path: Path
) -> None:
    server = f'host = "0.0.0.0"\nmetrics_public = {str(public).lower()}'
    file = tmp_path / "strom.toml"
    file.write_text(CONFIG.format(port=behind.port, server=server, admin=str(admin).lower()))
    with gateway(tmp_path, "--config", str(file), CLIENT_KEY=CLIENT_KEY, PROVIDER_KEY=PROVIDER_KEY) as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1") + "/metrics"
        without = httpx.get(url, timeout=PATIENCE_S).status_code
        having = httpx.get(url, headers={"authorization": f"Bearer {CLIENT_KEY}"}, timeout=PATIENCE_S).status_code
    assert (without, having) == statuses


LIMITED = """
[[models]]
name = "m"
[[models.endpoints]]
id = "one"
provider = "p"
"""


def test_limits_and_health_are_shown(behind: Upstream, tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    config = (
        CONFIG.format(port=behind.port, server="", admin="true") + "limits = { requests_per_minute = 2 }\n" + LIMITED
    )
    file.write_text(config)
    with gateway(tmp_path, "--config", str(file), CLIENT_KEY=CLIENT_KEY, PROVIDER_KEY=PROVIDER_KEY) as running:
        for _ in range(3):
            call(running, "n=3 hello")
        text = metrics(running)
    assert total(text, "strom_limit_decisions_total", decision="granted") == 2
    assert total(text, "strom_limit_decisions_total", decision="requests", scope="key") == 1
    assert total(text, "strom_calls_total", status="rejected", http_status="4xx") == 1
    assert total(text, "strom_endpoint_circuit", endpoint="one", state="closed") == 1
    assert total(text, "strom_endpoint_in_flight", endpoint="one") == 0


def test_openmetrics_is_negotiated(behind: Upstream, tmp_path: Path) -> None:
    with gateway(tmp_path, "--backend", f"http://127.0.0.1:{behind.port}") as running:
        wanted = {"accept": "application/openmetrics-text;version=1.0.0;q=0.9, text/plain;q=0.1"}
        response = httpx.get(running.url + "/metrics", headers=wanted, timeout=PATIENCE_S)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
