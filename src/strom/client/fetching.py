"""A whole small request as a coroutine: for embeddings, model lists and token counts, not for answers of a model."""

from __future__ import annotations

import asyncio

import msgspec

from strom.client.failures import as_callers, explain
from strom.client.network import client_for
from strom.client.provider import Provider
from strom.client.requests import BASE_HEADERS
from strom.core.errors import TimedOut
from strom.protocols.codec import Codec
from strom.transport.types import Headers, OutgoingRequest, UpstreamClient
from strom.upstreams.whole import WholeAnswer, WholeReceiver

MAX_BYTES = 268_435_456


class Question(msgspec.Struct, frozen=True):
    """GET without a body, else POST. `path` in the words of the protocol."""

    path: str
    body: bytes | None = None
    headers: Headers = []


async def fetch(question: Question, provider: Provider, codec: Codec, transport: UpstreamClient | None) -> bytes:
    """The body of a 2xx answer. Raises what the answer stands for; cancelling it closes the connection."""
    provider.demand_key()
    loop = asyncio.get_running_loop()
    upstream = provider.upstream
    done: asyncio.Future[WholeAnswer] = loop.create_future()
    fields = [*BASE_HEADERS, *question.headers, *upstream.auth_headers]
    method = "GET" if question.body is None else "POST"
    request = OutgoingRequest(method, upstream.target(question.path), fields, question.body or b"")
    receiver = WholeReceiver(
        done,
        lambda failure: explain(failure, upstream.name),
        max_bytes=MAX_BYTES,
        too_long=f"{upstream.name} gave an answer that is too long.",
    )
    exchange = (transport or client_for(loop)).send(
        upstream.origin, request, receiver, connect_timeout_s=upstream.timeouts.connect_s
    )
    try:
        async with asyncio.timeout(upstream.timeouts.first_token_s):
            answer = await done
    except TimeoutError:
        raise TimedOut(f"{upstream.name} did not answer within {upstream.timeouts.first_token_s:g} s.") from None
    finally:
        if not done.done() or done.cancelled():
            exchange.abort()
    if not 200 <= answer.status < 300:
        error = as_callers(codec.decode_error(answer.status, answer.headers, answer.body))
        error.message = upstream.redact(error.message)
        error.args = (error.message,)
        error.detail = upstream.redact(error.detail) if error.detail else None
        raise error
    return answer.body
