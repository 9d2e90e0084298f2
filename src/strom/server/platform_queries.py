"""The query parameters of `/platform/v1`: which there are, and what they may be.

Text that is empty counts as absent, so that a script may always send `cursor=$cursor`; an empty number, time or choice is an
error. How times and filters are read is said in `strom.stores.query`, which the command line uses too.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strom.core.errors import Fault
from strom.core.record import Status
from strom.stores.query import DEFAULT_LIMIT, MAX_LIMIT
from strom.stores.usage import Group, UsageQuery

_TIME: dict[str, Any] = {
    "type": ["string", "number"],
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}, {"type": "number"}],
}


def _time(what: str) -> Meta:
    return Meta(min_length=1, description=f"{what}: RFC 3339 or Unix seconds.", extra_json_schema=_TIME)


def _text(what: str) -> Meta:
    return Meta(description=what)


Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Rows in one answer, at most.")]
Cursor = Annotated[
    str, Meta(description="`next_cursor` of the answer before, as it came.", extra_json_schema={"format": "cursor"})
]


Groups = Annotated[
    tuple[Group, ...],
    Meta(min_length=1, description="What to group by, with commas between.", extra_json_schema={"uniqueItems": True}),
]


class NoQuery(msgspec.Struct, frozen=True):
    """No parameters."""


class PageQuery(msgspec.Struct, frozen=True):
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class Filters(msgspec.Struct, frozen=True):
    """The fields of `RecordFilter`."""

    status: Annotated[Status, Meta(description="How it ended.")] | None = None
    model: Annotated[str, _text("Asked for, or used.")] | None = None
    provider: Annotated[str, _text("Name of the provider.")] | None = None
    key_name: Annotated[str, _text("Name of the caller's key.")] | None = None
    protocol_in: Annotated[str, _text("The caller's protocol.")] | None = None
    endpoint: Annotated[str, _text("Id of the endpoint.")] | None = None
    region: Annotated[str, _text("Region of the endpoint.")] | None = None
    policy: Annotated[str, _text("What bound the call.")] | None = None
    fault: Annotated[Fault, Meta(description="Whose fault it was.")] | None = None
    since: Annotated[str, _time("Started then or later")] | None = None
    until: Annotated[str, _time("Started before")] | None = None
    ended_since: Annotated[str, _time("Ended then or later")] | None = None


class TraceQuery(Filters, frozen=True):
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class SumQuery(Filters, frozen=True):
    by: Groups = UsageQuery().by
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None


class ExplainQuery(msgspec.Struct, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=512, description="The model that is asked for.")]
    key: Annotated[str, _text("A key by name, id or prefix: its policy and its models bind.")] | None = None
    policy: (
        Annotated[
            str,
            Meta(
                description="A policy that the request adds (x-strom-policy).",
                extra_json_schema={"format": "policy-id"},
            ),
        ]
        | None
    ) = None
