"""The bodies of `/platform/v1`: what is served, and what the OpenAPI document is made from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from strom.core.access import Currency
from strom.core.record import CallRecord
from strom.gateway.health import Condition

Instant = Annotated[str, Meta(description="RFC 3339, UTC.", extra_json_schema={"format": "date-time"})]
Printable = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=100,
        description="Printable, no blanks around.",
        extra_json_schema={"format": "printable"},
    ),
]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]

# --- traces ----------------------------------------------------------------------------------------


def _trace_fields() -> list[tuple[str, Any]]:
    """Those of a record, all of them there, with times as text."""
    times = {"started_at": Instant, "ended_at": Instant | None}
    return [(name, times.get(name, kind)) for name, kind in get_type_hints(CallRecord, include_extras=True).items()]


if TYPE_CHECKING:

    class TraceRow(msgspec.Struct, frozen=True): ...

else:
    TraceRow = msgspec.defstruct("TraceRow", _trace_fields(), frozen=True)
    TraceRow.__doc__ = "The record of a call. What is unknown is null; no text of a client stands here."


class TracePage(msgspec.Struct, frozen=True):
    data: list[TraceRow]
    next_cursor: str | None = None


# --- endpoints and policies ------------------------------------------------------------------------


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


class CandidateRow(msgspec.Struct, frozen=True):
    """An endpoint that might serve the model, and what forbids it."""

    endpoint_id: str
    model: str | None
    """The configured model that it belongs to; null where none are configured."""
    fallback: bool
    """It belongs to a model that only serves when the one asked for cannot."""
    order: int
    provider: str
    region: str | None
    sovereignty_class: str | None
    retention: str | None
    qualifies: bool
    objections: list[str]


class Explanation(msgspec.Struct, frozen=True):
    """`policies`: those that bind, the key's and the request's."""

    model: str
    key: str | None
    policies: list[str]
    endpoints: list[CandidateRow]


# --- keys ------------------------------------------------------------------------------------------


class BudgetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    amount: Annotated[float, Meta(gt=0, le=1e9)]
    currency: Currency
    per: Literal["day", "week", "month"] = "month"


class LimitsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absent or null: no limit of that kind."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    concurrent: Count | None = None
    budget: BudgetBody | None = None


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`models`, `routes`: shell patterns, empty: all. `expires_at` without a zone is UTC."""

    name: Printable
    policy: Annotated[str, Meta(extra_json_schema={"format": "policy-id"})] | None = None
    models: list[Printable] = []
    routes: list[Printable] = []
    admin: bool = False
    may_pin_endpoint: bool = False
    limits: LimitsBody = LimitsBody()
    expires_at: Annotated[datetime, Meta(extra_json_schema={"format": "date-time", "minLength": 19})] | None = None


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class RotateKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secrets that are there stay valid so long beside the new one."""

    overlap_s: Annotated[float, Meta(ge=0, le=7_776_000)] = 86_400


class KeyRow(msgspec.Struct, frozen=True):
    """A managed key, without any secret. Times are RFC 3339; `last_used_at` is coarse."""

    id: str
    name: str
    prefix: str
    created_at: Instant
    expires_at: Instant | None
    disabled: bool
    revoked_at: Instant | None
    last_used_at: Instant | None
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
    period_start: Instant
    period_end: Instant


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
