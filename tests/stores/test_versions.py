"""Schemas: made by migrations, upgraded without loss, refused when they are newer; the same on both databases."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from json import JSONDecodeError
from pathlib import Path

import msgspec
import pytest

from strom.core.errors import ConfigError
from strom.core.record import CallRecord, UsageParts
from strom.stores.dialect import Dialect
from strom.stores.options import StoreOptions
from strom.stores.responses import Events, Place, ResponseLimits
from strom.stores.table import dialect_of, open_reader, open_response_store, open_store
from strom.stores.urls import parse_store_url
from strom.stores.versions import HEAD, look, upgrade_alone
from tests.stores.kinds import first_release, sql_store, sqlite_url
from tests.stores.test_records import FULL


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "strom.db")
    found: str = request.getfixturevalue("postgres_database")
    return found


def dialect(url: str) -> Dialect:
    return dialect_of(parse_store_url(url))


def run_sql(url: str, *statements: str) -> None:
    connection = dialect(url).connect()
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def make_first_schema(url: str) -> None:
    from strom.stores.upgrade import migrate

    migrate(dialect(url), adopt=None, target="0001")


# --- every database ------------------------------------------------------------------------------


def test_an_empty_store_is_filled_at_the_start(url: str, tmp_path: Path) -> None:
    assert look(dialect(url)).standing == "empty"
    open_store(url, StoreOptions(journal_dir=tmp_path / "journals")).close()
    state = look(dialect(url))
    assert (state.standing, state.revision) == ("current", HEAD)


def test_an_upgrade_says_what_stood_before(url: str) -> None:
    make_first_schema(url)
    assert look(dialect(url)).standing == "outdated"
    assert upgrade_alone(dialect(url)).revision == "0001"
    assert upgrade_alone(dialect(url)).standing == "current"


def test_a_newer_store_is_refused(url: str, tmp_path: Path) -> None:
    options = StoreOptions(journal_dir=tmp_path / "journals", auto_upgrade=True)
    open_store(url, options).close()
    run_sql(url, "UPDATE alembic_version SET version_num = '9999'")
    for opening in (
        lambda: open_store(url, options),
        lambda: open_reader(url),
        lambda: open_response_store(url, ResponseLimits(), options),
        lambda: upgrade_alone(dialect(url)),
    ):
        with pytest.raises(ConfigError, match=r"newer version of Strom \(schema 9999"):
            opening()


def test_reading_changes_no_schema(url: str) -> None:
    make_first_schema(url)
    with pytest.raises(ConfigError, match="strom db upgrade --store"):
        open_reader(url)


def test_an_upgrade_that_fails_leaves_what_stood(url: str) -> None:
    make_first_schema(url)
    run_sql(url, "INSERT INTO calls (trace_id, usage) VALUES ('t1', '{')")
    with pytest.raises(JSONDecodeError):
        upgrade_alone(dialect(url))
    assert look(dialect(url)).revision == "0001"
    run_sql(url, "UPDATE calls SET usage = '{}'")
    upgrade_alone(dialect(url))
    assert look(dialect(url)).standing == "current"


# --- SQLite --------------------------------------------------------------------------------------


def test_a_file_of_the_first_releases_is_upgraded_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    first_release(path)
    store = open_store(sqlite_url(path))
    full = store.get("t1")
    assert full is not None
    assert full.error is not None
    assert full.error.message == "The stream ended early: ä\0\u2028."
    assert full.usage.parts == UsageParts(7, 3, 0, 20)
    expected = msgspec.structs.replace(
        FULL, continued=False, client=None, peer=None, error=full.error, usage=full.usage
    )
    assert full == expected
    assert store.get("t0") is not None
    store.close()
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT cost_amount, cost_currency FROM calls WHERE trace_id = 't1'").fetchone() == (
        "0.3",
        "EUR",
    )
    reader.close()


def test_what_ran_in_a_process_of_the_first_releases_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    first_release(path)
    store = open_store(sqlite_url(path))
    found = store.get("t2")
    assert found is not None
    assert (found.status, found.fault, found.error and found.error.code) == ("failed", "gateway", "lost")
    assert found.usage.output_tokens is None
    store.close()


def test_responses_of_the_first_releases_stay(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    first_release(path)
    store = open_response_store(sqlite_url(path), ResponseLimits())
    found = store.with_item("anna", "m1")
    assert found is not None
    assert (found.response, found.input_items, found.background) == (b'{"id":"r1"}', b'["x"]', True)
    assert store.events(Place("anna", "r1")) == [Events(0, b"abc")]
    assert store.delete(Place("anna", "r1"))
    assert store.events(Place("anna", "r1")) == []
    store.close()


def test_files_that_lack_what_came_later_within_the_first_schema(tmp_path: Path) -> None:
    """The first releases added columns when they opened a file, and made the tables of responses on demand."""
    path = tmp_path / "strom.db"
    first_release(path)
    connection = sqlite3.connect(path)
    connection.executescript("ALTER TABLE calls DROP COLUMN deltas; DROP TABLE responses; DROP TABLE response_items;")
    connection.execute("DROP TABLE response_events")
    connection.close()
    open_response_store(sqlite_url(path), ResponseLimits()).close()
    store = open_store(sqlite_url(path))
    found = store.get("t1")
    assert found is not None
    assert found.deltas == 0
    store.close()


def test_the_first_releases_would_refuse_what_came_after_them(tmp_path: Path) -> None:
    """They look at this table alone, and refuse a version over 1."""
    path = tmp_path / "strom.db"
    sql_store(sqlite_url(path)).close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM schema_version").fetchone()[0] > 1
    connection.close()


_START = """
import sys
from strom.core.record import CallRecord
from strom.stores.table import open_store
store = open_store(f"sqlite:///{sys.argv[1]}")
store.put(CallRecord(sys.argv[2], "completed", 1.0))
assert store.flush(20)
store.close()
"""


def test_several_processes_start_on_an_outdated_file(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    first_release(path)
    processes = [subprocess.Popen([sys.executable, "-c", _START, str(path), f"new{n}"]) for n in range(3)]
    assert [process.wait(90) for process in processes] == [0, 0, 0]
    reader = open_reader(sqlite_url(path))
    assert {record.trace_id for record in reader.list().records} == {"t0", "t1", "t2", "new0", "new1", "new2"}
    reader.close()


_LOOK = """
import sys
from strom.stores.table import open_store
open_store(f"sqlite:///{sys.argv[1]}").close()
assert not {"alembic", "sqlalchemy"} & set(sys.modules)
"""


def test_a_usual_start_imports_no_migration_tool(tmp_path: Path) -> None:
    path = tmp_path / "strom.db"
    sql_store(sqlite_url(path)).close()
    assert subprocess.run([sys.executable, "-c", _LOOK, str(path)], check=False, timeout=60).returncode == 0


# --- PostgreSQL ----------------------------------------------------------------------------------


def test_an_outdated_postgresql_is_refused_unless_told_otherwise(postgres_database: str, tmp_path: Path) -> None:
    make_first_schema(postgres_database)
    run_sql(postgres_database, "INSERT INTO calls (trace_id, status, started_at) VALUES ('old', 'completed', 1.0)")
    journals = tmp_path / "journals"
    with pytest.raises(ConfigError) as caught:
        open_store(postgres_database, StoreOptions(journal_dir=journals))
    assert "`strom db upgrade --store postgresql://strom@127.0.0.1" in caught.value.message
    assert "swordfish" not in caught.value.message
    store = open_store(postgres_database, StoreOptions(journal_dir=journals, auto_upgrade=True))
    assert store.get("old") == CallRecord("old", "completed", 1.0)
    store.close()


def test_the_password_may_come_from_the_environment(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head, _, place = postgres_database.partition("@")
    bare = f"{head.rpartition(':')[0]}@{place}"
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_store(bare, StoreOptions(journal_dir=tmp_path))
    monkeypatch.setenv("PGPASSWORD", head.rpartition(":")[2])
    open_store(bare, StoreOptions(journal_dir=tmp_path)).close()
