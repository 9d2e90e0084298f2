"""The sums of usage.py made by a database: one statement, which sees one state of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strom.stores.dialect import Dialect
from strom.stores.filters import conditions_of
from strom.stores.usage import (
    COLUMNS,
    FREE,
    STATUSES,
    TOKENS,
    UsagePage,
    UsageQuery,
    decode_group,
    merged,
    page_of_usage,
)

Rows = Callable[[str, Sequence[Any]], Sequence[Any]]
"""Runs a query."""
CURRENCIES = 16
"""A group is read as a whole: so many currencies, at most, are counted on in one."""


def read_usage(dialect: Dialect, run: Rows, query: UsageQuery) -> UsagePage:
    """Raises GatewayError, BadRequest."""
    sql, values = summing(dialect, query)
    count = (query.limit + 1) * CURRENCIES
    rows = run(sql, [*values, count])
    found = list(merged(query.by, rows))
    if len(rows) == count:
        found.pop()  # it may go on beyond what was read
    return page_of_usage(query, found)


def summing(dialect: Dialect, query: UsageQuery) -> tuple[str, list[Any]]:
    """The query but for the value of its limit. One row for each group and currency."""
    groups = [f"coalesce({dialect.day if name == 'day' else COLUMNS[name]}, '')" for name in query.by]
    conditions, values = conditions_of(query.wanted)
    if query.cursor is not None:
        conditions.append(f"({', '.join(groups)}) > ({', '.join('?' * len(groups))})")
        values += decode_group(query.cursor, len(groups))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    free = ", ".join(f"'{status}'" for status in FREE)
    sums = [
        "count(*)",
        *(f"sum(CASE WHEN status = '{status}' THEN 1 ELSE 0 END)" for status in STATUSES),
        *(f"coalesce(sum({name}), 0)" for name in TOKENS),
        f"sum(CASE WHEN input_tokens IS NULL AND output_tokens IS NULL AND status NOT IN ({free}) THEN 1 ELSE 0 END)",
        f"sum(CASE WHEN cost_currency IS NULL AND status NOT IN ({free}) THEN 1 ELSE 0 END)",
        dialect.sum_cost,
    ]
    columns = ", ".join([*groups, "coalesce(cost_currency, '')", *sums])
    order = ", ".join(str(at) for at in range(1, len(groups) + 2))
    return f"SELECT {columns} FROM calls{where} GROUP BY {order} ORDER BY {order} LIMIT ?", values  # noqa: S608
