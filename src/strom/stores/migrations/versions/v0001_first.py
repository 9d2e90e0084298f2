"""The schema of the first releases: one column per field of a record, stored Responses with their items and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_TEXTS = (
    "protocol_in protocol_out model_requested model_used model_version provider endpoint_id inference_region sovereignty_class "
    "policy_id retention key_name cost_estimate usage usage_source timing attempts dropped finish_reason finish_reason_source"
)


def upgrade() -> None:
    op.create_table("schema_version", sa.Column("version", sa.Integer, nullable=False))
    op.execute("INSERT INTO schema_version VALUES (1)")
    op.create_table(
        "calls",
        sa.Column("trace_id", sa.Text, primary_key=True),
        sa.Column("status", sa.Text),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        *(sa.Column(name, sa.Text) for name in _TEXTS.split()),
        sa.Column("complete", sa.Integer),
        sa.Column("fault", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("http_status", sa.Integer),
        sa.Column("streamed", sa.Integer),
        sa.Column("bytes_out", sa.BigInteger),
        sa.Column("deltas", sa.Integer),
    )
    op.create_index("calls_by_time", "calls", [sa.text("started_at DESC"), sa.text("trace_id DESC")])
    op.create_index("calls_by_end", "calls", ["ended_at"])
    create_responses()


def create_responses() -> None:
    """Also what 0002 makes where responses were never stored: the first releases made these tables on demand."""
    op.create_table(
        "responses",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("running_until", sa.Double),
        sa.Column("background", sa.Integer, nullable=False),
        sa.Column("cancel", sa.Integer, nullable=False, server_default="0"),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("events_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("response", sa.LargeBinary, nullable=False),
        sa.Column("input_items", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "responses_by_age", "responses", ["created_at", "expires_at", "running_until", "size_bytes", "events_bytes"]
    )
    op.create_table(
        "response_items",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("item_id", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
    )
    op.create_index("response_items_by_response", "response_items", ["owner", "response_id"])
    op.create_table(
        "response_events",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, primary_key=True),
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("frames", sa.LargeBinary, nullable=False),
    )
