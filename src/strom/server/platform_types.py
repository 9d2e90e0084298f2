"""The bodies of `/platform/v1`: what is served, and what the OpenAPI document is made from."""

from __future__ import annotations

import msgspec

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
