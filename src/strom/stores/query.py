"""The query string of `/platform/v1/traces`, read and written: one place for the gateway and for its command line.

Parameters: the fields of `RecordFilter`, limit, cursor; `stream` is left to whoever refuses it. Times are RFC 3339 or Unix
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from strom.core.errors import BadRequest, Fault
from strom.core.record import Status
from strom.stores.records import RecordFilter, rfc3339

DEFAULT_LIMIT, MAX_LIMIT = 200, 1000
_TIMES = ("since", "until", "ended_since")


class Query(msgspec.Struct, frozen=True):
    wanted: RecordFilter = RecordFilter()
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


def parse_query(params: Mapping[str, str]) -> Query:
    """Raises BadRequest for a parameter that is unknown or makes no sense. Empty ones count as absent."""
    given = {name: value for name, value in params.items() if value and name != "stream"}
    limit, cursor = parse_limit(given.pop("limit", "")), given.pop("cursor", None)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name not in RecordFilter.__struct_fields__:
            raise BadRequest(f"unknown query parameter {name!r}", param=name)
        fields[name] = parse_instant(value, name) if name in _TIMES else value
    for name, known in (("status", get_args(Status)), ("fault", get_args(Fault))):
        if name in fields and fields[name] not in known:
            raise BadRequest(f"{name}: expected one of {', '.join(known)}", param=name)
    return Query(RecordFilter(**fields), limit, cursor)


def encode_query(query: Query) -> dict[str, str]:
    """The parameters that `parse_query` reads back."""
    params = {
        name: value for name in RecordFilter.__struct_fields__ if (value := getattr(query.wanted, name)) is not None
    }
    shown = {name: rfc3339(value) if name in _TIMES else value for name, value in params.items()}
    return shown | {"limit": str(query.limit)} | ({"cursor": query.cursor} if query.cursor else {})


def parse_instant(text: str, param: str) -> float:
    """Unix seconds. Raises BadRequest; a time without a zone is UTC."""
    try:
        try:
            return datetime.fromtimestamp(float(text), UTC).timestamp()
        except ValueError:
            instant = datetime.fromisoformat(text)
            return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):  # also for a number that is no time, or that no calendar holds
        raise BadRequest(f"{param}: expected a time like 2026-03-01T12:00:00Z, or Unix seconds", param=param) from None


def parse_limit(text: str) -> int:
    """Raises BadRequest."""
    if not text:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LIMIT:
        raise BadRequest(f"limit: expected a number from 1 to {MAX_LIMIT}", param="limit")
    return int(text)
