"""Managed keys: their hashes, their scopes, and a count of changes."""

from __future__ import annotations

from alembic import op

from strom.stores.keys_schema import STATEMENTS

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
    op.execute("UPDATE schema_version SET version = 3")
