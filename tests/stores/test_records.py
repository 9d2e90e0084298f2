"""What does not depend on where records lie: filters, pages, cursors, JSON, query strings, URLs, the table."""

from __future__ import annotations

import base64
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import BadRequest, ConfigError
from strom.core.record import Attempt, CallRecord, Cost, RecordError, RecordUsage, Timing
from strom.stores.memory import MemoryStore
from strom.stores.options import StoreOptions
from strom.stores.query import Query, encode_query, parse_instant, parse_query
from strom.stores.reading import SqlReader
from strom.stores.records import (
    RecordFilter,
    decode_cursor,
    encode_cursor,
    page_of,
    record_fields,
    record_json,
    started,
)
from strom.stores.rows import COLUMNS, decode, encode, exact, to_row
from strom.stores.sql_records import SqlStore
from strom.stores.table import DIALECTS, open_reader, open_store
from strom.stores.urls import KNOWN, StoreUrl, parse_store_url

FULL = CallRecord(
    trace_id="t1",
    status="incomplete",
    started_at=1_772_366_400.1234,
    ended_at=1_772_366_401.0,
    protocol_in="anthropic",
    protocol_out="openai-chat",
    model_requested="claude-x",
    model_used="qwen",
    model_version="v1",
    provider="mlx",
    endpoint_id="mlx-1",
    inference_region="eu-de",
    sovereignty_class="eu-owned",
    policy_id="eu-only",
    retention="none",
    key_name="ci",
    cost_estimate=Cost(0.3, "EUR", 0.1, 0.2),
    usage=RecordUsage(10, 20, 3, 4),
    usage_source="reported",
    timing=Timing(12.5, "content", 300.0, None, 11.0),
    attempts=[Attempt("mlx-0", "eu-de", "timeout", "upstream_timeout", 99.5), Attempt("mlx-1")],
    dropped=["top_k"],
    finish_reason="length",
    finish_reason_source="assumed",
    complete=True,
    continued=True,
    fault="upstream",
    error=RecordError("incomplete_stream", "The stream ended early."),
    http_status=200,
    streamed=True,
    bytes_out=1234,
    deltas=42,
    client="OpenAI/Python",
    peer="192.0.2.1",
)
BARE = CallRecord("t0")


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [FULL, BARE])
def test_rows_hold_the_record_and_what_queries_look_at(record: CallRecord) -> None:
    row = dict(zip(COLUMNS, to_row(record, encode(record)), strict=True))
    assert decode(row["record"]) == record
    assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    same = set(COLUMNS) & set(CallRecord.__struct_fields__)
    assert {name: row[name] for name in same} == {name: getattr(record, name) for name in same}
    tokens = [row[name] for name in COLUMNS if name.endswith("_tokens")]
    assert tokens == ([10, 20, 3, 4] if record is FULL else [None] * 4)


def test_every_field_of_the_full_record_differs_from_its_default() -> None:
    """So that the tests above say something about every column."""
    bare = msgspec.structs.asdict(BARE)
    assert [name for name, value in msgspec.structs.asdict(FULL).items() if value == bare[name]] == []


def test_a_record_from_before_a_field_existed_reads_as_its_default() -> None:
    assert decode('{"trace_id":"t0"}') == BARE


@given(st.integers(0, 10**14))
def test_amounts_of_up_to_15_digits_are_exact(trillionths: int) -> None:
    amount = Decimal(trillionths) / 10**12
    assert Decimal(exact(float(amount))) == amount


def test_amounts_have_no_exponent() -> None:
    assert [exact(amount) for amount in (2e-7, 0.0, 3.0, 10.0, 999.5, 1234.1)] == [
        "0.0000002",
        "0",
        "3",
        "10",
        "999.5",
        "1234.1",
    ]
    assert exact(1e20) == "100000000000000000000"


# --- JSON ----------------------------------------------------------------------------------------


def test_record_json_has_the_fields_of_the_contract() -> None:
    fields = msgspec.json.decode(record_json(FULL))
    routing_block = (
        "trace_id model_used model_version provider endpoint_id inference_region sovereignty_class policy_id retention "
        "cost_estimate usage_source timing attempts dropped complete"
    )
    of_the_record = (
        "status finish_reason usage fault error protocol_in protocol_out model_requested key_name started_at ended_at "
        "bytes_out deltas http_status streamed"
    )
    assert set((routing_block + " " + of_the_record).split()) <= set(fields)
    assert (fields["started_at"], fields["ended_at"]) == ("2026-03-01T12:00:00.123Z", "2026-03-01T12:00:01.000Z")
    assert fields["error"] == {"code": "incomplete_stream", "message": "The stream ended early."}
    assert fields["usage"]["cached_tokens"] == 3
    assert fields["timing"]["upstream_connect_ms"] is None


def test_what_is_unknown_is_null() -> None:
    fields = record_fields(BARE)
    assert [fields[name] for name in ("ended_at", "cost_estimate", "fault", "error", "http_status")] == [None] * 5


def test_a_started_record_is_a_copy_of_what_is_known_at_the_start() -> None:
    early = started(FULL)
    assert (early.status, early.trace_id, early.started_at, early.key_name) == ("started", "t1", FULL.started_at, "ci")
    assert (early.ended_at, early.provider, early.usage) == (None, None, RecordUsage())


