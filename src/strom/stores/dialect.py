"""The seam between the SQL of this package and a database: what SQLite and PostgreSQL do differently, and nothing else.

All SQL here is written with `?` for values and in what both understand (upserts by ON CONFLICT, row comparisons). A dialect
connects, names its errors, and gives the few expressions that have no common form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def fetchmany(self, size: int = ...) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """The part of DB-API connections (PEP 249) that both drivers have, and that is used. Not for two threads at once."""

    def execute(self, sql: str, values: Any = ..., /) -> Cursor:
        """`values`: a sequence."""
        ...

    def executemany(self, sql: str, rows: Any, /) -> object:
        """`rows`: sequences."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Dialect(Protocol):
    """`errors`: whatever the database may raise. `impossible`: of those and others, what one bad value raises."""

    name: str
    errors: tuple[type[Exception], ...]
    impossible: tuple[type[Exception], ...]
    day: str
    """SQL: the day (UTC) of `started_at`, like 2026-03-01."""
    sum_cost: str
    """SQL: the exact sum of `cost_amount`."""

    @property
    def shown(self) -> str:
        """The store as messages name it, without secrets."""
        ...

    def connect(self) -> Connection:
        """For writing, to an existing database or a new file. Raises what `errors` names."""
        ...

    def connect_reading(self) -> Connection:
        """Never changes anything; each statement sees what is committed. Raises what `errors` names, or ConfigError."""
        ...

    def is_usable(self, connection: Connection) -> bool:
        """False: it is broken, and another one must take its place."""
        ...

    def tables(self, connection: Connection) -> set[str]: ...

    def alone(self, name: str) -> AbstractContextManager[bool]:
        """While the block runs no other process is in a block of this name; False: one is, and this one must do nothing."""
        ...
