"""The tables of managed keys, in SQL that SQLite and PostgreSQL both understand.

`keys_version` has one row: what it counts is all that a process has to look at to know that nothing has changed.
"""

from __future__ import annotations

STATEMENTS = (
    """CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        prefix TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION,
        disabled INTEGER NOT NULL DEFAULT 0,
        revoked_at DOUBLE PRECISION,
        last_used_at DOUBLE PRECISION,
        scopes TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX keys_by_name ON keys (name) WHERE revoked_at IS NULL",
    "CREATE UNIQUE INDEX keys_by_prefix ON keys (prefix)",
    "CREATE INDEX keys_by_time ON keys (created_at, id)",
    """CREATE TABLE key_hashes (
        sha256 TEXT PRIMARY KEY,
        key_id TEXT NOT NULL REFERENCES keys (id),
        created_at DOUBLE PRECISION NOT NULL,
        expires_at DOUBLE PRECISION
    )""",
    "CREATE INDEX key_hashes_by_key ON key_hashes (key_id)",
    "CREATE TABLE keys_version (version BIGINT NOT NULL)",
    "INSERT INTO keys_version VALUES (0)",
)