# --- filters and pages ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (RecordFilter(), True),
        (RecordFilter(status="incomplete"), True),
        (RecordFilter(status="completed"), False),
        (RecordFilter(model="claude-x"), True),
        (RecordFilter(model="qwen"), True),
        (RecordFilter(model="other"), False),
        (RecordFilter(provider="mlx", key_name="ci", protocol_in="anthropic"), True),
        (RecordFilter(provider="mlx", key_name="other"), False),
        (RecordFilter(endpoint="mlx-1", region="eu-de", policy="eu-only", fault="upstream"), True),
        (RecordFilter(endpoint="mlx-2"), False),
        (RecordFilter(region="eu-fr"), False),
        (RecordFilter(policy="other"), False),
        (RecordFilter(fault="client"), False),
        (RecordFilter(since=FULL.started_at), True),
        (RecordFilter(since=FULL.started_at + 0.1), False),
        (RecordFilter(until=FULL.started_at), False),
        (RecordFilter(until=FULL.started_at + 0.1), True),
        (RecordFilter(ended_since=1_772_366_401.0), True),
        (RecordFilter(ended_since=1_772_366_401.5), False),
    ],
)
def test_filter(wanted: RecordFilter, matches: bool, tmp_path: Path) -> None:
    """In memory and in the file alike."""
    assert wanted.matches(FULL) is matches
    store = open_store(f"sqlite:///{tmp_path / 's.db'}", StoreOptions(interval_s=0))
    store.put(FULL)
    assert store.flush()
    assert bool(store.list(wanted).records) is matches
    store.close()


def test_what_has_not_ended_did_not_end_since() -> None:
    assert not RecordFilter(ended_since=0.0).matches(BARE)


def test_pages_go_from_new_to_old_without_gaps() -> None:
    records = [CallRecord(f"t{at:02}", started_at=float(at // 2)) for at in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = page_of(records, RecordFilter(), 3, cursor)
        seen += [record.trace_id for record in page.records]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ["t06", "t05", "t04", "t03", "t02", "t01", "t00"]


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=40))
def test_cursors_come_back(instant: float, trace_id: str) -> None:
    cursor = encode_cursor(CallRecord(trace_id, started_at=instant))
    assert decode_cursor(cursor) == (instant, trace_id)
    assert cursor.isascii()


@pytest.mark.parametrize("cursor", ["x", "!!!!", "ä", base64.urlsafe_b64encode(b'[1,"a",2]').decode(), "bnVsbA"])
def test_a_foreign_cursor_is_the_clients_mistake(cursor: str) -> None:
    with pytest.raises(BadRequest, match="not a cursor"):
        decode_cursor(cursor)


# --- the query string ----------------------------------------------------------------------------


def test_queries_come_back() -> None:
    wanted = RecordFilter("failed", "m", "p", "k", "ollama", "e", "eu-de", "pol", "client", 1.5, 2.25, 3.125)
    query = Query(wanted, 7, "abc")
    assert parse_query(encode_query(query)) == query
    assert parse_query(encode_query(Query())) == Query() == parse_query({"status": "", "limit": "", "stream": "false"})


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"stauts": "failed"}, "unknown query parameter 'stauts'"),
        ({"status": "broken"}, "status: expected one of started, completed"),
        ({"fault": "nobody"}, "fault: expected one of client, upstream, gateway"),
        ({"since": "yesterday"}, "since: expected a time"),
        ({"limit": "0"}, "limit: expected a number from 1 to 1000"),
        ({"limit": "1001"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "²"}, "limit"),
    ],
)
def test_queries_that_make_no_sense(params: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        parse_query(params)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-01T12:00:00Z", 1_772_366_400.0),
        ("2026-03-01T13:00:00+01:00", 1_772_366_400.0),
        ("2026-03-01T12:00:00", 1_772_366_400.0),
        ("2026-03-01", 1_772_323_200.0),
        ("1772366400.5", 1_772_366_400.5),
    ],
)
def test_instants(text: str, instant: float) -> None:
    assert parse_instant(text, "since") == instant


# --- URLs and the table --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("sqlite:///strom.db", StoreUrl("sqlite", "strom.db")),
        ("sqlite:///data/strom.db", StoreUrl("sqlite", "data/strom.db")),
        ("sqlite:////var/lib/strom.db", StoreUrl("sqlite", "/var/lib/strom.db")),
        ("memory://", StoreUrl("memory")),
        ("postgres://user@host/db", StoreUrl("postgresql", target="postgresql://user@host/db")),
    ],
)
def test_store_urls(url: str, parsed: StoreUrl) -> None:
    assert parse_store_url(url) == parsed


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://strom.db", "sqlite:///file.db"),
        ("sqlite:///", "sqlite:///file.db"),
        ("sqlite:////", "sqlite:///file.db"),
        ("sqlite:///:memory:", "use memory://"),
        ("memory://x", "nothing after"),
        ("postgresql://user:geheim@host", "expected postgresql://user@host/database"),
        ("postgresql://user:geheim@host/a/b", "expected postgresql://user@host/database"),
        ("mysql://host/db", "unknown kind of store mysql://"),
        ("strom.db", "unknown kind of store; known"),
        ("a b://x", "unknown kind of store; known"),
    ],
)
def test_store_urls_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_store_url(url)


def test_the_table_knows_what_urls_may_name() -> None:
    assert {"memory", *DIALECTS} == set(KNOWN)


def test_a_url_is_shown_without_its_password() -> None:
    url = parse_store_url("postgresql://anna:geheim@host:5432/db?password=geheim2&sslmode=require")
    assert url.shown == "postgresql://anna@host:5432/db"
    assert "geheim" not in repr(url)
    assert url.digest == parse_store_url("postgresql://anna:other@host:5432/db").digest


def test_open_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'strom.db'}"
    with pytest.raises(ConfigError, match="no store at"):
        open_reader(url)
    store = open_store(url)
    assert isinstance(store, SqlStore)
    reader = open_reader(url)
    assert isinstance(reader, SqlReader)
    assert isinstance(open_store("memory://"), MemoryStore)
    with pytest.raises(ConfigError, match="ask the gateway"):
        open_reader("memory://")
    reader.close()
    store.close()
