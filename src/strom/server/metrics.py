"""`GET /metrics`, for Prometheus.

Without a key where only this machine can ask, or where the operator says so; elsewhere for admin keys. The text is made in a
thread: with many series it takes longer than a token may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.transport.types import Exchange

Render = Callable[[str], tuple[bytes, str]]
"""Body and content type for an Accept header."""


class MetricsPage:
    """`refresh` brings up to date what is sampled; it runs in the loop, before `render` in its thread."""

    def __init__(
        self, gateway: Gateway, render: Render, refresh: Callable[[], None], is_public: Callable[[], bool]
    ) -> None:
        self._gateway = gateway
        self._render = render
        self._refresh = refresh
        self._is_public = is_public

    async def show(self, exchange: Exchange) -> None:
        if not self._is_public():
            self._gateway.identify(exchange, admin=True)
        self._refresh()
        accept = (exchange.head.header(b"accept") or b"").decode("latin-1")
        body, content_type = await asyncio.to_thread(self._render, accept)
        kind = (b"content-type", content_type.encode())
        exchange.respond(200, [kind, *id_headers("", self._gateway.services.new_trace_id())], body)
