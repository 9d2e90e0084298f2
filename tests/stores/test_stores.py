"""What every store keeps to, and what only the file has: other processes, locks, damage, the end."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strom.core.errors import ConfigError, GatewayError
from strom.core.record import CallRecord, RecordUsage
from strom.stores import postgres
from strom.stores.memory import MemoryStore
from strom.stores.records import RecordFilter, RecordStore
from strom.stores.responses import Place, ResponseLimits
from strom.stores.table import open_response_store
from tests.stores.kinds import NEVER_S, sql_reader, sql_store, sqlite_url

Make = Callable[[], RecordStore]
KINDS = ["memory", "sqlite", "sqlite, unwritten", "postgresql", "postgresql, unwritten"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "strom.db"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[RecordStore]:
    """`unwritten`: reads must see what its thread has not written."""
    kind, _, unwritten = request.param.partition(", ")
    interval_s = NEVER_S if unwritten else 0
    made: RecordStore = MemoryStore()
    if kind == "sqlite":
        made = sql_store(sqlite_url(path), interval_s=interval_s)
    if kind == "postgresql":
        made = sql_store(request.getfixturevalue("postgres_store"), path.with_name("journals"), interval_s=interval_s)
    yield made
    made.close()


def call(number: int, status: str = "completed") -> CallRecord:
    ended = None if status == "started" else number + 0.5
    return CallRecord(f"t{number:03}", status, float(number), ended, model_requested=f"m{number % 2}")  # type: ignore[arg-type]


def ids(store: RecordStore, wanted: RecordFilter = RecordFilter(), limit: int = 50) -> list[str]:  # noqa: B008
    return [record.trace_id for record in store.list(wanted, limit).records]


# --- every store ---------------------------------------------------------------------------------


def test_what_was_put_is_seen_at_once(store: RecordStore) -> None:
    store.put(call(1))
    assert store.get("t001") == call(1)
    assert store.get("t002") is None
    assert ids(store) == ["t001"]
    assert store.lost == 0


def test_lists_are_newest_first_whatever_came_first(store: RecordStore) -> None:
    for number in (2, 5, 1, 4, 3):
        store.put(call(number))
    assert ids(store) == ["t005", "t004", "t003", "t002", "t001"]
    assert ids(store, RecordFilter(model="m1")) == ["t005", "t003", "t001"]


def test_pages_stay_right_while_calls_arrive(store: RecordStore) -> None:
    for number in range(1, 6):
        store.put(call(number))
    first = store.list(RecordFilter(), 2)
    store.put(call(9))
    second = store.list(RecordFilter(), 2, first.next_cursor)
    third = store.list(RecordFilter(), 2, second.next_cursor)
    pages = [[record.trace_id for record in page.records] for page in (first, second, third)]
    assert pages == [["t005", "t004"], ["t003", "t002"], ["t001"]]
    assert third.next_cursor is None


def test_a_call_that_began_is_visible_until_it_settles(store: RecordStore) -> None:
    record = call(1, "started")
    store.begin(record)
    record.provider = "changed while it runs"
    seen = store.get("t001")
    assert seen is not None
    assert (seen.status, seen.provider) == ("started", None)
    assert ids(store, RecordFilter(status="started")) == ["t001"]
    store.put(call(1))
    store.begin(record)  # late, out of turn: what is settled stays settled
    assert store.get("t001") == call(1)
    assert ids(store, RecordFilter(status="started")) == []
    assert ids(store) == ["t001"]


def test_flush_says_that_everything_is_kept(store: RecordStore) -> None:
    store.put(call(1))
    assert store.flush(10)
    assert ids(store) == ["t001"]


def test_a_full_memory_forgets_the_oldest() -> None:
    store = MemoryStore(capacity=2)
    for number in (1, 2, 3):
        store.put(call(number))
    assert ids(store) == ["t003", "t002"]
    store.put(call(3))
    assert ids(store) == ["t003", "t002"]


# --- the file ------------------------------------------------------------------------------------


def test_records_outlive_the_store(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=NEVER_S)
    store.begin(call(1, "started"))
    store.put(call(2))
    store.close()
    store.close()
    reader = sql_reader(sqlite_url(path))
    assert [record.trace_id for record in reader.list().records] == ["t002", "t001"]
    assert reader.get("t001") == call(1, "started")
    page = reader.list(limit=1)
    assert [record.trace_id for record in reader.list(limit=1, cursor=page.next_cursor).records] == ["t001"]
    reader.close()


def test_what_comes_after_the_end_is_lost_and_counted(path: Path) -> None:
    store = sql_store(sqlite_url(path))
    store.close()
    store.put(call(1))
    store.begin(call(2))
    assert store.lost == 2


def test_a_full_backlog_loses_what_comes_and_counts_it(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=NEVER_S, backlog=2)
    for number in range(5):
        store.put(call(number))
        store.begin(call(10 + number, "started"))
    assert store.lost == 6
    assert store.flush(10)
    assert ids(store) == ["t011", "t010", "t001", "t000"]
    store.close()


def test_a_locked_file_is_waited_for(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=0.01, busy_s=0.3)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.begin(call(1, "started"))
    store.put(call(2))
    assert not store.flush(0.1)  # the writer stands before the lock now, with both
    store.put(call(1))
    store.begin(call(3, "started"))
    assert ids(store) == ["t003", "t002", "t001"]
    assert not store.flush(0.5)  # and has come back with nothing done
    assert ids(store) == ["t003", "t002", "t001"]
    other.execute("ROLLBACK")
    other.close()
    assert store.flush(20)
    assert store.get("t001") == call(1)
    assert store.lost == 0
    store.close()


def test_what_a_locked_file_keeps_out_is_counted_in_the_end(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=0.01, busy_s=0.3, backlog=2)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for number in range(2):
        store.put(call(number))
    assert not store.flush(0.1)
    for number in range(2, 5):
        store.put(call(number))
    store.close()
    assert store.lost == 3
    other.close()
    again = sql_store(sqlite_url(path))
    assert len(ids(again)) == 2  # what had room waited in the journal
    again.close()


def test_one_impossible_value_costs_one_record(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=NEVER_S)
    bad_text, bad_number = call(1), call(2)
    bad_text.model_requested = "\ud800"
    bad_number.usage = RecordUsage(2**80)
    for record in (call(0), bad_text, bad_number, call(3)):
        store.put(record)
    assert store.flush(10)
    assert ids(store) == ["t003", "t000"]
    assert store.lost == 2
    store.close()


def test_a_name_that_postgresql_cannot_hold_costs_no_record(postgres_store: str, tmp_path: Path) -> None:
    """A client may put anything into its model's name."""
    store = sql_store(postgres_store, tmp_path / "journals", interval_s=NEVER_S)
    odd, impossible = call(1), call(2)
    odd.model_requested = "a\0b"
    impossible.usage = RecordUsage(2**80)
    for record in (call(0), odd, impossible, call(3)):
        store.put(record)
    assert store.flush(10)
    assert ids(store) == ["t003", "t001", "t000"]
    assert store.get("t001") == odd
    assert store.lost == 1
    store.close()


