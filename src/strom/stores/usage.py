"""What calls have used and cost, summed up by key, model, day and more.

Counts and amounts of calls that tell none are not guessed: sums hold what is known, and beside them stands how many calls it
leaves out. Amounts are exact decimals, one sum per currency. Days are those of UTC, by the start of the call.

Order: by the values grouped by, in the order of the grouping; a cursor names the last group seen.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from strom.core.errors import BadRequest
from strom.core.record import CallRecord, Status
from strom.stores.query import DEFAULT_LIMIT, parse_limit, parse_query
from strom.stores.records import RecordFilter
from strom.stores.rows import exact

Group = Literal["key", "model", "model_requested", "day", "provider", "endpoint", "region", "policy", "protocol"]
GROUPS: tuple[Group, ...] = get_args(Group)
STATUSES: tuple[Status, ...] = get_args(Status)
COLUMNS: dict[Group, str] = {
    "key": "key_name",
    "model": "coalesce(model_used, model_requested)",
    "model_requested": "model_requested",
    "provider": "provider",
    "endpoint": "endpoint_id",
    "region": "inference_region",
    "policy": "policy_id",
    "protocol": "protocol_in",
}
TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
FREE = ("rejected", "started")
"""Calls of which no cost is expected: they reached no backend, or have not ended."""
_CURSOR = msgspec.json.Decoder(tuple[str, ...])


class UsageQuery(msgspec.Struct, frozen=True):
    by: tuple[Group, ...] = ("key", "model", "day")
    wanted: RecordFilter = RecordFilter()
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


class Amount(msgspec.Struct, frozen=True):
    currency: str
    amount: Decimal


class UsageRow(msgspec.Struct):
    """One group. Of the first fields those are there that were grouped by; null: calls that have none."""

    key: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    model_requested: str | UnsetType | None = UNSET
    day: str | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    endpoint: str | UnsetType | None = UNSET
    region: str | UnsetType | None = UNSET
    policy: str | UnsetType | None = UNSET
    protocol: str | UnsetType | None = UNSET
    calls: int = 0
    calls_by_status: dict[str, int] = msgspec.field(default_factory=dict)
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """A part of `input_tokens`."""
    reasoning_tokens: int = 0
    """A part of `output_tokens`."""
    unknown_usage_calls: int = 0
    """Ended calls that reached a backend and of whose tokens nothing is known."""
    cost: list[Amount] = msgspec.field(default_factory=list)
    unknown_cost_calls: int = 0


class UsagePage(msgspec.Struct, frozen=True):
    data: list[UsageRow]
    next_cursor: str | None = None


encode_usage = msgspec.json.Encoder(decimal_format="number").encode
"""Amounts as JSON numbers, with every digit they have."""


def parse_usage_query(params: Mapping[str, str]) -> UsageQuery:
    """`by`: names separated by commas; the rest as for traces. Raises BadRequest."""
    rest = {name: value for name, value in params.items() if name not in ("by", "limit", "cursor")}
    by = tuple([word.strip() for word in params.get("by", "").split(",") if word.strip()]) or UsageQuery().by
    unknown = [word for word in by if word not in GROUPS]
    if unknown or len(set(by)) < len(by):
        raise BadRequest(f"by: expected some of {', '.join(GROUPS)}, each once", param="by")
    groups: tuple[Group, ...] = tuple([group for word in by for group in GROUPS if group == word])
    return UsageQuery(
        groups, parse_query(rest).wanted, parse_limit(params.get("limit", "")), params.get("cursor") or None
    )


# --- out of a database's rows ------------------------------------------------------------------------


def merged(by: tuple[Group, ...], rows: Iterable[Any]) -> Iterator[UsageRow]:
    """The rows of a group, one per currency, as one."""
    width = len(by)
    for group, parts in groupby(rows, key=lambda row: tuple(row[:width])):
        merged = _named(by, group)
        for part in parts:
            currency, sums, amount = part[width], [int(number) for number in part[width + 1 : -1]], part[-1]
            _add(merged, sums)
            if currency:
                merged.cost.append(Amount(currency, plain_decimal(Decimal(amount))))
        yield merged


def _add(row: UsageRow, sums: list[int]) -> None:
    """`sums` in the order in which `summing` asks for them."""
    calls, rest = sums[0], iter(sums[1:])
    row.calls += calls
    for status in STATUSES:
        count = next(rest)
        if count:
            row.calls_by_status[status] = row.calls_by_status.get(status, 0) + count
    for name in TOKENS:
        setattr(row, name, getattr(row, name) + next(rest))
    row.unknown_usage_calls += next(rest)
    row.unknown_cost_calls += next(rest)


# --- in memory -------------------------------------------------------------------------------------


def sum_up(records: Iterable[CallRecord], query: UsageQuery) -> UsagePage:
    """The same out of records in memory."""
    groups: dict[tuple[str, ...], UsageRow] = {}
    for record in records:
        if query.wanted.matches(record):
            group = tuple([_value(record, name) for name in query.by])
            _count(groups.setdefault(group, _named(query.by, group)), record)
    after = decode_group(query.cursor, len(query.by)) if query.cursor else None
    return page_of_usage(query, [groups[group] for group in sorted(groups) if after is None or group > after])


def _count(row: UsageRow, record: CallRecord) -> None:
    usage, cost, expected = record.usage, record.cost_estimate, record.status not in FREE
    counts = [getattr(usage, name) for name in TOKENS]
    unknown = usage.input_tokens is None and usage.output_tokens is None
    by_status = [int(record.status == status) for status in STATUSES]
    _add(
        row,
        [1, *by_status, *(count or 0 for count in counts), int(unknown and expected), int(cost is None and expected)],
    )
    if cost is not None:
        before = {amount.currency: amount.amount for amount in row.cost}
        before[cost.currency] = before.get(cost.currency, Decimal(0)) + Decimal(exact(cost.amount))
        row.cost = [Amount(currency, plain_decimal(before[currency])) for currency in sorted(before)]


def _value(record: CallRecord, name: Group) -> str:
    match name:
        case "day":
            return datetime.fromtimestamp(record.started_at, UTC).date().isoformat()
        case "model":
            return record.model_used or record.model_requested or ""
        case _:
            return getattr(record, COLUMNS[name]) or ""


# --- pages -----------------------------------------------------------------------------------------


def _named(by: tuple[Group, ...], group: tuple[str, ...]) -> UsageRow:
    row = UsageRow()
    for name, value in zip(by, group, strict=True):
        setattr(row, name, value or None)
    return row


def page_of_usage(query: UsageQuery, found: list[UsageRow]) -> UsagePage:
    shown = found[: query.limit]
    more = len(found) > query.limit
    return UsagePage(shown, encode_group(query.by, shown[-1]) if more and shown else None)


def encode_group(by: tuple[Group, ...], row: UsageRow) -> str:
    values = [getattr(row, name) or "" for name in by]
    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def decode_group(cursor: str, width: int) -> tuple[str, ...]:
    """Raises BadRequest."""
    try:
        values = _CURSOR.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        values = ()
    if len(values) != width:
        raise BadRequest("cursor: not a cursor of this list; take next_cursor as it came", param="cursor")
    return values


def plain_decimal(value: Decimal) -> Decimal:
    """Without zeros at the end, which differ from database to database, and without an exponent."""
    return Decimal(format(value.normalize(), "f"))
