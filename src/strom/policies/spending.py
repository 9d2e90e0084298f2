"""What budgets have cost before this process began: out of the ledger, which is the store of records.

Sums are exact decimals, one per currency; a budget counts its own currency alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

import msgspec

from strom.policies.limits import LimitBook, to_money
from strom.shared.limiter import Limiter, Scope, period_around
from strom.stores.records import RecordFilter
from strom.stores.usage import UsagePage, UsageQuery, UsageRow

Usage = Callable[[UsageQuery], UsagePage]


def seed_budgets(limiter: Limiter, book: LimitBook, scopes: Iterable[Scope], usage: Usage, now: float) -> None:
    """Tell the limiter what these scopes have spent in their present periods. Blocks; raises StromError."""
    by_start: dict[int, list[Scope]] = {}
    for scope in scopes:
        by_start.setdefault(period_around(now, scope.per)[0], []).append(scope)
    for start, those in by_start.items():
        spent = dict.fromkeys(those, Decimal(0))
        query = UsageQuery(("key", "model_requested"), RecordFilter(since=float(start)), 1000)
        for row in _rows(usage, query):
            for scope in those:
                if _concerns(scope, row, book):
                    spent[scope] += sum((one.amount for one in row.cost if one.currency == scope.currency), Decimal(0))
        for scope, amount in spent.items():
            limiter.seed(scope, to_money(amount))


def _rows(usage: Usage, query: UsageQuery) -> Iterable[UsageRow]:
    while True:
        page = usage(query)
        yield from page.data
        if page.next_cursor is None:
            return
        query = msgspec.structs.replace(query, cursor=page.next_cursor)


def _concerns(scope: Scope, row: UsageRow, book: LimitBook) -> bool:
    kind, _, name = scope.id.partition(":")
    match kind:
        case "key":
            return row.key == name
        case "model":
            return isinstance(row.model_requested, str) and book.model_named(row.model_requested) == name
        case _:
            return True
