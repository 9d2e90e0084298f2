"""`strom traces export`: every record, in every format, a page at a time."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from strom.cli.export import COLUMNS, flat, open_sink
from strom.core.record import CallRecord, Cost
from strom.stores.options import StoreOptions
from strom.stores.records import record_fields
from strom.stores.table import open_store
from tests.cli.conftest import Strom
from tests.stores.test_records import FULL

COUNT = 2500


@pytest.fixture
def url(tmp_path: Path) -> str:
    """More records than fit into a page, two of them unusual."""
    found = f"sqlite:///{tmp_path / 'strom.db'}"
    store = open_store(found, StoreOptions(interval_s=0))
    store.put(FULL)
    store.put(CallRecord("evil", "rejected", 2.0, model_requested='=HYPERLINK("http://x")', key_name='a "b", c\nd'))
    for number in range(COUNT - 2):
        store.put(CallRecord(f"n{number:05}", "completed", 1.0 + number / 1e5))
    assert store.flush(30)
    store.close()
    return found


def test_json_lines_are_the_records(strom: Strom, url: str) -> None:
    shown = strom("traces", "export", "--store", url)
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert (len(lines), shown.err) == (COUNT, f"{COUNT} calls\n")
    assert lines[0] == record_fields(FULL)
    assert len({line["trace_id"] for line in lines}) == COUNT


def test_csv(strom: Strom, url: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    assert strom("traces", "export", "--store", url, "--format", "csv", "-o", str(path)).code == 0
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    assert len(rows) == COUNT
    full = rows[0]
    assert list(full) == list(COLUMNS)
    assert (full["usage.input_tokens"], full["cost_estimate.amount"], full["complete"]) == ("10", "0.3", "true")
    assert json.loads(full["attempts"]) == msgspec.to_builtins(FULL.attempts)
    assert full["timing.upstream_connect_ms"] == ""
    evil = rows[1]
    assert (evil["model_requested"], evil["key_name"]) == ('\'=HYPERLINK("http://x")', 'a "b", c\nd')


def test_parquet(strom: Strom, url: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "calls.parquet"
    assert strom("traces", "export", "--store", url, "--format", "parquet", "-o", str(path)).code == 0
    file = parquet.ParquetFile(path)
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (COUNT, 3)
    rows = file.read().to_pylist()
    assert rows[0]["usage.output_tokens"] == 20
    assert rows[0]["started_at"] == datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    assert rows[0]["complete"] is True
    assert rows[1]["cost_estimate.amount"] is None
    assert rows[1]["model_requested"] == '=HYPERLINK("http://x")'


def test_filters(strom: Strom, url: str) -> None:
    shown = strom("traces", "export", "--store", url, "--region", "eu-de", "--fault", "upstream", "--policy", "eu-only")
    assert [json.loads(line)["trace_id"] for line in shown.out.splitlines()] == ["t1"]


def test_every_leaf_of_a_record_has_its_column() -> None:
    leaves = flat(record_fields(FULL))
    unknown = {f"usage.parts.{name}" for name in ("input", "cache_read", "cache_write", "output")}
    assert {name for name, value in leaves.items() if value is None} == unknown | {"timing.upstream_connect_ms"}
    assert COLUMNS["cost_estimate.amount"] is float
    assert flat(record_fields(CallRecord("t")))["cost_estimate.amount"] is None
    assert isinstance(FULL.cost_estimate, Cost)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    def fail() -> None:
        with open_sink("jsonl", str(path)) as sink:
            sink.write([record_fields(FULL)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written(strom: Strom, url: str, tmp_path: Path) -> None:
    shown = strom("traces", "export", "--store", url, "-o", str(tmp_path / "no" / "x"))
    assert (shown.code, "cannot be written" in shown.err) == (1, True)
    assert strom("traces", "export", "--store", url, "--format", "parquet").code == 2


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_memory_does_not_grow_with_the_records(kind: str, tmp_path: Path) -> None:
    page = [record_fields(FULL)] * 200
    with open_sink(kind, str(tmp_path / "out")) as sink:
        for _ in range(3):
            sink.write(page)
        tracemalloc.start()
        for _ in range(15):
            sink.write(page)
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert grown < 400_000
