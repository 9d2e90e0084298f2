"""`strom usage`: a table, JSON, from a store and from a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from strom.cli.usage import GROUPS
from strom.core.record import CallRecord, Cost, RecordUsage
from strom.stores.options import StoreOptions
from strom.stores.table import open_store
from strom.stores.usage import Group
from tests.cli.conftest import Served, Strom

NOON = 1_772_366_400.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path / 'strom.db'}"
    store = open_store(found, StoreOptions(interval_s=0))
    for number in range(3):
        usage, cost = RecordUsage(10, 20, 5, 1), Cost(0.0000001, "EUR", 0.0, 0.0)
        store.put(
            CallRecord(f"t{number}", "completed", NOON + number * 86_400, key_name="ci", model_requested="m",
                       usage=usage, cost_estimate=cost)
        )  # fmt: skip
    store.put(CallRecord("t9", "failed", NOON, model_requested="m"))
    store.close()
    return found


def test_the_groups_are_those_of_the_store() -> None:
    assert get_args(Group) == GROUPS


def test_a_table(strom: Strom, url: str) -> None:
    assert strom("usage", "--store", url).out.splitlines() == [
        "KEY  MODEL  CALLS  FAILED  IN  OUT  CACHED  REASONING  COST           UNPRICED",
        "-    m      1      1       0   0    0       0          -              1",
        "ci   m      3      0       30  60   15      3          0.0000003 EUR  0",
    ]


def test_json_filters_and_pages(strom: Strom, url: str) -> None:
    shown = strom("usage", "--store", url, "--by", "day", "--since", "2026-03-02", "--limit", "1", "--json").json
    assert [(row["day"], row["calls"]) for row in shown["data"]] == [("2026-03-02", 1)]
    assert shown["data"][0]["cost"] == [{"currency": "EUR", "amount": 1e-7}]
    after = strom("usage", "--store", url, "--by", "day", "--since", "2026-03-02", "--cursor", shown["next_cursor"])
    assert "2026-03-03" in after.out
    assert "key" not in shown["data"][0]


@pytest.mark.parametrize("by", ["colour", "key,colour", "key,key", "", "key,"])
def test_what_cannot_be_grouped_by(strom: Strom, url: str, by: str) -> None:
    shown = strom("usage", "--store", url, "--by", by)
    assert (shown.code, "expected some of key, model" in shown.err) == (2, True)


def test_a_running_gateway_is_asked(strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"key": None, "calls": 2, "input_tokens": 7, "cost": [{"currency": "EUR", "amount": 0.5}]}
    served.answers["/platform/v1/usage"] = (200, {"data": [row], "next_cursor": None})
    monkeypatch.setenv("ADMIN", "sk-admin")
    shown = strom("usage", "--url", served.url, "--api-key-env", "ADMIN", "--by", "key", "--status", "failed")
    assert "0.5 EUR" in shown.out
    path, headers = served.requests[0]
    assert "by=key" in path
    assert "status=failed" in path
    assert headers["authorization"] == "Bearer sk-admin"
    served.answers["/platform/v1/usage"] = (200, {"data": "x"})
    assert "is no usage" in strom("usage", "--url", served.url).err
