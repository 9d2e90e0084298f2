"""The dashboard and the alerts: whole, and about metrics that a running gateway has, with labels that those have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from strom.telemetry.families import FAMILIES
from tests.e2e.processes import ROOT, ask, gateway, upstream
from tests.patience import PATIENCE_S

DASHBOARD = ROOT / "deploy/grafana/strom.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
METRIC = re.compile(r"\bstrom_[a-z_]+")
SELECTOR = re.compile(r"\b(strom_[a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"by \(([^)]*)\)[^{]*?\b(strom_[a-z_]+)")
VARIABLES = {"$model", "$endpoint", "$__rate_interval", "${datasource}"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    yield from (line for line in ALERTS.read_text().splitlines() if "strom_" in line)


def labels_of(metric: str) -> set[str]:
    """Of any of a family's sample names."""
    for family in FAMILIES:
        if metric in (family.shown_name, f"{family.name}_bucket", f"{family.name}_sum", f"{family.name}_count"):
            return {*family.labels, "le", "instance"}
    raise AssertionError(f"no family has {metric}")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all samples and families of a gateway that has answered."""
    folder = tmp_path_factory.mktemp("shown")
    with upstream() as behind, gateway(folder, "--backend", f"http://127.0.0.1:{behind.port}") as running:
        httpx.post(running.url + "/v1/chat/completions", json=ask("n=3 hello"), timeout=PATIENCE_S)
        httpx.post(running.url + "/v1/chat/completions", json=ask("refuse=500 hello"), timeout=PATIENCE_S)
        text = httpx.get(running.url + "/metrics", timeout=PATIENCE_S).text
    families = list(text_string_to_metric_families(text))
    samples = {sample.name for family in families for sample in family.samples}
    return samples | {family.name + ("_total" if family.type == "counter" else "") for family in families}


def test_every_query_asks_for_a_metric_that_is_there(shown: set[str]) -> None:
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(asked) > 25
    assert asked - shown == set()


def test_every_family_is_on_the_dashboard(shown: set[str]) -> None:
    text = DASHBOARD.read_text()
    assert [family.name for family in FAMILIES if family.name not in text and family.name != "strom_build_info"] == []


def test_queries_use_labels_that_the_metrics_have() -> None:
    for expression in expressions():
        for metric, matchers in SELECTOR.findall(expression):
            assert set(MATCHER.findall(matchers)) <= labels_of(metric), expression
        for grouped, metric in GROUPED.findall(expression):
            assert {label.strip() for label in grouped.split(",")} <= labels_of(metric), expression


def test_the_dashboard_is_whole() -> None:
    """What Grafana's schema (10.1) demands; `tests` cannot load Grafana itself."""
    board = dashboard()
    assert board["id"] is None
    assert board["uid"]
    assert board["schemaVersion"] >= 36
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "model", "endpoint"}
    assert set(re.findall(r"\$(?:\{\w+\}|\w+)", json.dumps(board))) <= VARIABLES | {"$__all"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABC"[: len(panel["targets"])])
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_no_panel_lies_on_another() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_alerts_are_whole() -> None:
    text = ALERTS.read_text()
    names = re.findall(r"- alert: (\w+)", text)
    assert len(names) == len(set(names)) == text.count("expr:") == text.count("summary:") == text.count("severity:")
    promtool = shutil.which("promtool")
    if promtool is not None:
        checked = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_the_page_lists_every_metric() -> None:
    rows = re.findall(r"^\| `(strom_\w+)` \| (\w+) \| ([^|]*) \|", (ROOT / "docs/how-to/observe.md").read_text(), re.M)
    written = [(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows]
    assert written == [(family.shown_name, family.kind, family.labels) for family in FAMILIES]
