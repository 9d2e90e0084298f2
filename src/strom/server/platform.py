"""`/platform/v1`: records and endpoints for operators, as plain JSON. With keys required, only admin keys may ask."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, unquote

import msgspec

from strom.core.errors import NotFound
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
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
        router = self._gateway.state.router
        rows = [
            {
                "endpoint_id": endpoint.id,
                "model": model.name,
                "model_used": endpoint.model,
                "provider": endpoint.upstream.name,
                "protocol": endpoint.upstream.protocol,
                "region": endpoint.upstream.region,
                "sovereignty_class": endpoint.upstream.sovereignty_class,
                "retention": endpoint.upstream.retention,
                "order": endpoint.order,
                "weight": endpoint.weight,
            }
            for model in router.models.values()
            for endpoint in model.endpoints
        ] or [
            {
                "endpoint_id": upstream.name,
                "model": None,
                "model_used": None,
                "provider": upstream.name,
                "protocol": upstream.protocol,
                "region": upstream.region,
                "sovereignty_class": upstream.sovereignty_class,
                "retention": upstream.retention,
                "order": 1,
                "weight": 1.0,
            }
            for upstream in router.upstreams.values()
        ]
        self._respond(exchange, msgspec.json.encode({"data": rows, "next_cursor": None}))

    def _respond(self, exchange: Exchange, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), NEVER_CACHE]
        exchange.respond(200, headers + id_headers("", self._gateway.services.new_trace_id()), body)
