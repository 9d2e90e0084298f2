"""`GET /platform/v1/limits`: every limit there is, and what is left of it now.

Order: all calls first, then models and keys by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

import msgspec

from strom.core.access import KeySettings
from strom.gateway.gateway import Gateway
from strom.server.platform import Platform, encode_cursor, place_after
from strom.server.platform_operations import Asked
from strom.server.platform_types import BucketRow, BudgetRow, LimitPageBody, LimitRow, SlotsRow
from strom.shared.limiter import MONEY, Level, Scope, full_ms, period_around, remaining
from strom.stores.records import rfc3339


class PlatformLimits:
    """`managed`: the keys that are not in the configuration."""

    def __init__(self, gateway: Gateway, managed: Callable[[], Iterable[KeySettings]]) -> None:
        self._gateway = gateway
        self._managed = managed

    def register(self, platform: Platform) -> None:
        platform.register("list_limits", self._list)

    async def _list(self, asked: Asked) -> bytes:
        state = self._gateway.state
        scopes = sorted(state.limits.scopes([*state.keys.keys, *self._managed()]), key=_order)
        names = [encode_cursor(scope.id) for scope in scopes]
        start = place_after(names, asked.query.cursor)
        shown = scopes[start : start + asked.query.limit]
        levels = await self._gateway.desk.limiter.look(shown)
        now = self._gateway.services.wall()
        rows = [limit_row(scope, level, now) for scope, level in zip(shown, levels, strict=True)]
        end = start + len(shown)
        return msgspec.json.encode(LimitPageBody(rows, names[end - 1] if shown and end < len(scopes) else None))


def limit_row(scope: Scope, level: Level | None, now: float) -> LimitRow:
    return LimitRow(
        scope.id,
        _bucket(scope.requests, level.requests if level is not None else None),
        _bucket(scope.tokens, level.tokens if level is not None else None),
        SlotsRow(scope.concurrent, level.taken if level is not None else None) if scope.concurrent else None,
        _budget(scope, level.spent if level is not None else None, now) if scope.budget else None,
    )


def _bucket(limit: int, used: int | None) -> BucketRow | None:
    if not limit:
        return None
    return (
        BucketRow(limit, None, None) if used is None else BucketRow(limit, remaining(used, limit), full_ms(used, limit))
    )


def _budget(scope: Scope, spent: int | None, now: float) -> BudgetRow:
    start, end = period_around(now, scope.per)
    return BudgetRow(
        _money(scope.budget),
        None if spent is None else _money(spent),
        None if spent is None else _money(max(0, scope.budget - spent)),
        scope.currency,
        scope.per,
        rfc3339(start),
        rfc3339(end),
    )


def _money(amount: int) -> str:
    exact = Decimal(amount) / MONEY
    return f"{exact.normalize():f}" if amount else "0"


def _order(scope: Scope) -> tuple[bool, str]:
    return scope.id != "all", scope.id
