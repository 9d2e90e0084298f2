"""`GET /platform/v1/usage`: what calls have used and cost. Parameters: `by`, the filters of traces, `limit`, `cursor`."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.server.platform import NEVER_CACHE
from strom.stores.records import RecordStore
from strom.stores.usage import encode_usage, parse_usage_query
from strom.transport.types import Exchange

PATH = "/platform/v1/usage"


class PlatformUsage:
    """Sums are made in a thread: the store blocks."""

    def __init__(self, gateway: Gateway, store: RecordStore) -> None:
        self._gateway = gateway
        self._store = store

    async def show(self, exchange: Exchange) -> None:
        """Raises StromError."""
        self._gateway.identify(exchange, admin=True)
        query = parse_usage_query({name: values[-1] for name, values in parse_qs(exchange.head.query).items()})
        page = await asyncio.to_thread(self._store.usage, query)
        headers = [(b"content-type", b"application/json"), NEVER_CACHE]
        exchange.respond(200, headers + id_headers("", self._gateway.services.new_trace_id()), encode_usage(page))
