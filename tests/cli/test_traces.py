"""`strom traces`: from a file and from a gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl, urlsplit

import pytest

from strom.cli.record_options import FAULTS, STATUSES
from strom.cli.trace_source import StoreSource
from strom.cli.traces import follow
from strom.core.errors import Fault
from strom.core.record import Attempt, CallRecord, RecordUsage, Status, Timing
from strom.stores.memory import MemoryStore
from strom.stores.options import StoreOptions
from strom.stores.query import parse_query
from strom.stores.records import RecordFilter, record_fields
from strom.stores.table import open_store
from tests.cli.conftest import Outcome, Served, Strom
from tests.cli.test_main import ENVIRONMENT
from tests.patience import PATIENCE_S

NOON = 1_772_366_400.0


def call(number: int, status: Status = "completed") -> CallRecord:
    return CallRecord(
        f"t{number}",
        status,
        NOON + number,
        NOON + number + 1,
        protocol_in="ollama",
        model_requested="asked",
        model_used="used" if number % 2 else None,
        provider="mlx",
        key_name="ci",
        usage=RecordUsage(10, 20),
        timing=Timing(12.4, "content", 300.6),
        attempts=[Attempt("mlx-1")],
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = open_store(f"sqlite:///{tmp_path / 'strom.db'}", StoreOptions(interval_s=0))
    for number in range(3):
        store.put(call(number, "failed" if number == 2 else "completed"))
    store.close()
    return f"sqlite:///{tmp_path / 'strom.db'}"


def trace_ids(shown: Outcome) -> list[str]:
    return [trace["trace_id"] for trace in shown.json["data"]]


def test_the_statuses_are_those_of_records() -> None:
    assert get_args(Status) == STATUSES
    assert get_args(Fault) == FAULTS


def test_list(strom: Strom, url: str) -> None:
    assert strom("traces", "list", "--store", url).out.splitlines() == [
        "STARTED                   STATUS     MODEL  PROVIDER  KEY  IN  OUT  TTFT ms  TOTAL ms  TRACE",
        "2026-03-01T12:00:02.000Z  failed     asked  mlx       ci   10  20   12       301       t2",
        "2026-03-01T12:00:01.000Z  completed  used   mlx       ci   10  20   12       301       t1",
        "2026-03-01T12:00:00.000Z  completed  asked  mlx       ci   10  20   12       301       t0",
    ]
    assert strom("traces", "list", "--store", url, "--json").json == {
        "data": [record_fields(call(number, "failed" if number == 2 else "completed")) for number in (2, 1, 0)],
        "next_cursor": None,
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--status failed", ["t2"]),
        ("--model used", ["t1"]),
        ("--provider other", []),
        ("--key ci --protocol ollama", ["t2", "t1", "t0"]),
        ("--since 2026-03-01T12:00:01Z", ["t2", "t1"]),
        ("--until 2026-03-01T12:00:01Z", ["t0"]),
        ("--since 1s", []),
    ],
)
def test_filters(strom: Strom, url: str, options: str, found: list[str]) -> None:
    assert trace_ids(strom("traces", "list", "--store", url, "--json", *options.split())) == found


def test_pages(strom: Strom, url: str) -> None:
    first = strom("traces", "list", "--store", url, "--limit", "2")
    cursor = first.err.split()[-1]
    assert first.err == f"There is more: --cursor {cursor}\n"
    assert trace_ids(strom("traces", "list", "--store", url, "--json", "--cursor", cursor)) == ["t0"]


def test_show(strom: Strom, url: str) -> None:
    shown = strom("traces", "show", "t1", "--store", url)
    lines = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert (lines["trace_id"], lines["attempts[0].endpoint_id"], lines["timing.first_token_kind"]) == (
        "t1",
        "mlx-1",
        "content",
    )
    assert (lines["complete"], lines["dropped"], lines["fault"]) == ("no", "-", "-")
    assert strom("traces", "show", "t1", "--store", url, "--json").json == record_fields(call(1))
    assert strom("traces", "show", "t\x1b9", "--store", url) == Outcome(1, "", "strom: there is no trace t\ufffd9\n")


def test_the_store_of_the_configuration(
    strom: Strom, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "strom.toml"
    path.write_text(f'[store]\nurl = "{url}"')
    assert trace_ids(strom("traces", "list", "--config", str(path), "--json")) == ["t2", "t1", "t0"]
    monkeypatch.chdir(tmp_path)
    assert trace_ids(strom("traces", "list", "--json")) == ["t2", "t1", "t0"]
    monkeypatch.setenv("STROM_STORE_URL", "sqlite:///none.db")
    assert strom("traces", "list").err == "strom: there is no store at none.db\n"


# --- a running gateway ---------------------------------------------------------------------------


def test_list_of_a_gateway(strom: Strom, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.answers["/platform/v1/traces"] = (200, {"data": [record_fields(call(1))], "next_cursor": "abc"})
    monkeypatch.setenv("K", "admin-1")
    arguments = [
        "traces",
        "list",
        "--url",
        served.url,
        "--api-key-env",
        "K",
        "--status",
        "completed",
        "--since",
        str(NOON),
        "--cursor",
        "x",
    ]
    shown = strom(*arguments, "--json")
    assert shown.json == {"data": [record_fields(call(1))], "next_cursor": "abc"}
    path, headers = served.requests[0]
    assert headers["authorization"] == "Bearer admin-1"
    query = parse_query(dict(parse_qsl(urlsplit(path).query)))
    assert (query.wanted, query.limit, query.cursor) == (RecordFilter(status="completed", since=NOON), 20, "x")


def test_show_of_a_gateway(strom: Strom, served: Served) -> None:
    served.answers["/platform/v1/traces/t%2F1"] = (200, record_fields(call(1)))
    assert strom("traces", "show", "t/1", "--url", served.url, "--json").json == record_fields(call(1))
    assert strom("traces", "show", "t2", "--url", served.url).code == 1
    served.answers["/platform/v1/traces/t3"] = (200, [])
    assert strom("traces", "show", "t3", "--url", served.url).code == 1


def test_what_is_no_gateway(strom: Strom, served: Served) -> None:
    served.answers["/platform/v1/traces"] = (200, {"hello": "world"})
    assert "is --url the address of a Strom gateway?" in strom("traces", "list", "--url", served.url).err


# --- tail ----------------------------------------------------------------------------------------


def settled(trace_id: str, ended_at: float) -> CallRecord:
    return CallRecord(trace_id, "completed", ended_at - 100, ended_at, provider="mlx")


def test_follow_tells_every_call_once_in_the_order_of_ending() -> None:
    store = MemoryStore()
    now = time.time()
    store.put(settled("before", now - 60))
    store.begin(CallRecord("running", started_at=now))
    following: Iterator[dict[str, object]] = follow(StoreSource(store), RecordFilter(provider="mlx"), 0)
    later = time.time() + 1
    store.put(settled("second", later + 0.2))
    store.put(settled("first", later + 0.1))
    other = settled("other", later)
    other.provider = "else"
    store.put(other)
    assert [next(following)["trace_id"] for _ in range(2)] == ["first", "second"]
    store.put(settled("third", later + 0.15))
    assert next(following)["trace_id"] == "third"


def test_follow_reads_every_page() -> None:
    store = MemoryStore()
    following = follow(StoreSource(store), RecordFilter(), 0)
    ended = time.time() + 1
    for number in range(1100):
        store.put(settled(f"t{number:04}", ended + number / 10_000))
    assert [next(following)["trace_id"] for _ in range(1100)] == [f"t{number:04}" for number in range(1100)]


@pytest.mark.parametrize("options", [["--json"], []])
def test_tail_prints_until_ctrl_c(tmp_path: Path, options: list[str]) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'strom.db'}", StoreOptions(interval_s=0))
    command = [sys.executable, "-u", "-m", "strom", "traces", "tail", "--interval", "0.1", *options]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if not options:
            assert process.stdout.readline().startswith("STARTED  STATUS")
        store.put(settled("t1", time.time() + 5))
        line = process.stdout.readline()
        assert (json.loads(line)["trace_id"] if options else line.split()[-1]) == "t1"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.stdout.close()
        store.close()
