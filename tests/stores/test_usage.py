"""Sums of usage and cost: the same from memory and from both databases, exact, in pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strom.core.errors import BadRequest
from strom.core.record import CallRecord, Cost, RecordUsage, Status
from strom.stores.memory import MemoryStore
from strom.stores.records import RecordFilter, RecordStore
from strom.stores.usage import Amount, UsagePage, UsageQuery, UsageRow, encode_usage, parse_usage_query
from tests.stores.kinds import sql_store, sqlite_url

NOON = 1_772_366_400.0
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    made: RecordStore = MemoryStore()
    if request.param == "sqlite":
        made = sql_store(sqlite_url(tmp_path / "s.db"), interval_s=0)
    if request.param == "postgresql":
        made = sql_store(request.getfixturevalue("postgres_store"), tmp_path, interval_s=0)
    yield made
    made.close()


class Calls:
    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._count = 0

    def add(self, key: str | None = "ci", status: Status = "completed", **more: Any) -> None:
        self._count += 1
        record = CallRecord(f"t{self._count:04}", status, NOON, NOON + 1, key_name=key, model_requested="m")
        self._store.put(msgspec.structs.replace(record, **more))


@pytest.fixture
def calls(store: RecordStore) -> Calls:
    return Calls(store)


def eur(amount: float) -> Cost:
    return Cost(amount, "EUR", amount, 0.0)


def rows(store: RecordStore, *by: str, **more: Any) -> list[UsageRow]:
    return store.usage(UsageQuery(by, **more)).data  # type: ignore[arg-type]


def test_what_is_summed(store: RecordStore, calls: Calls) -> None:
    calls.add(usage=RecordUsage(10, 20, 5, 2), cost_estimate=eur(0.1))
    calls.add(usage=RecordUsage(1, 2), cost_estimate=eur(0.2))
    calls.add(usage=RecordUsage(1, 2), cost_estimate=Cost(3.0, "USD", 3.0, 0.0))
    calls.add(status="failed")
    calls.add(status="rejected")
    calls.add(status="cancelled", usage=RecordUsage(7, None))
    (row,) = rows(store, "key")
    assert row == UsageRow(
        key="ci",
        calls=6,
        calls_by_status={"completed": 3, "failed": 1, "rejected": 1, "cancelled": 1},
        input_tokens=19,
        output_tokens=24,
        cached_tokens=5,
        reasoning_tokens=2,
        unknown_usage_calls=1,
        cost=[Amount("EUR", Decimal("0.3")), Amount("USD", Decimal(3))],
        unknown_cost_calls=2,
    )


def test_sums_are_exact(store: RecordStore, calls: Calls) -> None:
    """Floats would not be: 0.1 a thousand times is not 100 there."""
    assert math.fsum([0.1]) * 1000 != sum([0.1] * 1000)
    for _ in range(1000):
        calls.add(cost_estimate=eur(0.1))
    calls.add(cost_estimate=eur(0.000000000001))
    assert rows(store, "key")[0].cost == [Amount("EUR", Decimal("100.000000000001"))]


def test_groups(store: RecordStore, calls: Calls) -> None:
    calls.add("a", provider="p", endpoint_id="e", inference_region="eu-de", policy_id="pol", protocol_in="ollama")
    calls.add("b", model_used="used", started_at=NOON + DAY)
    calls.add(None)
    shown = [[(row.key, row.day) for row in rows(store, "key", "day")], [row.model for row in rows(store, "model")]]
    assert shown == [[(None, "2026-03-01"), ("a", "2026-03-01"), ("b", "2026-03-02")], ["m", "used"]]
    groups = ("provider", "endpoint", "region", "policy", "protocol", "model_requested")
    last = rows(store, *groups)[-1]
    assert [getattr(last, name) for name in groups] == ["p", "e", "eu-de", "pol", "ollama", "m"]


def test_days_are_those_of_utc(store: RecordStore, calls: Calls) -> None:
    midnight = NOON + DAY / 2
    calls.add(started_at=midnight - 0.001)
    calls.add(started_at=midnight)
    assert [row.day for row in rows(store, "day")] == ["2026-03-01", "2026-03-02"]


def test_filters(store: RecordStore, calls: Calls) -> None:
    for day in range(3):
        calls.add("a", started_at=NOON + day * DAY)
    calls.add("b", status="failed")
    wanted = RecordFilter(key_name="a", since=NOON, until=NOON + 2 * DAY)
    assert [(row.key, row.calls) for row in rows(store, "key", wanted=wanted)] == [("a", 2)]
    assert [row.calls for row in rows(store, "key", wanted=RecordFilter(status="failed"))] == [1]


def test_pages(store: RecordStore, calls: Calls) -> None:
    for number in range(7):
        for currency in ("EUR", "USD", "GBP"):
            calls.add(f"k{number}", cost_estimate=Cost(1.0, currency, 1.0, 0.0))
    seen: list[str | None] = []
    cursor = None
    while True:
        page: UsagePage = store.usage(UsageQuery(("key", "model"), limit=3, cursor=cursor))
        seen += [row.key for row in page.data if isinstance(row.key, str)]
        assert all(len(row.cost) == 3 for row in page.data)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"k{number}" for number in range(7)]


def test_running_calls_are_seen_and_cost_nothing_yet(store: RecordStore) -> None:
    store.begin(CallRecord("t1", started_at=NOON))
    (row,) = rows(store, "model")
    assert (row.calls_by_status, row.unknown_cost_calls, row.unknown_usage_calls) == ({"started": 1}, 0, 0)


def test_an_empty_store(store: RecordStore) -> None:
    assert store.usage(UsageQuery()) == UsagePage([])


def test_a_foreign_cursor_is_the_clients_mistake(store: RecordStore) -> None:
    for cursor in ("x", "WyJhIl0", "bnVsbA"):
        with pytest.raises(BadRequest, match="not a cursor"):
            store.usage(UsageQuery(("key", "day"), cursor=cursor))


def test_groups_are_told_apart_from_what_was_not_asked_for() -> None:
    row = UsageRow(key=None, calls=1, cost=[Amount("EUR", Decimal("0.000000000001"))])
    encoded = encode_usage(UsagePage([row])).decode()
    assert '"key":null' in encoded
    assert '"model"' not in encoded
    assert '"amount":1E-12' in encoded or '"amount":0.000000000001' in encoded


@pytest.mark.parametrize(
    ("params", "query"),
    [
        ({}, UsageQuery()),
        ({"by": "day, key", "limit": "5"}, UsageQuery(("day", "key"), limit=5)),
        ({"since": "2026-03-01", "status": "failed"}, UsageQuery(wanted=RecordFilter("failed", since=NOON - DAY / 2))),
    ],
)
def test_queries(params: dict[str, str], query: UsageQuery) -> None:
    assert parse_usage_query(params) == query


@pytest.mark.parametrize("params", [{"by": "colour"}, {"by": "key,key"}, {"limit": "0"}, {"bye": "key"}])
def test_queries_that_make_no_sense(params: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        parse_usage_query(params)
