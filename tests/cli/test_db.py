"""`strom db`: which schema stands, and how it is brought up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.stores.versions import HEAD
from tests.cli.conftest import Strom
from tests.stores.kinds import first_release, sqlite_url
from tests.stores.test_versions import make_first_schema, run_sql


def test_an_outdated_file(strom: Strom, tmp_path: Path) -> None:
    first_release(tmp_path / "s.db")
    url = sqlite_url(tmp_path / "s.db")
    shown = strom("db", "status", "--store", url)
    assert (shown.code, shown.out.split(": ")[1][:21]) == (1, "outdated, schema 0001")
    assert f"from schema 0001 to schema {HEAD}" in strom("db", "upgrade", "--store", url).out
    assert "already" in strom("db", "upgrade", "--store", url).out
    shown = strom("db", "status", "--store", url, "--json")
    assert (shown.code, shown.json["standing"], shown.json["schema"]) == (0, "current", HEAD)
    assert len(strom("traces", "list", "--store", url, "--json").json["data"]) == 3


def test_a_postgresql(strom: Strom, postgres_database: str, tmp_path: Path) -> None:
    assert "empty" in strom("db", "status", "--store", postgres_database).out
    make_first_schema(postgres_database)
    shown = strom("traces", "list", "--store", postgres_database)
    assert "strom db upgrade" in shown.err
    assert strom("db", "upgrade", "--store", postgres_database).code == 0
    assert strom("traces", "list", "--store", postgres_database, "--json").json["data"] == []
    run_sql(postgres_database, "UPDATE alembic_version SET version_num = '9999'")
    shown = strom("db", "upgrade", "--store", postgres_database)
    assert (shown.code, "newer version" in shown.err) == (1, True)


def test_the_store_of_the_configuration(strom: Strom, tmp_path: Path) -> None:
    first_release(tmp_path / "s.db")
    (tmp_path / "strom.toml").write_text(f'[store]\nurl = "{sqlite_url(tmp_path / "s.db")}"')
    assert strom("db", "upgrade", "--config", str(tmp_path / "strom.toml")).code == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://", "memory:// has no schema"),
        ("sqlite:///none.db", "there is no store at none.db"),
        ("postgresql://anna:geheim@127.0.0.1:1/x", "cannot be used"),
        ("mysql://x", "unknown kind of store"),
    ],
)
def test_stores_that_are_none(strom: Strom, url: str, words: str) -> None:
    shown = strom("db", "upgrade", "--store", url)
    assert (shown.code, shown.out) == (1, "")
    assert words in shown.err
    assert "geheim" not in shown.err
