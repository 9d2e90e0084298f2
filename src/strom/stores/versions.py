"""Which schema a database has, found out by plain SQL: the tool that migrates is imported only when there is something to do.

Revisions are numbered in the order of their making ("0001", "0002" …); Alembic's own table names the one that stands. Files
from before Alembic say it in `schema_version`: version 1 is revision "0001".

SQLite is brought up to date by whoever opens it first. A PostgreSQL that is empty is filled likewise; one that is outdated
stays as it is, since other replicas may still run the version it belongs to, and the start is refused with the command to run.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from strom.core.errors import ConfigError
from strom.stores.dialect import Connection, Dialect

HEAD = "0003"
_LONGEST_UPGRADE_S = 600.0
Standing = Literal["empty", "outdated", "current", "newer"]


class SchemaState(msgspec.Struct, frozen=True):
    standing: Standing
    revision: str | None = None


def state_of(dialect: Dialect, connection: Connection) -> SchemaState:
    """Raises what the dialect's errors name."""
    revision = _revision(dialect, connection)
    if revision is None:
        return SchemaState("empty")
    if revision == HEAD:
        return SchemaState("current", revision)
    return SchemaState("outdated" if revision < HEAD else "newer", revision)


def check_readable(dialect: Dialect, connection: Connection) -> None:
    """Raises ConfigError: reading changes nothing, so the schema must stand already."""
    state = state_of(dialect, connection)
    if state.standing == "current":
        return
    connection.close()
    raise ConfigError(_refusal(dialect, state))


def bring_up_to_date(dialect: Dialect, *, auto_upgrade: bool) -> None:
    """Raises ConfigError when the schema is newer than this version, or outdated and not to be touched."""
    state = look(dialect)
    if state.standing == "newer" or (state.standing == "outdated" and dialect.name != "sqlite" and not auto_upgrade):
        raise ConfigError(_refusal(dialect, state))
    if state.standing != "current":
        upgrade_alone(dialect)


def upgrade_alone(dialect: Dialect) -> SchemaState:
    """Upgrade while no other process does; returns what stood before. Raises ConfigError."""
    deadline = time.monotonic() + _LONGEST_UPGRADE_S
    while True:
        with dialect.alone("upgrade") as mine:
            if mine:
                return _upgrade(dialect)
        if time.monotonic() > deadline:
            raise ConfigError(f"another process has been upgrading {dialect.shown} for too long")
        time.sleep(0.1)


def look(dialect: Dialect) -> SchemaState:
    connection = dialect.connect()
    try:
        return state_of(dialect, connection)
    finally:
        connection.close()


def _upgrade(dialect: Dialect) -> SchemaState:
    state = look(dialect)
    if state.standing == "newer":
        raise ConfigError(_refusal(dialect, state))
    if state.standing != "current":
        from strom.stores.upgrade import migrate

        migrate(dialect, adopt=state.revision)
    return state


def _revision(dialect: Dialect, connection: Connection) -> str | None:
    tables = dialect.tables(connection)
    if "alembic_version" in tables:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is not None:
            return str(row[0])
    if "schema_version" in tables:
        row = connection.execute("SELECT version FROM schema_version").fetchone()
        return f"{row[0] if row else 1:04}"
    return None


def _refusal(dialect: Dialect, state: SchemaState) -> str:
    store = dialect.shown if dialect.name != "sqlite" else f"sqlite:///{dialect.shown}"
    match state.standing:
        case "newer":
            return f"the store {store} was written by a newer version of Strom (schema {state.revision}, this one knows {HEAD})"
        case "empty":
            return f"the store {store} is empty: no gateway has used it yet"
        case _:
            return (
                f"the store {store} has the schema {state.revision}, this version needs {HEAD}: run "
                f"`strom db upgrade --store {store}`"
            )
