"""`/platform/v1`: what operators ask, as plain JSON. With keys required, only admin keys may ask.

Every request goes the same way: who asks, what is at this path, does the method fit, do the query and the body fit; then the
operation is answered by whoever registered for it. The operations themselves stand in platform_operations.py, errors in
problems.py.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

import msgspec

from strom.core.errors import BadRequest, NotFound
from strom.gateway.gateway import Gateway
from strom.gateway.refusals import not_allowed
from strom.gateway.responses import id_headers
from strom.server.platform_asking import read_body, read_query, refuse_streaming
from strom.server.platform_openapi import document
from strom.server.platform_operations import Asked, Match, Operation, match
from strom.server.platform_types import EndpointPage, EndpointRow
from strom.server.problems import NEVER_CACHE
from strom.stores.query import parse_query
from strom.stores.records import RecordStore, record_json
from strom.stores.usage import encode_usage, parse_usage_query
from strom.transport.types import Exchange, Headers

Answer = Callable[[Asked], Awaitable[bytes]]
"""Gives the body, as JSON. Raises StromError."""
JSON = (b"content-type", b"application/json")


class Platform:
    """`answer` takes every request below /platform. Store reads run in a thread: SQLite blocks."""

    def __init__(self, gateway: Gateway, store: RecordStore) -> None:
        self._gateway = gateway
        self._store = store
        self._answers: dict[str, Answer] = {
            "list_traces": self._list_traces,
            "show_trace": self._show_trace,
            "show_usage": self._show_usage,
            "list_endpoints": self._list_endpoints,
            "show_openapi": _show_openapi,
        }

    def register(self, name: str, answer: Answer) -> None:
        """Who answers an operation of the table."""
        self._answers[name] = answer

    async def answer(self, exchange: Exchange) -> None:
        """Raises StromError."""
        self._gateway.identify(exchange, admin=True)
        head = exchange.head
        refuse_streaming(exchange)
        found = match(head.path)
        if found is None:
            raise NotFound(f"There is no endpoint {unquote(head.path)[:200]!r} here.")
        if head.method == "OPTIONS":
            self._respond(exchange, 204, [(b"allow", found.allowed.encode())], b"")
            return
        operation = found.operation(head.method)
        if operation is None:
            raise not_allowed(head.path[:200], found.allowed)
        answer = self._answers.get(operation.name)
        if answer is None:
            raise NotFound(f"This gateway does not have {operation.path}.")
        body = await answer(_read(exchange, found, operation))
        self._respond(exchange, operation.status, [JSON], body)

    def _respond(self, exchange: Exchange, status: int, headers: Headers, body: bytes) -> None:
        exchange.respond(status, [*headers, NEVER_CACHE, *id_headers("", self._gateway.services.new_trace_id())], body)

    async def _list_traces(self, asked: Asked) -> bytes:
        query = parse_query(asked.given)
        page = await asyncio.to_thread(self._store.list, query.wanted, query.limit, query.cursor)
        data = b",".join(record_json(record) for record in page.records)
        return b'{"data":[' + data + b'],"next_cursor":' + msgspec.json.encode(page.next_cursor) + b"}"

    async def _show_trace(self, asked: Asked) -> bytes:
        trace_id = asked.names["trace_id"]
        record = await asyncio.to_thread(self._store.get, trace_id)
        if record is None:
            raise NotFound(f"There is no trace {trace_id[:64]!r}.")
        return record_json(record)

    async def _show_usage(self, asked: Asked) -> bytes:
        return encode_usage(await asyncio.to_thread(self._store.usage, parse_usage_query(asked.given)))

    async def _list_endpoints(self, asked: Asked) -> bytes:
        """Configured endpoints, or the providers where no models are configured."""
        found = self._gateway.state.router.endpoints()
        names = [encode_cursor(model or "", endpoint.id) for model, endpoint in found]
        start = place_after(names, asked.query.cursor)
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
            for model, endpoint in found[start : start + asked.query.limit]
        ]
        end = start + len(rows)
        return msgspec.json.encode(EndpointPage(rows, names[end - 1] if rows and end < len(found) else None))


def encode_cursor(*names: str) -> str:
    """The last row that was shown."""
    return base64.urlsafe_b64encode(msgspec.json.encode(names)).decode().rstrip("=")


def place_after(names: list[str], cursor: str | None) -> int:
    """Where the rest begins, in a list whose rows have these cursors. Raises BadRequest."""
    if not cursor:
        return 0
    if cursor not in names:
        raise BadRequest("cursor: not a cursor of this list; take next_cursor as it came", param="cursor")
    return names.index(cursor) + 1


def _read(exchange: Exchange, found: Match, operation: Operation) -> Asked:
    """Raises BadRequest, NotFound."""
    if any("\0" in value for value in found.names.values()):
        raise NotFound("There is nothing by that name.")  # no database holds it
    query, given = read_query(exchange.head, operation.query)
    body = read_body(exchange, operation.body) if operation.body is not None else None
    return Asked(found.names, query, given, body)


async def _show_openapi(_: Asked) -> bytes:
    return document()
