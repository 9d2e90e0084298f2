"""`/platform/v1`: records and endpoints for operators, as plain JSON. With keys required, only admin keys may ask."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, unquote

import msgspec

from strom.core.errors import NotFound
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.server.platform_types import EndpointPage, EndpointRow
from strom.stores.query import parse_query
from strom.stores.records import RecordStore, record_json
from strom.transport.types import Exchange

NEVER_CACHE = (b"cache-control", b"no-store")


class Platform:
    """Store reads run in a thread: SQLite blocks."""

    def __init__(self, gateway: Gateway, store: RecordStore) -> None:
        self._gateway = gateway
        self._store = store

    async def list_traces(self, exchange: Exchange) -> None:
        self._gateway.identify(exchange, admin=True)
        query = parse_query({name: values[-1] for name, values in parse_qs(exchange.head.query).items()})
        page = await asyncio.to_thread(self._store.list, query.wanted, query.limit, query.cursor)
        data = b",".join(record_json(record) for record in page.records)
        cursor = msgspec.json.encode(page.next_cursor)
        self._respond(exchange, b'{"data":[' + data + b'],"next_cursor":' + cursor + b"}")

    async def one_trace(self, exchange: Exchange) -> None:
        self._gateway.identify(exchange, admin=True)
        trace_id = unquote(exchange.head.path.removeprefix("/platform/v1/traces/"))
        record = await asyncio.to_thread(self._store.get, trace_id)
        if record is None:
            raise NotFound(f"There is no trace {trace_id[:64]!r}.")
        self._respond(exchange, record_json(record))

    async def list_endpoints(self, exchange: Exchange) -> None:
        """Configured endpoints, or the providers where no models are configured."""
        self._gateway.identify(exchange, admin=True)
        services = self._gateway.services
        rows = [
            EndpointRow(
                endpoint_id=endpoint.id,
                model=model,
                model_used=endpoint.model or None,
                provider=endpoint.upstream.name,
                protocol=endpoint.upstream.protocol,
                region=endpoint.upstream.region,
                sovereignty_class=endpoint.upstream.sovereignty_class,
                retention=endpoint.upstream.retention,
                order=endpoint.order,
                weight=endpoint.weight,
                context_window=endpoint.context_window,
                max_concurrent=endpoint.max_concurrent,
                queued=services.queues.waiting(endpoint),
                health=services.health.condition(endpoint),
            )
            for model, endpoint in self._gateway.state.router.endpoints()
        ]
        self._respond(exchange, msgspec.json.encode(EndpointPage(rows)))

    def _respond(self, exchange: Exchange, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), NEVER_CACHE]
        exchange.respond(200, headers + id_headers("", self._gateway.services.new_trace_id()), body)
