"""What a record adds to which series, and that no client can make series."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from strom.core.record import Attempt, CallRecord, Cost, RecordError, RecordUsage, Timing
from strom.gateway.routing import Model
from strom.telemetry.calls import MAX_CODES, MAX_KNOWN, CallMetrics
from strom.telemetry.cells import Cells
from strom.telemetry.exposition import Exposition
from strom.telemetry.model_names import ModelNames, find_configured
from tests.telemetry.records import good

MODELS = {"qwen3": Model("qwen3", ("claude-*", "local"), ())}
ROUTE = {"model": "qwen3", "provider": "mlx", "endpoint": "mlx-1"}


class Counted:
    def __init__(self, models: dict[str, Model] = MODELS, most: int = 200) -> None:
        self.cells = Cells()
        self.names = ModelNames(lambda name: find_configured(models, name), most)
        self.metrics = CallMetrics(self.cells, self.names, lambda: 1000.002)

    def observe(self, *records: CallRecord) -> None:
        for record in records:
            self.metrics.observe(record)

    def samples(self, accept: str = "") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = Exposition(self.cells).render(accept)[0].decode()
        found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]

    def sum(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(value for (found, its), value in self.samples().items() if found == name and wanted <= its)


def test_a_good_call() -> None:
    counted = Counted()
    counted.observe(good(), good())
    named = {"protocol_in": "openai-chat", "protocol_out": "openai-chat", "fault": "none", "http_status": "2xx"}
    assert counted.value("strom_calls_total", status="completed", **named, **ROUTE) == 2
    for kind, count in (("input", 24), ("output", 68), ("cached", 10), ("reasoning", 12)):
        assert counted.value("strom_tokens_total", kind=kind, **ROUTE) == count
    assert counted.value("strom_sent_bytes_total", **ROUTE) == 2468
    assert counted.value("strom_attempts_total", endpoint="mlx-1", outcome="ok") == 2


def test_times_fall_into_buckets_and_sums() -> None:
    counted = Counted()
    counted.observe(good())
    assert counted.value("strom_time_to_first_token_seconds_bucket", le="0.1", **ROUTE) == 0
    assert counted.value("strom_time_to_first_token_seconds_bucket", le="0.175", **ROUTE) == 1
    assert counted.value("strom_time_to_first_token_seconds_bucket", le="+Inf", **ROUTE) == 1
    assert counted.value("strom_time_to_first_token_seconds_count", **ROUTE) == 1
    assert counted.value("strom_time_to_first_token_seconds_sum", **ROUTE) == pytest.approx(0.12)
    assert counted.value("strom_call_duration_seconds_sum", **ROUTE) == pytest.approx(1.11)
    assert counted.value("strom_token_gap_seconds_sum", **ROUTE) == pytest.approx(0.03)
    assert counted.value("strom_token_gap_seconds_bucket", le="0.05", **ROUTE) == 1


def test_a_bound_belongs_to_its_bucket() -> None:
    counted = Counted()
    counted.observe(good(timing=Timing(100.0, "text", 5000.0)))
    assert counted.value("strom_time_to_first_token_seconds_bucket", le="0.1", **ROUTE) == 1
    assert counted.value("strom_call_duration_seconds_bucket", le="2.5", **ROUTE) == 0
    assert counted.value("strom_call_duration_seconds_bucket", le="5.0", **ROUTE) == 1


def test_what_is_longer_than_the_last_bound_counts_too() -> None:
    counted = Counted()
    counted.observe(good(timing=Timing(999_999.0, "text", 5_000_000.0)))
    assert counted.value("strom_time_to_first_token_seconds_bucket", le="160.0", **ROUTE) == 0
    assert counted.value("strom_time_to_first_token_seconds_count", **ROUTE) == 1


def test_a_whole_reply_has_no_first_token_and_unknown_usage_counts_nothing() -> None:
    counted = Counted()
    counted.observe(good(streamed=False, usage=RecordUsage()))
    assert counted.value("strom_time_to_first_token_seconds_count", **ROUTE) == 0
    assert counted.value("strom_call_duration_seconds_count", **ROUTE) == 1
    assert counted.sum("strom_tokens_total") == 0


def test_retries_and_fallbacks() -> None:
    counted = Counted()
    tries = [Attempt("a", outcome="timeout"), Attempt("a", outcome="refused"), Attempt("mlx-1")]
    counted.observe(good(attempts=tries, continued=True))
    assert counted.value("strom_continued_calls_total", model="qwen3") == 1
    assert counted.value("strom_retries_total", model="qwen3") == 1
    assert counted.value("strom_fallbacks_total", model="qwen3") == 1
    assert counted.value("strom_attempts_total", endpoint="a", outcome="timeout") == 1
    assert counted.value("strom_attempts_total", endpoint="a", outcome="refused") == 1


def test_a_rejected_call_and_its_error() -> None:
    counted = Counted()
    error = RecordError("rate_limited", "Slow down.")
    rejected = CallRecord("t", "rejected", 1.0, 1.1, "anthropic", fault="client", error=error, http_status=429)
    counted.observe(rejected)
    assert counted.sum("strom_calls_total", status="rejected", model="none", endpoint="none", http_status="4xx") == 1
    assert counted.value("strom_call_errors_total", fault="client", code="rate_limited") == 1
    assert counted.sum("strom_attempts_total") == 0


def test_cost_by_currency() -> None:
    counted = Counted()
    counted.observe(good(cost_estimate=Cost(0.25, "EUR", 0.05, 0.2)), good(cost_estimate=Cost(0.5, "EUR", 0.1, 0.4)))
    assert counted.value("strom_cost_total", currency="EUR", **ROUTE) == 0.75


def test_the_time_before_dispatch() -> None:
    counted = Counted()
    counted.metrics.begin(good(started_at=1000.0))
    counted.metrics.begin(good(started_at=1007.0))  # the clock was set back
    assert counted.value("strom_dispatch_overhead_seconds_count") == 2
    assert counted.value("strom_dispatch_overhead_seconds_sum") == pytest.approx(0.002, abs=1e-6)


@pytest.mark.parametrize("asked", ["qwen3", "qwen3:latest", "claude-sonnet-4-5", "claude-opus-9", "local"])
def test_an_alias_counts_as_its_model(asked: str) -> None:
    counted = Counted()
    counted.observe(good(model_requested=asked))
    assert counted.sum("strom_calls_total", model="qwen3") == 1


def unknown(index: int) -> dict[str, Any]:
    return {"model_requested": f"made-up-{index}", "provider": None, "endpoint_id": None, "attempts": [], "deltas": 0}


def test_names_that_clients_make_up_are_one_series() -> None:
    counted = Counted()
    counted.observe(*[good(**unknown(index), complete=False, status="rejected") for index in range(500)])
    assert counted.sum("strom_calls_total", model="other") == 500
    assert len([name for name, _ in counted.samples() if name == "strom_calls_total"]) == 1


def test_where_nothing_is_configured_so_many_names_are_learned_from_good_calls() -> None:
    counted = Counted(models={}, most=3)
    counted.observe(*[good(model_requested=f"m{index}") for index in range(5)])
    counted.observe(good(model_requested="m0"), good(model_requested="x" * 500))
    assert counted.sum("strom_calls_total", model="m0") == 2
    assert counted.sum("strom_calls_total", model="other") == 3


def test_countless_aliases_take_no_memory_for_good() -> None:
    counted = Counted()
    counted.observe(*[good(model_requested=f"claude-{index}") for index in range(MAX_KNOWN + 10)])
    assert counted.sum("strom_calls_total", model="qwen3") == MAX_KNOWN + 10
    assert len(counted.metrics._outcomes) <= MAX_KNOWN


def test_error_codes_of_backends_are_bounded() -> None:
    counted = Counted()
    failed = [good(error=RecordError(f"code-{index}" * 50, "m"), fault="upstream") for index in range(MAX_CODES + 50)]
    counted.observe(*failed)
    found = [dict(its)["code"] for name, its in counted.samples() if name == "strom_call_errors_total"]
    assert len(found) == MAX_CODES + 1
    assert max(map(len, found)) <= 100
    assert counted.value("strom_call_errors_total", fault="upstream", code="other") == 50


def test_a_changed_configuration_renames_and_keeps_counts() -> None:
    models = dict(MODELS)
    counted = Counted(models)
    counted.observe(good(model_requested="local"))
    models["qwen3"] = Model("qwen3", (), ())
    models["gemma"] = Model("gemma", ("local",), ())
    counted.metrics.forget()
    counted.observe(good(model_requested="local"))
    assert counted.sum("strom_calls_total", model="qwen3") == 1
    assert counted.sum("strom_calls_total", model="gemma") == 1


def test_openmetrics_for_who_asks() -> None:
    counted = Counted()
    counted.observe(good())
    exposition = Exposition(counted.cells)
    body, kind = exposition.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    body, kind = exposition.render("*/*")
    assert kind.startswith("text/plain; version=0.0.4")
    assert b"# TYPE strom_calls_total counter" in body


def test_labels_cannot_break_the_format() -> None:
    counted = Counted(models={})
    evil = 'm"\n\\} 1\nstrom_fake_total 1'
    counted.observe(good(model_requested=evil))
    assert counted.sum("strom_calls_total", model=evil) == 1
    assert "strom_fake_total" not in {name for name, _ in counted.samples()}
