"""How many tokens a prompt has: the backend's own number where it can count, an estimate that says so elsewhere.

`/v1/messages/count_tokens` asks here, and `/v1/responses/input_tokens` does. Anthropic and llama.cpp count a Messages body,
Responses hosts (and llama.cpp's, which is asked as such) a Responses body, vLLM tokenizes a Chat body (`/tokenize`): a request
in another protocol is translated into the one that is counted. Anything else, and a backend that fails to answer, gives an
estimate: the reply then carries `x-strom-usage-source: estimated`.
"""

from __future__ import annotations

import asyncio

import msgspec

from strom.core.errors import ProviderError, StromError
from strom.gateway.estimate import request_tokens
from strom.gateway.fetch import fetch
from strom.gateway.gateway import Gateway
from strom.gateway.outgoing import Incoming
from strom.gateway.plan import Endpoint, Plan
from strom.gateway.responses import id_headers
from strom.protocols.codec import Target
from strom.transport.types import Exchange, Headers
from strom.upstreams.whole import WholeAnswer
from strom.wire.splice import join, split

COUNT_TIMEOUT_S = 10.0


class Counter(msgspec.Struct, frozen=True):
    """An endpoint that counts. `left_out`: members of a translated request that it does not take."""

    protocol: str
    path: str
    left_out: frozenset[str]


MESSAGES = Counter("anthropic", "/v1/messages/count_tokens", frozenset(("max_tokens", "stream")))
RESPONSES = Counter(
    "openai-responses", "/v1/responses/input_tokens", frozenset(("max_output_tokens", "store", "stream"))
)


class _Counted(msgspec.Struct):
    input_tokens: int


class _Tokenized(msgspec.Struct):
    count: int


class TokenCounter:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def count(self, exchange: Exchange) -> None:
        """`/v1/messages/count_tokens`."""
        gateway = self._gateway
        codec = gateway.codecs["anthropic"]
        key = gateway.identify(exchange)
        request = codec.decode_request(with_limit(exchange.body))
        plan = gateway.plan_for(exchange, key, request.model)
        incoming = Incoming(codec, request, exchange.body, exchange.head.headers)
        tokens, source = await self.tokens(incoming, plan)
        headers = [(b"content-type", b"application/json"), (b"x-strom-usage-source", source.encode())]
        headers += id_headers("anthropic", gateway.services.new_trace_id())
        exchange.respond(200, headers, msgspec.json.encode(_Counted(tokens)))

    async def tokens(self, incoming: Incoming, plan: Plan) -> tuple[int, str]:
        """The number, and "reported" or "estimated". Raises what an endpoint of the caller's own protocol objects to."""
        endpoint = plan.endpoints[0]
        plan.check(endpoint)
        exact = await self._exact(incoming, endpoint)
        return (exact, "reported") if exact is not None else (request_tokens(incoming.request), "estimated")

    async def _exact(self, incoming: Incoming, endpoint: Endpoint) -> int | None:
        """The backend's number; None when it has none. Its refusal is the caller's to see when it speaks his protocol."""
        counter = _counter_of(endpoint)
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                if endpoint.upstream.counting == "vllm":
                    return await self._tokenize(incoming, endpoint)
                fetched = await self._ask(incoming, endpoint, counter) if counter is not None else None
        except (ProviderError, TimeoutError, msgspec.DecodeError):
            return None
        if fetched is None or counter is None:
            return None
        if fetched.status == 200:
            try:
                return msgspec.json.decode(fetched.body, type=_Counted).input_tokens
            except msgspec.DecodeError:
                return None
        error = self._gateway.codecs[counter.protocol].decode_error(fetched.status, fetched.headers, fetched.body)
        if error.fault == "client" and fetched.status == 400 and incoming.codec.name == counter.protocol:
            error.message = endpoint.upstream.redact(error.message)
            raise error
        return None

    async def _ask(self, incoming: Incoming, endpoint: Endpoint, counter: Counter) -> WholeAnswer | None:
        """None: the request cannot be put into the words that are counted."""
        members = self._members(incoming, endpoint, counter)
        if members is None:
            return None
        codec = self._gateway.codecs[counter.protocol]
        headers: Headers = [(b"anthropic-version", b"2023-06-01")] if codec.name == "anthropic" else []
        if incoming.codec.name == codec.name:
            headers += [field for field in incoming.headers if field[0] in codec.forward_request_headers]
        client = self._gateway.services.client
        return await fetch(
            client, endpoint.upstream, counter.path, body=join(members), headers=list(dict(headers).items())
        )

    def _members(self, incoming: Incoming, endpoint: Endpoint, counter: Counter) -> dict[str, bytes] | None:
        """The caller's own members, under the backend's model name, or those of the translated request."""
        request = incoming.request
        model = endpoint.model or request.model
        if incoming.codec.name == counter.protocol:
            members = {**split(incoming.body), "model": msgspec.json.encode(model)}
            return {name: value for name, value in members.items() if value != b"null"}
        target = Target(model, stream=False, quirks=endpoint.upstream.quirks)
        try:
            members = split(self._gateway.codecs[counter.protocol].encode_request(request, target).body)
        except StromError:
            return None
        return {name: value for name, value in members.items() if name not in counter.left_out}

    async def _tokenize(self, incoming: Incoming, endpoint: Endpoint) -> int | None:
        """vLLM's /tokenize takes a Chat body and applies the chat template."""
        chat = self._gateway.codecs["openai-chat"]
        target = Target(endpoint.model or incoming.request.model, stream=False, quirks=endpoint.upstream.quirks)
        try:
            members = split(chat.encode_request(incoming.request, target).body)
        except StromError:
            return None
        body = join({name: value for name, value in members.items() if name in ("model", "messages", "tools")})
        fetched = await fetch(self._gateway.services.client, endpoint.upstream, "/tokenize", body=body)
        return msgspec.json.decode(fetched.body, type=_Tokenized).count if fetched.status == 200 else None


def _counter_of(endpoint: Endpoint) -> Counter | None:
    upstream = endpoint.upstream
    if upstream.protocol == "anthropic" or upstream.counting in ("anthropic", "llama-cpp"):
        return MESSAGES
    return RESPONSES if upstream.protocol == "openai-responses" else None


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