def test_a_postgresql_that_cut_its_connections_is_asked_again(
    postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    monkeypatch.setattr(postgres, "IDLE_S", 0.0)
    store = sql_store(postgres_store, tmp_path / "journals", interval_s=0.05)
    kept = open_response_store(postgres_store, ResponseLimits())
    store.put(call(1))
    assert store.flush(10)
    for number in (2, 3):
        with psycopg.connect(postgres_store, autocommit=True) as other:
            query = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
            )
            assert len(other.execute(query, ["stores"]).fetchall()) >= 3
        assert store.get("t001") == call(1)
        assert kept.get(Place("anna", "none")) is None
        store.put(call(number))
        assert store.flush(10)
    assert store.lost == 0
    assert ids(store) == ["t003", "t002", "t001"]
    store.close()
    kept.close()


def test_many_threads_may_put_and_read(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=0.001)

    def work(base: int) -> None:
        for number in range(base, base + 50):
            store.begin(call(number, "started"))
            store.put(call(number))
            assert store.get(f"t{number:03}") is not None

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.flush(10)
    assert len(ids(store, RecordFilter(status="completed"), 500)) == 150
    store.close()


_WRITER = """
import sys
from pathlib import Path
from strom.core.record import CallRecord
from strom.stores.options import StoreOptions
from strom.stores.table import open_store
store = open_store(f"sqlite:///{sys.argv[1]}", StoreOptions(interval_s=0.001))
for number in range(100):
    store.put(CallRecord(f"{sys.argv[2]}{number:03}", "completed", float(number)))
assert store.flush(20) and store.lost == 0
store.close()
"""


def test_several_processes_share_a_file(path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in "ab"]
    assert [process.wait(60) for process in processes] == [0, 0]
    reader = sql_reader(sqlite_url(path))
    assert len(reader.list(limit=500).records) == 200
    reader.close()


# --- opening -------------------------------------------------------------------------------------


def test_files_that_are_no_store(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database" * 100)
    with pytest.raises(ConfigError, match="cannot be opened: file is not a database"):
        sql_store(sqlite_url(text))
    with pytest.raises(ConfigError, match="cannot be read"):
        sql_reader(sqlite_url(text))
    with pytest.raises(ConfigError, match="cannot be opened"):
        sql_store(sqlite_url(tmp_path / "no" / "folder.db"))
    with pytest.raises(ConfigError, match="no store at"):
        sql_reader(sqlite_url(tmp_path / "none.db"))


def test_damage_is_our_error_not_sqlites(path: Path) -> None:
    store = sql_store(sqlite_url(path), interval_s=0)
    store.put(call(1))
    assert store.flush(10)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE calls SET record = '{'")
    connection.commit()
    with pytest.raises(GatewayError, match="cannot be read"):
        store.get("t001")
    connection.execute("DROP TABLE calls")
    connection.commit()
    connection.close()
    with pytest.raises(GatewayError, match="cannot be read"):
        store.list()
    store.close()


def test_a_new_file_is_its_owner_s_alone(path: Path) -> None:
    """What SQLite lays beside it, too. One that is there stays as open as it was made."""
    store = sql_store(sqlite_url(path))
    store.put(call(1))
    assert store.flush()
    files = [each for each in path.parent.rglob("*") if each.is_file()]
    assert {each.suffix for each in files} >= {".db", ".db-wal"}
    assert {oct(each.stat().st_mode & 0o777) for each in files} == {"0o600"}
    store.close()
    path.chmod(0o640)
    sql_store(sqlite_url(path)).close()
    assert path.stat().st_mode & 0o777 == 0o640
