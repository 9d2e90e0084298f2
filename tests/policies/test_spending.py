"""What budgets have cost so far comes out of the ledger: by key, by model with its aliases, and of all calls."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strom.core.access import Budget, KeySettings, Limits
from strom.core.record import CallRecord, Cost
from strom.policies.limits import LimitBook
from strom.policies.spending import seed_budgets
from strom.shared.limiter import MONEY
from strom.shared.memory import MemoryLimiter
from strom.stores.memory import MemoryStore

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()  # a Wednesday
DAY = 86_400.0


def call(key: str | None, model: str, days_ago: float, amount: float, currency: str = "EUR") -> CallRecord:
    cost = Cost(amount, currency, amount, 0.0)
    started_at = NOW - days_ago * DAY
    return CallRecord(
        f"t{started_at}{model}{key}{currency}",
        "completed",
        started_at,
        key_name=key,
        model_requested=model,
        cost_estimate=cost,
    )


CALLS = [
    call("ci", "m", 0, 0.1),
    call("ci", "gpt-4", 0.1, 0.2),
    call("ci", "m", 0.2, 5.0, "USD"),
    call("ci", "m", 1, 0.4),  # yesterday
    call("ci", "x", 4, 0.8),  # last week
    call(None, "m", 0, 1.6),
    call("ci", "m", 20, 3.2),  # last month
]


@pytest.mark.parametrize(
    ("per", "of_key", "of_model", "of_all"),
    [("day", "0.3", "1.9", "1.9"), ("week", "0.7", "2.3", "2.3"), ("month", "1.5", "2.3", "3.1")],
)
def test_sums_are_exact_and_of_the_present_period(per: str, of_key: str, of_model: str, of_all: str) -> None:
    store = MemoryStore()
    for record in CALLS:
        store.put(record)
    limits = Limits(budget=Budget(100, "EUR", per))  # type: ignore[arg-type]
    key = KeySettings("ci", "00", limits=limits)
    book = LimitBook(limits, [("m", ("gpt-*",), limits)])
    limiter = MemoryLimiter(wall=lambda: NOW)
    seed_budgets(limiter, book, book.budgets([key]), store.usage, NOW)
    spent = {scope.id: limiter.spent(scope) for scope in book.budgets([key])}
    assert spent == {
        "key:ci": round(float(of_key) * 10) * MONEY // 10,
        "model:m": round(float(of_model) * 10) * MONEY // 10,
        "all": round(float(of_all) * 10) * MONEY // 10,
    }
