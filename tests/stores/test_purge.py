"""Records go when their time is over, a few at a time, by one process at a time; lists run along indexes."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from strom.core.record import CallRecord
from strom.stores.options import StoreOptions
from strom.stores.purge import AT_ONCE, purge
from strom.stores.reading import listing
from strom.stores.records import RecordFilter
from strom.stores.table import dialect_of, open_store
from strom.stores.urls import parse_store_url
from tests.patience import wait_until
from tests.stores.kinds import sql_reader, sql_store, sqlite_url

DAY = 86_400.0


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = sqlite_url(tmp_path / "s.db") if request.param == "sqlite" else request.getfixturevalue("postgres_store")
    assert isinstance(found, str)
    return found


def fill(url: str, folder: Path, *ages_days: float, status: str = "completed") -> None:
    store = sql_store(url, folder, interval_s=0)
    now = time.time()
    for number, age in enumerate(ages_days):
        store.put(CallRecord(f"t{number:05}", status, now - age * DAY))  # type: ignore[arg-type]
    assert store.flush(30)
    store.close()


def left(url: str) -> int:
    reader = sql_reader(url)
    count = len(reader.list(limit=5000).records)
    reader.close()
    return count


def test_what_is_old_goes_in_portions(url: str, tmp_path: Path) -> None:
    fill(url, tmp_path / "j", *[40.0] * (AT_ONCE + 3), 20.0, 0.0)
    dialect = dialect_of(parse_store_url(url))
    assert purge(dialect, time.time() - 30 * DAY, threading.Event()) == AT_ONCE + 3
    assert left(url) == 2


def test_one_process_at_a_time(url: str, tmp_path: Path) -> None:
    fill(url, tmp_path / "j", 40.0)
    dialect = dialect_of(parse_store_url(url))
    with dialect.alone("purge") as mine:
        assert mine
        assert purge(dialect, time.time(), threading.Event()) == 0
    # The lock ends with its connection, which the server notices a moment later.
    wait_until(lambda: purge(dialect, time.time(), threading.Event()) == 1)


def test_running_calls_stay(url: str, tmp_path: Path) -> None:
    fill(url, tmp_path / "j", 40.0, status="started")
    assert purge(dialect_of(parse_store_url(url)), time.time(), threading.Event()) == 0


def test_a_store_with_a_retention_does_it_by_itself(url: str, tmp_path: Path) -> None:
    fill(url, tmp_path / "j", 40.0, 0.0)
    store = open_store(url, StoreOptions(retention_days=30, journal_dir=tmp_path / "j"))
    wait_until(lambda: left(url) <= 1)
    assert left(url) == 1
    store.close()


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RecordFilter(), "calls_by_time"),
        (RecordFilter(since=1.0, until=2.0), "calls_by_time"),
        (RecordFilter(model="m"), "calls_by_time"),
        (RecordFilter(key_name="ci"), "calls_by_key"),
        (RecordFilter(endpoint="e"), "calls_by_endpoint"),
        (RecordFilter(status="failed"), "calls_unwell"),
        (RecordFilter(ended_since=1e10), "calls_by_"),
    ],
)
def test_lists_run_along_an_index_and_sort_nothing(wanted: RecordFilter, index: str, tmp_path: Path) -> None:
    sql_store(sqlite_url(tmp_path / "s.db")).close()
    connection = sqlite3.connect(tmp_path / "s.db")
    for before in (None, (5.0, "t1")):
        sql, values = listing(wanted, before)
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [*values, 50]))
        assert index in plan, plan
        assert wanted.ended_since is not None or "TEMP B-TREE" not in plan, plan
    connection.close()
