"""The bodies of `/platform/v1`: what is served, and what the OpenAPI document is made from."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from strom.core.access import Currency, Positive
from strom.gateway.health import Condition


class EndpointRow(msgspec.Struct, frozen=True):
    """A place that serves a model, and how it fares in the process that answers."""

    endpoint_id: str
    model: str | None
    """What clients ask for; null where no models are configured."""
    model_used: str | None
    """What the upstream is asked for; null where the client's own name passes through."""
    provider: str
    protocol: str
    region: str | None
    sovereignty_class: str | None
    retention: str | None
    order: int
    weight: float
    context_window: int | None
    max_concurrent: int | None
    """Calls that the process lets be there at once; null: any number."""
    queued: int
    """Calls of the process that wait for a place."""
    health: Condition


class EndpointPage(msgspec.Struct, frozen=True):
    data: list[EndpointRow]
    next_cursor: str | None = None


# --- keys ------------------------------------------------------------------------------------------


class BudgetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    amount: Annotated[float, msgspec.Meta(gt=0)]
    currency: Currency
    per: Literal["day", "week", "month"] = "month"


class LimitsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absent or null: no limit of that kind."""

    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    concurrent: Positive | None = None
    budget: BudgetBody | None = None


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`models`, `routes`: shell patterns, empty: all. `expires_at` without a zone is UTC."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    policy: str | None = None
    models: list[str] = []
    routes: list[str] = []
    admin: bool = False
    may_pin_endpoint: bool = False
    limits: LimitsBody = LimitsBody()
    expires_at: datetime | None = None


class RotateKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secrets that are there stay valid so long beside the new one."""

    overlap_s: Annotated[float, msgspec.Meta(ge=0, le=7_776_000)] = 86_400


class KeyRow(msgspec.Struct, frozen=True):
    """A managed key, without any secret. Times are RFC 3339; `last_used_at` is coarse."""

    id: str
    name: str
    prefix: str
    created_at: str
    expires_at: str | None
    disabled: bool
    revoked_at: str | None
    last_used_at: str | None
    policy: str | None
    models: list[str]
    routes: list[str]
    admin: bool
    may_pin_endpoint: bool
    limits: LimitsBody


class KeyPageBody(msgspec.Struct, frozen=True):
    data: list[KeyRow]
    next_cursor: str | None = None


class MadeKey(msgspec.Struct, frozen=True):
    """`secret` is shown this once and kept nowhere."""

    key: KeyRow
    secret: str


# --- limits ----------------------------------------------------------------------------------------


class BucketRow(msgspec.Struct, frozen=True):
    """Null where nobody can tell: the shared store is away."""

    limit: int
    remaining: int | None
    full_in_ms: int | None


class SlotsRow(msgspec.Struct, frozen=True):
    limit: int
    running: int | None


class BudgetRow(msgspec.Struct, frozen=True):
    """Exact decimals, as text. The period is in UTC."""

    amount: str
    spent: str | None
    remaining: str | None
    currency: str
    per: str
    period_start: str
    period_end: str


class LimitRow(msgspec.Struct, frozen=True):
    """Limits that are counted together: `all` calls, those for a `model:NAME`, those with a `key:NAME`."""

    scope: str
    requests_per_minute: BucketRow | None
    tokens_per_minute: BucketRow | None
    concurrent: SlotsRow | None
    budget: BudgetRow | None


class LimitPageBody(msgspec.Struct, frozen=True):
    data: list[LimitRow]
    next_cursor: str | None = None
