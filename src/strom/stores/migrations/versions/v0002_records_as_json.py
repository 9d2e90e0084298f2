"""Records as JSON with the columns that queries need; exact amounts; stored content that says with which key it is sealed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_BATCH = 500
_LOST = {
    "status": "failed",
    "fault": "gateway",
    "error": {"code": "lost", "message": "The process that ran this call died before the call ended."},
}
"""The first releases kept no journal: whoever ran such a call before this upgrade is gone."""
_NESTED = ("cost_estimate", "usage", "timing", "attempts", "dropped", "error")
_FLAGS = ("complete", "streamed")
_GONE = "TRIGGER IF EXISTS responses_gone"


def upgrade() -> None:
    tables = set(sa.inspect(op.get_bind()).get_table_names())
    _renew_calls()
    if "responses" not in tables:
        from strom.stores.migrations.versions.v0001_first import create_responses

        create_responses()
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"DROP {_GONE}")
    op.add_column("responses", sa.Column("key_id", sa.Text))
    op.add_column("responses", sa.Column("put_at", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("response_events", sa.Column("key_id", sa.Text))
    op.create_index("responses_by_expiry", "responses", ["expires_at"])
    op.execute("UPDATE schema_version SET version = 2")  # what the first releases look at before they refuse


def _renew_calls() -> None:
    op.drop_index("calls_by_time", "calls")
    op.drop_index("calls_by_end", "calls")
    op.rename_table("calls", "calls_before")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX calls_pkey RENAME TO calls_before_pkey")
    calls = _create_calls()
    for batch in _batches():
        op.bulk_insert(calls, batch)
    op.drop_table("calls_before")
    op.create_index("calls_by_time", "calls", ["started_at", "trace_id"])
    op.create_index("calls_by_end", "calls", ["ended_at"])
    op.create_index("calls_by_key", "calls", ["key_name", "started_at", "trace_id"])
    op.create_index("calls_by_endpoint", "calls", ["endpoint_id", "started_at", "trace_id"])
    unwell = sa.text("status <> 'completed'")
    columns = ["status", "started_at", "trace_id"]
    op.create_index("calls_unwell", "calls", columns, sqlite_where=unwell, postgresql_where=unwell)


def _create_calls() -> sa.Table:
    texts = (
        "status protocol_in model_requested model_used provider endpoint_id inference_region policy_id key_name fault"
    )
    tokens = "input_tokens output_tokens cached_tokens reasoning_tokens"
    return op.create_table(
        "calls",
        sa.Column("trace_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        *(sa.Column(name, sa.Text) for name in texts.split()),
        *(sa.Column(name, sa.BigInteger) for name in tokens.split()),
        sa.Column("cost_amount", sa.Numeric().with_variant(sa.Text(), "sqlite")),
        sa.Column("cost_currency", sa.Text),
        sa.Column("record", sa.Text, nullable=False),
    )


def _batches() -> Iterator[list[dict[str, Any]]]:
    """In the order of their ids, so that memory is bounded."""
    query = "SELECT * FROM calls_before {} ORDER BY trace_id LIMIT :count"
    first, later = sa.text(query.format("")), sa.text(query.format("WHERE trace_id > :after"))
    values: dict[str, Any] = {"count": _BATCH}
    while rows := op.get_bind().execute(later if "after" in values else first, values).mappings().all():
        yield [_row(dict(row)) for row in rows]
        values["after"] = rows[-1]["trace_id"]


def _row(before: Mapping[str, Any]) -> dict[str, Any]:
    record = {name: value for name, value in before.items() if value is not None}
    for name in _NESTED:
        if name in record:
            record[name] = json.loads(record[name])
    for name in _FLAGS:
        if name in record:
            record[name] = bool(record[name])
    record.setdefault("started_at", 0.0)
    if record.get("status") == "started":
        record |= _LOST
    usage, cost = record.get("usage", {}), record.get("cost_estimate")
    row = {name: record.get(name) for name in _COPIED}
    row |= {name: usage.get(name) for name in _TOKENS}
    row["started_at"] = record["started_at"]
    row["cost_amount"] = None if cost is None else _amount(cost["amount"])
    row["cost_currency"] = None if cost is None else cost["currency"]
    row["record"] = json.dumps(record, separators=(",", ":"))
    return row


_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_COPIED = (
    "trace_id", "ended_at", "status", "protocol_in", "model_requested", "model_used", "provider", "endpoint_id",
    "inference_region", "policy_id", "key_name", "fault",
)  # fmt: skip


def _amount(amount: float) -> Any:
    exact = Decimal(repr(amount))
    return exact if op.get_bind().dialect.name == "postgresql" else format(exact, "f")
