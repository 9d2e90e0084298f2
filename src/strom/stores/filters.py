"""A filter of records as the conditions of an SQL query."""

from __future__ import annotations

from typing import Any

from strom.stores.records import EQUAL, RecordFilter


def conditions_of(wanted: RecordFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for name, column in EQUAL.items():
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if wanted.status in ("started", "incomplete", "failed", "cancelled", "rejected"):
        conditions.append("status <> 'completed'")  # lets the index of those be used
    if wanted.model is not None:
        conditions.append("(model_requested = ? OR model_used = ?)")
        values += [wanted.model, wanted.model]
    for condition, instant in (
        ("started_at >= ?", wanted.since),
        ("started_at < ?", wanted.until),
        ("ended_at >= ?", wanted.ended_since),
    ):
        if instant is not None:
            conditions.append(condition)
            values.append(instant)
    return conditions, values
