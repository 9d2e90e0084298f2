"""`/v1/embeddings` and Ollama's `/api/embed` and `/api/embeddings`, over upstreams that speak OpenAI's or Ollama's form.

Embeddings are whole replies without tokens, so they need no pipe: one request, one answer, the next endpoint when one
cannot. They are calls all the same: admitted like others, and each leaves its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from strom.core.errors import BadRequest, Cancelled, GatewayError, StromError, TimedOut, Unsupported, let_go
from strom.core.record import Attempt, CallRecord, RecordError, RecordUsage, Timing, UsageParts
from strom.gateway.accounts import cost, milliseconds, outcome_of
from strom.gateway.admitting import Taken
from strom.gateway.callers import describe_caller
from strom.gateway.failures import attribute
from strom.gateway.fetch import fetch
from strom.gateway.gateway import Gateway
from strom.gateway.hops import FIRST, next_hop
from strom.gateway.plan import Endpoint, Plan
from strom.gateway.queue import take_place
from strom.gateway.responses import respond_error, whole_headers
from strom.gateway.routing import MAX_MODEL_NAME
from strom.protocols import embeddings
from strom.protocols.codec import Codec, UpstreamCall
from strom.protocols.embeddings import EmbeddingReply, EmbeddingRequest
from strom.protocols.ollama import embed
from strom.transport.types import Exchange


class Front(msgspec.Struct, frozen=True):
    """One of the three forms in which clients ask."""

    protocol: str
    decode: Callable[[bytes], EmbeddingRequest]
    encode: Callable[[EmbeddingReply, EmbeddingRequest], bytes]


FRONTS = {
    "/v1/embeddings": Front("openai-chat", embeddings.decode_request, embeddings.encode_reply),
    "/api/embed": Front("ollama", embed.decode_embed, embed.encode_embed_reply),
    "/api/embeddings": Front(
        "ollama", embed.decode_embeddings, lambda reply, request: embed.encode_embeddings_reply(reply)
    ),
}


class Embedder:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def embed(self, exchange: Exchange) -> None:
        front = FRONTS[exchange.head.path]
        services = self._gateway.services
        record = CallRecord(services.new_trace_id(), started_at=services.wall(), protocol_in=front.protocol)
        describe_caller(record, exchange.head, keep_peer=services.settings.keep_peer)
        codec = self._gateway.codecs[front.protocol]
        taken = Taken()
        try:
            body = await self._answer(exchange, front, record, taken)
        except StromError as error:
            taken.mark(error)
            self._refuse(exchange, codec, record, error)
        except asyncio.CancelledError:
            self._settle(exchange, record, Cancelled("The client left."))
            raise
        except Exception as error:
            record.http_status = GatewayError.status
            self._settle(exchange, record, GatewayError("The gateway failed by a defect.", detail=repr(error)[:200]))
            raise
        else:
            record.http_status = 200
            exchange.respond(200, whole_headers(codec, record.trace_id) + taken.headers, body)
            self._settle(exchange, record, None)
        finally:
            taken.settle(record)

    def _refuse(self, exchange: Exchange, codec: Codec, record: CallRecord, error: StromError) -> None:
        def answer() -> None:
            record.http_status = respond_error(exchange, codec, error, record.trace_id)
            self._settle(exchange, record, error)

        self._gateway.hold(exchange, error, answer)

    async def _answer(self, exchange: Exchange, front: Front, record: CallRecord, taken: Taken) -> bytes:
        key = self._gateway.identify(exchange, record=record)
        request = front.decode(exchange.body)
        record.model_requested = request.model[:MAX_MODEL_NAME] or None
        destination = self._gateway.destination(exchange, key)
        router = self._gateway.state.router
        record.policy_id = router.policy_name(key, destination.policy)
        plan = router.plan(request.model, key, destination.policy, destination)
        if request.count == 0:
            if front.protocol != "ollama":
                raise BadRequest("input must not be empty.", param="input")
            return front.encode(EmbeddingReply(request.model, []), request)
        demand = self._gateway.state.limits.demand(key, request.model, request.input_estimate, 0)
        if demand is not None:
            taken.grant = await self._gateway.desk.take(demand, front.protocol)
        reply = await self._ask_in_turn(exchange, request, plan, record)
        if isinstance(reply, bytes):
            return reply
        named = msgspec.structs.replace(reply, model=request.model)
        return front.encode(named, request)

    async def _ask_in_turn(
        self, exchange: Exchange, request: EmbeddingRequest, plan: Plan, record: CallRecord
    ) -> EmbeddingReply | bytes:
        clock = self._gateway.services.clock
        started, hop = clock.time(), FIRST
        self._gateway.services.begin(record)
        while True:
            endpoint = plan.endpoints[hop.at]
            attempt = Attempt(endpoint.id, endpoint.upstream.region)
            attempt.sovereignty_class, attempt.policy_id = endpoint.upstream.sovereignty_class, plan.policy_id
            began = clock.time()
            record.attempts.append(attempt)
            self._describe(record, endpoint, plan)
            try:
                plan.check(endpoint)
                return await self._ask_healthily(exchange, request, endpoint, plan.model_for(endpoint), record)
            except StromError as error:
                let_go(error)
                attribute(error, endpoint.upstream)
                attempt.outcome, attempt.reason = outcome_of(error), error.code
                another_may_do = error.retryable or isinstance(error, Unsupported)
                elapsed_s = clock.time() - started
                following = next_hop(plan, hop, error, another_may_do=another_may_do, elapsed_s=elapsed_s)
                if following is None:
                    raise
                hop = following
            except asyncio.CancelledError:
                attempt.outcome, attempt.reason = "cancelled", Cancelled.code
                raise
            finally:
                now = clock.time()
                attempt.ms = milliseconds(began, now)
                record.timing = Timing(request_duration_ms=milliseconds(started, now))
            await asyncio.sleep(hop.delay_s)

    async def _ask_healthily(
        self, exchange: Exchange, request: EmbeddingRequest, endpoint: Endpoint, model: str, record: CallRecord
    ) -> EmbeddingReply | bytes:
        """In a place of the endpoint's, and with word of it to the health board."""
        services = self._gateway.services
        place = await take_place(services.queues, endpoint)
        error: StromError | None = Cancelled("The client left.")
        services.health.began(endpoint)
        try:
            reply = await self._ask(exchange, request, endpoint, model, record)
            error = None
        except StromError as failure:
            error = failure
            raise
        else:
            return reply
        finally:
            services.health.ended(endpoint, error, None)
            error = None  # it refers to this frame
            if place is not None:
                place.leave()

    async def _ask(
        self, exchange: Exchange, request: EmbeddingRequest, endpoint: Endpoint, model: str, record: CallRecord
    ) -> EmbeddingReply | bytes:
        upstream = endpoint.upstream
        codec = self._gateway.codecs[upstream.protocol]
        relays = request.protocol == "openai-chat" and upstream.protocol.startswith("openai")
        call = self._upstream_call(exchange, request, endpoint, model)
        limit_s = upstream.timeouts.first_token_s
        try:
            async with asyncio.timeout(limit_s):
                fetched = await fetch(
                    self._gateway.services.client, upstream, call.path, body=call.body, headers=call.headers
                )
        except TimeoutError:
            raise TimedOut(f"The backend {upstream.name!r} gave no embeddings within {limit_s:g} s.") from None
        except asyncio.CancelledError:
            self._account(record, None, request, endpoint)
            raise
        if not 200 <= fetched.status < 300:
            raise codec.decode_error(fetched.status, fetched.headers, fetched.body)
        if upstream.protocol == "ollama":
            reply = embed.decode_embed_reply(fetched.body, request.count)
        else:
            reply = embeddings.decode_reply(fetched.body, request.count)
        self._account(record, reply, request, endpoint)
        return embeddings.relay_reply(fetched.body, request) if relays else reply

    def _upstream_call(
        self, exchange: Exchange, request: EmbeddingRequest, endpoint: Endpoint, model: str
    ) -> UpstreamCall:
        match endpoint.upstream.protocol:
            case "ollama":
                return embed.encode_embed_request(request, model)
            case "openai-chat" | "openai-responses":
                if request.protocol == "openai-chat":
                    return embeddings.relay_request(exchange.body, model)
                return embeddings.encode_request(request, model)
            case "anthropic":
                raise Unsupported(f"The backend {endpoint.upstream.name!r} speaks a protocol without embeddings.")

    def _describe(self, record: CallRecord, endpoint: Endpoint, plan: Plan) -> None:
        upstream = endpoint.upstream
        record.protocol_out, record.provider, record.endpoint_id = upstream.protocol, upstream.name, endpoint.id
        record.inference_region, record.retention = upstream.region, upstream.retention
        record.sovereignty_class, record.model_used = upstream.sovereignty_class, plan.model_for(endpoint)

    def _account(
        self, record: CallRecord, reply: EmbeddingReply | None, request: EmbeddingRequest, endpoint: Endpoint
    ) -> None:
        """Embeddings have no output tokens; an unreported input is estimated, as it stands in the reply. `reply` None: the
        client left while the backend worked on the prompt."""
        tokens = reply.input_tokens if reply is not None else None
        record.usage_source = "reported" if tokens is not None else "estimated"
        tokens = tokens if tokens is not None else request.input_estimate
        record.usage = RecordUsage(tokens, 0, parts=UsageParts(tokens, output=0))
        record.cost_estimate = cost(record.usage, endpoint.price, record.started_at)
        if reply is not None:
            record.model_used = reply.model or record.model_used
            record.complete = True

    def _settle(self, exchange: Exchange, record: CallRecord, error: StromError | None) -> None:
        record.ended_at = self._gateway.services.wall()
        record.bytes_out = exchange.bytes_out
        record.status = "completed"
        if error is not None:
            record.complete = False
            record.fault, record.error = error.fault, RecordError(error.code, error.message)
            record.status = "failed" if record.attempts else "rejected"
        if isinstance(error, Cancelled):
            record.status, record.http_status = "cancelled", error.status
        self._gateway.services.settle(record)
