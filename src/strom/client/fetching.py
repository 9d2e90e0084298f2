"""A whole small request as a coroutine: for embeddings, model lists and token counts, not for answers of a model."""

from __future__ import annotations

import asyncio

import msgspec

from strom.client.failures import as_callers, explain
from strom.client.network import client_for
from strom.client.provider import Provider
from strom.client.requests import BASE_HEADERS
from strom.core.errors import ProviderError, TimedOut
from strom.protocols.codec import Codec
from strom.transport.types import Headers, OutgoingRequest, TransportFailure, UpstreamClient

MAX_BYTES = 268_435_456


class Question(msgspec.Struct, frozen=True):
    """GET without a body, else POST. `path` in the words of the protocol."""

    path: str
    body: bytes | None = None
    headers: Headers = []


class _Collector:
    def __init__(self, done: asyncio.Future[tuple[int, Headers, bytes]], name: str) -> None:
        self._done = done
        self._name = name
        self._status = 0
        self._headers: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    def on_response(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, headers

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_BYTES:
            self._parts.append(data)

    def on_read_end(self) -> None:
        pass

    def on_end(self, *, delimited_by_close: bool) -> None:
        if self._done.done():
            return
        if self._size > MAX_BYTES:
            self._done.set_exception(ProviderError(f"{self._name} gave an answer that is too long."))
        else:
            self._done.set_result((self._status, self._headers, b"".join(self._parts)))

    def on_failure(self, failure: TransportFailure) -> None:
        if not self._done.done():
            self._done.set_exception(explain(failure, self._name))


async def fetch(question: Question, provider: Provider, codec: Codec, transport: UpstreamClient | None) -> bytes:
    """The body of a 2xx answer. Raises what the answer stands for; cancelling it closes the connection."""
    provider.demand_key()
    loop = asyncio.get_running_loop()
    upstream = provider.upstream
    done: asyncio.Future[tuple[int, Headers, bytes]] = loop.create_future()
    fields = [*BASE_HEADERS, *question.headers, *upstream.auth_headers]
    method = "GET" if question.body is None else "POST"
    request = OutgoingRequest(method, upstream.target(question.path), fields, question.body or b"")
    exchange = (transport or client_for(loop)).send(
        upstream.origin, request, _Collector(done, upstream.name), connect_timeout_s=upstream.timeouts.connect_s
    )
    try:
        async with asyncio.timeout(upstream.timeouts.first_token_s):
            status, headers, body = await done
    except TimeoutError:
        raise TimedOut(f"{upstream.name} did not answer within {upstream.timeouts.first_token_s:g} s.") from None
    finally:
        if not done.done() or done.cancelled():
            exchange.abort()
    if not 200 <= status < 300:
        error = as_callers(codec.decode_error(status, headers, body))
        error.message = upstream.redact(error.message)
        error.args = (error.message,)
        error.detail = upstream.redact(error.detail) if error.detail else None
        raise error
    return body
