"""`GET /platform/v1/limits`: every limit there is, and what is left of it now. Parameters: `limit`, `cursor`.

Order: all calls first, then models and keys by name; the cursor is the last scope seen.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from decimal import Decimal
from urllib.parse import parse_qs

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import BadRequest
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.server.platform import NEVER_CACHE
from strom.server.platform_types import BucketRow, BudgetRow, LimitPageBody, LimitRow, SlotsRow
from strom.shared.limiter import MONEY, Level, Scope, full_ms, period_around, remaining
from strom.stores.query import parse_limit
from strom.stores.records import rfc3339
from strom.transport.types import Exchange

PATH = "/platform/v1/limits"


class PlatformLimits:
    """`managed`: the keys that are not in the configuration."""

    def __init__(self, gateway: Gateway, managed: Callable[[], Iterable[KeySettings]]) -> None:
        self._gateway = gateway
        self._managed = managed

    async def show(self, exchange: Exchange) -> None:
        """Raises StromError."""
        self._gateway.identify(exchange, admin=True)
        limit, after = _page_of(exchange)
        state = self._gateway.state
        scopes = state.limits.scopes([*state.keys.keys, *self._managed()])
        left = sorted((scope for scope in scopes if after is None or _place(scope.id) > _place(after)), key=_order)
        shown = left[:limit]
        levels = await self._gateway.desk.limiter.look(shown)
        now = self._gateway.services.wall()
        rows = [limit_row(scope, level, now) for scope, level in zip(shown, levels, strict=True)]
        cursor = _encode(shown[-1].id) if len(left) > limit else None
        headers = [(b"content-type", b"application/json"), NEVER_CACHE]
        headers += id_headers("", self._gateway.services.new_trace_id())
        exchange.respond(200, headers, msgspec.json.encode(LimitPageBody(rows, cursor)))


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


def _place(scope: str) -> tuple[bool, str]:
    return scope != "all", scope


def _order(scope: Scope) -> tuple[bool, str]:
    return _place(scope.id)


def _page_of(exchange: Exchange) -> tuple[int, str | None]:
    params = {name: values[-1] for name, values in parse_qs(exchange.head.query).items() if name != "stream"}
    limit, cursor = parse_limit(params.pop("limit", "")), params.pop("cursor", None)
    if params:
        name = next(iter(params))
        raise BadRequest(f"unknown query parameter {name[:100]!r}", param=name[:100])
    try:
        after = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode() if cursor else None
    except (binascii.Error, ValueError):
        raise BadRequest("cursor: not a cursor of this list; take next_cursor as it came", param="cursor") from None
    return limit, after


def _encode(scope: str) -> str:
    return base64.urlsafe_b64encode(scope.encode()).decode().rstrip("=")
