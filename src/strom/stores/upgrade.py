"""Runs the migrations. Imported only when one is due: Alembic and SQLAlchemy take longer to import than a gateway to start.

All migrations of one upgrade are one transaction: an upgrade that is cut short leaves what stood before.
Source: Alembic 1.20 "Sharing a Connection across one or more programmatic migration commands"; SQLAlchemy 2.1, SQLite dialect,
"Transactions with SQLite and the sqlite3 driver" (why BEGIN is ours to send).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from strom.core.errors import ConfigError
from strom.stores.dialect import Dialect
from strom.stores.postgres import PostgresConnection

SCRIPTS = Path(__file__).with_name("migrations")
_DRIVERS = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}


def migrate(dialect: Dialect, *, adopt: str | None, target: str = "head") -> None:
    """`adopt`: the revision that stands already, also where no migration has noted it. Raises ConfigError."""
    engine = _engine(dialect)
    try:
        with engine.begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
            config.attributes["connection"] = connection
            if adopt is not None:
                command.stamp(config, adopt)
            command.upgrade(config, target)
    except sa.exc.DBAPIError as error:
        why = " ".join(str(error.orig).split())[:300]
        raise ConfigError(f"the store {dialect.shown} cannot be upgraded: {why}") from None
    finally:
        engine.dispose()


def _engine(dialect: Dialect) -> sa.Engine:
    def connect() -> Any:
        made = dialect.connect()
        return made.inner if isinstance(made, PostgresConnection) else made

    engine = sa.create_engine(_DRIVERS[dialect.name], creator=connect, poolclass=sa.NullPool)
    if dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _leave_transactions_to_us)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _leave_transactions_to_us(connection: Any, _: object) -> None:
    connection.isolation_level = None


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
