"""Which limits bind whom, what a call is charged, and the words and headers of each protocol."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from strom.core.access import Budget, KeySettings, Limits
from strom.core.record import CallRecord, Cost, RecordUsage
from strom.policies.limit_headers import duration, limit_headers
from strom.policies.limits import LimitBook, charge_for, refusal_error, to_money
from strom.shared.limiter import MONEY, UNIT, Charge, Kind, Refusal, Scope

KEY = KeySettings("ci", "00", limits=Limits(requests_per_minute=60, budget=Budget(0.1, "EUR", "day")))
BOOK = LimitBook(Limits(concurrent=9), [("m", ("gpt-*",), Limits(tokens_per_minute=100)), ("free", (), Limits())])


@pytest.mark.parametrize(
    ("key", "model", "expected"),
    [
        (KEY, "m", ["key:ci", "model:m", "all"]),
        (KEY, "gpt-4", ["key:ci", "model:m", "all"]),
        (None, "m:latest", ["model:m", "all"]),
        (None, "free", ["all"]),
        (KeySettings("free", "00"), "unheard-of", ["all"]),
    ],
)
def test_the_key_the_model_and_all_calls_bind(key: KeySettings | None, model: str, expected: list[str]) -> None:
    for _ in range(2):
        demand = BOOK.demand(key, model, 10, 20)
        assert demand is not None
        assert [scope.id for scope in demand.scopes] == expected
        assert (demand.prompt, demand.tokens) == (10, 30)


def test_nothing_binds_where_nothing_is_limited() -> None:
    assert LimitBook().demand(None, "m", 1, 1) is None


def test_output_that_is_not_told_is_assumed() -> None:
    demand = LimitBook(Limits(tokens_per_minute=1), assumed_output_tokens=500).demand(None, "m", 1, None)
    assert demand is not None
    assert demand.tokens == 501


def test_a_key_that_is_changed_has_its_new_limits() -> None:
    changed = KeySettings("ci", "00", limits=Limits(requests_per_minute=5))
    book = LimitBook()
    for key, expected in ((KEY, 60), (changed, 5), (KEY, 60)):
        demand = book.demand(key, "m", 1, 1)
        assert demand is not None
        assert demand.scopes[0].requests == expected


def test_budgets_are_found_for_whoever_counts_what_was_spent() -> None:
    (scope,) = BOOK.budgets([KEY])
    assert (scope.id, scope.budget, scope.per, scope.currency) == ("key:ci", MONEY // 10, "day", "EUR")


@pytest.mark.parametrize(("amount", "money"), [(0.1, 100_000_000), (20, 20 * MONEY), (1e-9, 1), ("0.0000000014", 1)])
def test_money_is_what_is_written(amount: object, money: int) -> None:
    assert to_money(amount) == money


def record(status: Any, given: int | None = None, produced: int | None = None, **more: Any) -> CallRecord:
    return CallRecord("t", status, usage=RecordUsage(given, produced), **more)


@pytest.mark.parametrize(
    ("settled", "charge"),
    [
        (record("completed", 10, 5, usage_source="reported"), Charge(15)),
        (record("completed", deltas=4), Charge(107)),
        (record("cancelled", 10, 2, usage_source="estimated"), Charge(12)),
        (record("cancelled"), Charge(103)),
        (record("failed", 10, 0, usage_source="estimated"), Charge()),
        (record("failed", 10, 0, usage_source="reported"), Charge(10)),
        (record("failed", deltas=3), Charge(106)),
        (record("rejected"), Charge()),
        (
            record("completed", 1 << 40, 1, cost_estimate=Cost(1e12, "EUR", 1e12, 0)),
            Charge(100_000_000_000, 1 << 53, "EUR"),
        ),
        (record("completed", 1, 1, cost_estimate=Cost(0.25, "EUR", 0.1, 0.15)), Charge(2, MONEY // 4, "EUR")),
    ],
)
def test_a_call_is_charged_what_it_used(settled: CallRecord, charge: Charge) -> None:
    assert charge_for(settled, 103) == charge


SCOPE = Scope("key:ci", 60, 1000, 3, 5 * MONEY // 2, "week", "EUR")


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_refusal_says_what_is_used_up_and_when_to_come_back(kind: Kind) -> None:
    error = refusal_error(Refusal(kind, SCOPE, 1500))
    assert error.retry_after_s == 1.5
    assert error.status == (503 if kind == "unavailable" else 429)
    assert error.code == {"budget": "insufficient_quota", "unavailable": "limits_unavailable"}.get(
        kind, "rate_limit_exceeded"
    )
    if kind in ("requests", "tokens", "concurrent"):
        assert "try again in 1.5s" in error.message
        assert "of this key" in error.message


def test_a_budget_is_named_as_it_is_written() -> None:
    assert "budget of 2.5 EUR per week" in refusal_error(Refusal("budget", SCOPE, 1)).message


def test_a_prompt_that_never_fits_is_told_so() -> None:
    assert "shorten it" in refusal_error(Refusal("tokens", Scope("model:m", tokens=5), None)).message


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, b"0ms"), (12, b"12ms"), (1000, b"1s"), (1500, b"1.5s"), (59_999, b"59.999s"), (360_000, b"6m0s"),
     (61_250, b"1m1.25s"), (3_600_000, b"1h0m0s")],
)  # fmt: skip
def test_durations_are_written_as_openai_does(milliseconds: int, text: bytes) -> None:
    assert duration(milliseconds) == text


READINGS = ((3 * UNIT, 250 * UNIT), (UNIT, UNIT))
SCOPES = (SCOPE, Scope("all", 1, 1))


def test_headers_towards_openai_clients() -> None:
    for protocol in ("openai-chat", "openai-responses"):
        assert dict(limit_headers(protocol, SCOPES, READINGS, 0)) == {
            b"x-ratelimit-limit-requests": b"60",
            b"x-ratelimit-remaining-requests": b"57",
            b"x-ratelimit-reset-requests": b"3s",
            b"x-ratelimit-limit-tokens": b"1000",
            b"x-ratelimit-remaining-tokens": b"750",
            b"x-ratelimit-reset-tokens": b"15s",
        }


def test_headers_towards_anthropic_clients() -> None:
    assert dict(limit_headers("anthropic", SCOPES, READINGS, 1_790_000_000.0)) == {
        b"anthropic-ratelimit-requests-limit": b"60",
        b"anthropic-ratelimit-requests-remaining": b"57",
        b"anthropic-ratelimit-requests-reset": b"2026-09-21T14:13:23Z",
        b"anthropic-ratelimit-tokens-limit": b"1000",
        b"anthropic-ratelimit-tokens-remaining": b"750",
        b"anthropic-ratelimit-tokens-reset": b"2026-09-21T14:13:35Z",
    }


def test_what_the_key_leaves_open_the_model_tells() -> None:
    found = dict(limit_headers("openai-chat", (Scope("key:k", 7), Scope("all", 1, 9)), READINGS, 0))
    assert found[b"x-ratelimit-limit-requests"] == b"7"
    assert found[b"x-ratelimit-limit-tokens"] == b"9"
    assert limit_headers("ollama", SCOPES, READINGS, 0) == []
