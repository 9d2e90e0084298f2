"""The small answers: is it alive, is it ready, what is here. No key is needed for them."""

from __future__ import annotations

import asyncio

from strom.core.errors import StromError
from strom.gateway.fetch import fetch, models_path
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.transport.types import Exchange
from strom.upstreams.upstream import Upstream

READY_TIMEOUT_S = 2.0
TEXT = (b"content-type", b"text/plain; charset=utf-8")
JSON = (b"content-type", b"application/json")
PAGE = b"Strom is running.\n"
PATHS = frozenset(("/", "/api/hello", "/healthz"))
"""Answered at once."""


class Pages:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def answer(self, exchange: Exchange) -> bool:
        """Answer at once if the path is one of these; False otherwise."""
        if exchange.head.method not in ("GET", "HEAD"):
            return False
        match exchange.head.path:
            case "/" | "/api/hello":
                self._respond(exchange, 200, TEXT, PAGE)
            case "/healthz":
                self._respond(exchange, 200, JSON, b'{"status":"ok"}')
            case _:
                return False
        return True

    async def ready(self, exchange: Exchange) -> None:
        """200 once one backend answers, whatever it says; 503 when none does."""
        upstreams = list(self._gateway.state.router.upstreams.values())
        answers = await asyncio.gather(*(self._reachable(upstream) for upstream in upstreams))
        if any(answers):
            self._respond(exchange, 200, JSON, b'{"status":"ready"}')
        else:
            self._respond(exchange, 503, JSON, b'{"status":"no backend answers"}')

    def _respond(self, exchange: Exchange, status: int, kind: tuple[bytes, bytes], body: bytes) -> None:
        exchange.respond(status, [kind, *id_headers("", self._gateway.services.new_trace_id())], body)

    async def _reachable(self, upstream: Upstream) -> bool:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                fetched = await fetch(self._gateway.services.client, upstream, models_path(upstream))
        except (StromError, TimeoutError):
            return False
        return fetched.status < 500
