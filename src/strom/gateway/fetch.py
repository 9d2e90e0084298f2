"""A whole small request as a coroutine: for model lists, readiness and token counts, not for model calls."""

from __future__ import annotations

import asyncio

from strom.gateway.failures import explain
from strom.gateway.outgoing import BASE_HEADERS
from strom.transport.types import Headers, OutgoingRequest, UpstreamClient
from strom.upstreams.upstream import Upstream
from strom.upstreams.whole import WholeAnswer, WholeReceiver

MAX_BYTES = 8_388_608
LOOK_CONNECT_S = 2.0


def models_path(upstream: Upstream) -> str:
    """Where it lists its models: the one question that every backend answers without work."""
    return "/api/tags" if upstream.protocol == "ollama" else "/v1/models"


async def fetch(
    client: UpstreamClient, upstream: Upstream, path: str, *, body: bytes | None = None, headers: Headers | None = None
) -> WholeAnswer:
    """GET, or POST when there is a body. Raises ProviderError; cancelling it closes the connection.

    Nobody waits long for a look: a GET has 2 s to connect. What is posted has the time of any call.
    """
    done: asyncio.Future[WholeAnswer] = asyncio.get_running_loop().create_future()
    fields = [*BASE_HEADERS, *(headers or []), *upstream.auth_headers]
    request = OutgoingRequest("GET" if body is None else "POST", upstream.target(path), fields, body or b"")
    connect_s = upstream.timeouts.connect_s
    limit_s = connect_s if body is not None else min(LOOK_CONNECT_S, connect_s)
    receiver = WholeReceiver(
        done,
        lambda failure: explain(upstream.name, failure),
        max_bytes=MAX_BYTES,
        too_long="The backend's answer is too long.",
    )
    exchange = client.send(upstream.origin, request, receiver, connect_timeout_s=limit_s)
    try:
        return await done
    finally:
        if not done.done() or done.cancelled():
            exchange.abort()
