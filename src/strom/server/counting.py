"""`/v1/messages/count_tokens`: the backend's own number where it can count, an estimate that says so elsewhere.

Anthropic and llama.cpp count a Messages body themselves; vLLM tokenizes a Chat body (`/tokenize`). Anything else, and a
backend that fails to answer, gives an estimate: the reply then carries `x-strom-usage-source: estimated`.
"""

from __future__ import annotations

import asyncio

import msgspec

from strom.core.errors import ProviderError, StromError
from strom.core.messages import Request
from strom.gateway.estimate import request_tokens
from strom.gateway.fetch import Fetched, fetch
from strom.gateway.gateway import Gateway
from strom.gateway.plan import Endpoint
from strom.gateway.responses import id_headers
from strom.protocols.codec import Target
from strom.transport.types import Exchange
from strom.wire.splice import join, split

COUNT_TIMEOUT_S = 10.0
PATH = "/v1/messages/count_tokens"


class _Counted(msgspec.Struct):
    input_tokens: int


class _Tokenized(msgspec.Struct):
    count: int


class TokenCounter:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def count(self, exchange: Exchange) -> None:
        gateway = self._gateway
        codec = gateway.codecs["anthropic"]
        key = gateway.identify(exchange)
        request = codec.decode_request(with_limit(exchange.body))
        wanted = exchange.head.header(b"x-strom-policy")
        plan = gateway.state.router.plan(request.model, key, wanted.decode("latin-1") if wanted is not None else None)
        exact = await self._exact(exchange, request, plan.endpoints[0])
        source = "reported" if exact is not None else "estimated"
        tokens = exact if exact is not None else request_tokens(request)
        headers = [(b"content-type", b"application/json"), (b"x-strom-usage-source", source.encode())]
        headers += id_headers("anthropic", gateway.services.new_trace_id())
        exchange.respond(200, headers, msgspec.json.encode(_Counted(tokens)))

    async def _exact(self, exchange: Exchange, request: Request, endpoint: Endpoint) -> int | None:
        """The backend's number; None when it has none. An Anthropic backend's refusal is the caller's to see."""
        counting = endpoint.upstream.counting
        if endpoint.upstream.protocol == "anthropic" and counting is None:
            counting = "anthropic"
        if counting is None:
            return None
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                if counting == "vllm":
                    return await self._tokenize(request, endpoint)
                fetched = await self._messages_count(exchange, request, endpoint)
        except (ProviderError, TimeoutError, msgspec.DecodeError):
            return None
        if fetched.status == 200:
            try:
                return msgspec.json.decode(fetched.body, type=_Counted).input_tokens
            except msgspec.DecodeError:
                return None
        error = self._gateway.codecs["anthropic"].decode_error(fetched.status, fetched.headers, fetched.body)
        if error.fault == "client" and fetched.status == 400:
            error.message = endpoint.upstream.redact(error.message)
            raise error
        return None

    async def _messages_count(self, exchange: Exchange, request: Request, endpoint: Endpoint) -> Fetched:
        """The caller's own body, under the backend's model name."""
        members = split(exchange.body)
        members["model"] = msgspec.json.encode(endpoint.model or request.model)
        codec = self._gateway.codecs["anthropic"]
        headers = [(b"anthropic-version", b"2023-06-01")]
        headers += [field for field in exchange.head.headers if field[0] in codec.forward_request_headers]
        kept = {name: value for name, value in members.items() if value != b"null"}
        client = self._gateway.services.client
        return await fetch(client, endpoint.upstream, PATH, body=join(kept), headers=list(dict(headers).items()))

    async def _tokenize(self, request: Request, endpoint: Endpoint) -> int | None:
        """vLLM's /tokenize takes a Chat body and applies the chat template."""
        chat = self._gateway.codecs["openai-chat"]
        target = Target(endpoint.model or request.model, stream=False, quirks=endpoint.upstream.quirks)
        try:
            members = split(chat.encode_request(request, target).body)
        except StromError:
            return None
        body = join({name: value for name, value in members.items() if name in ("model", "messages", "tools")})
        fetched = await fetch(self._gateway.services.client, endpoint.upstream, "/tokenize", body=body)
        return msgspec.json.decode(fetched.body, type=_Tokenized).count if fetched.status == 200 else None


def with_limit(body: bytes) -> bytes:
    """A count request is a Messages request without max_tokens: one is put in so that it reads as one."""
    try:
        members = split(body)
    except ValueError:
        return body  # the codec words the error
    if members.get("max_tokens", b"null") == b"null":
        members["max_tokens"] = b"1"
    members.pop("stream", None)
    return join(members)
