"""The paths: POST /v1/responses and what stands below it.

POST /v1/responses                     a model call; stored, continued, in the background, as it says
POST /v1/responses/input_tokens        the tokens of its prompt
GET, DELETE /v1/responses/{id}         GET with stream=true: the events of a background response over starting_after, or
                                       after Last-Event-ID
POST /v1/responses/{id}/cancel         background responses only
GET /v1/responses/{id}/input_items     the conversation it was asked with
GET, DELETE /v1/streams/{id}           of a background response: its events after Last-Event-ID; its cancellation

A response belongs to the key it was made with; to any other it is not there. A call that wants nothing of the store costs one
look at its body.
Source: openai-python 3.57.0 resources/responses/responses.py, input_items.py, input_tokens.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from urllib.parse import parse_qs, unquote

from strom.core.errors import BadRequest, MethodNotAllowed, NotFound, StromError, Unsupported
from strom.core.messages import Request
from strom.gateway.gateway import AtOnce, Gateway
from strom.gateway.outgoing import Incoming
from strom.gateway.refusals import not_allowed
from strom.gateway.responses import id_headers, whole_headers
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses import stored as wire
from strom.protocols.openai_responses.background import split_frames
from strom.protocols.openai_responses.stored import StoreWish
from strom.server.counting import TokenCounter
from strom.server.following import Reader, last_event_id
from strom.server.responses.archive import Archive
from strom.server.responses.background import Job, Jobs
from strom.server.responses.exchanges import StoringExchange
from strom.server.responses.history import Continuation, input_items, keep
from strom.server.responses.keeping import permitted
from strom.server.responses.replay import Replay, current_response, runs, stream_head
from strom.server.resumable import BELOW as STREAMS
from strom.shared.streams import beyond_error
from strom.stores.responses import Place, StoredResponse
from strom.transport.types import Exchange
from strom.wire.splice import join, split

NAME = "openai-responses"
PATH = "/v1/responses"
BELOW = PATH + "/"
BELOW_STREAMS = STREAMS + "resp_"
"""Where the stream of a background response is found as any resumable stream is."""
MAX_BACKGROUND = 32
CANCEL_WAIT_S = 5.0
POLL_S = 0.1


class Responses:
    """`archive` None: nothing is stored ([store] responses = false)."""

    def __init__(self, gateway: Gateway, archive: Archive | None, max_background: int = MAX_BACKGROUND) -> None:
        self._gateway = gateway
        self._codec = gateway.codecs[NAME]
        self._archive = archive
        self._counter = TokenCounter(gateway)
        self._jobs = Jobs(gateway.services, archive, max_background) if archive is not None else None

    async def close(self) -> None:
        """Background responses end, everything stored is on disk."""
        if self._jobs is not None:
            self._jobs.close()
        if self._archive is not None:
            await self._archive.close()

    # -- POST /v1/responses --

    def create(self, exchange: Exchange) -> Coroutine[object, object, None] | None:
        """A model call. None: it is under way; otherwise the rest of it, which has to wait for the store."""
        if exchange.refusal is not None:
            self._gateway.handle_call(exchange, self._codec)
            return None
        try:
            wish = permitted(self._gateway, exchange, wire.body_wish(exchange.body))
            if wish.reads or wish.background:
                return self._prepare(exchange, wish)
            if wish.store and self._archive is not None:
                exchange = self._storing(exchange)
        except StromError as error:
            self._gateway.handle_call(exchange, self._codec, _refusing(error))
        else:
            self._gateway.handle_call(exchange, self._codec)
        return None

    async def _prepare(self, exchange: Exchange, wish: StoreWish) -> None:
        """Whoever starts this leaves `on_disconnect` alone: a client that leaves now is found gone when the call begins."""
        try:
            if wish.reads:
                exchange.body = await self._expanded(exchange, wish)
            if wish.background:
                self._start_background(exchange, wish)
                return
            if wish.store and self._archive is not None:
                exchange = self._storing(exchange)
        except StromError as error:
            self._gateway.handle_call(exchange, self._codec, _refusing(error))
        else:
            self._gateway.handle_call(exchange, self._codec)

    async def _expanded(self, exchange: Exchange, wish: StoreWish) -> bytes:
        continuation = Continuation(self._owner(exchange), exchange.body, wish, self._speaks_responses(exchange, wish))
        if self._archive is None:
            return continuation.without_store()
        return await self._archive.find(continuation.expand) or exchange.body

    def _speaks_responses(self, exchange: Exchange, wish: StoreWish) -> bool:
        """Whether all upstreams that may serve this call can know ids that we do not."""
        gateway = self._gateway
        try:
            plan = gateway.plan_for(exchange, gateway.identify(exchange), wish.model)
        except StromError:
            return False  # the gateway will say the same, and why
        return all(endpoint.upstream.protocol == NAME for endpoint in plan.endpoints)

    def _owner(self, exchange: Exchange) -> str:
        """Raises AuthError."""
        key = self._gateway.identify(exchange)
        return key.name if key is not None else ""

    def _storing(self, exchange: Exchange) -> Exchange:
        keep = partial(self._keep, self._owner(exchange), exchange.body)
        return StoringExchange(exchange, keep)

    def _keep(self, owner: str, body: bytes, response: bytes) -> None:
        """Of an answer whose end is proven; any other is evidence, which records keep."""
        try:
            if self._archive is None or not wire.has_ended_well(response):
                return
        except ValueError:
            return  # an upstream's object that is none
        state = StoredResponse(Place(owner, wire.item_id(response)), response, created_at=self._gateway.services.wall())
        self._archive.post(partial(keep, state, body), len(body) + len(response))

    # -- background --

    def _start_background(self, exchange: Exchange, wish: StoreWish) -> None:
        """Raises what refuses it before it is a call."""
        if self._jobs is None:
            raise Unsupported("Background responses need a store, which is switched off here.", param="background")
        if not wish.store:
            raise BadRequest("A background response is stored: leave out 'store'.", param="store")
        self._jobs.check_room()
        try:
            body = join({**split(exchange.body), "stream": b"true"})
        except ValueError:
            body = exchange.body  # the codec words the error
        job = Job(self._jobs, self._owner(exchange), exchange.head, body)
        self._gateway.handle_call(job.exchange, self._codec, job.admit)
        if job.refused is not None:
            exchange.respond(*job.refused)
            return
        self._jobs.begin(job)
        if wish.stream:
            self._attach(exchange, job, 0)
        else:
            trace_id = job.kept.identity.removeprefix("resp_")
            exchange.respond(200, whole_headers(self._codec, trace_id), job.kept.response)

    def _attach(self, exchange: Exchange, job: Job, first: int) -> None:
        Reader(exchange, job, first).attach(stream_head(self._codec, job.kept.identity))

    # -- below /v1/responses --

    async def below(self, exchange: Exchange) -> None:
        """Any method, any path below /v1/responses/."""
        method, rest = exchange.head.method, exchange.head.path.removeprefix(BELOW)
        identity, _, action = rest.partition("/")
        endpoints = {
            ("GET", ""): self._retrieve,
            ("DELETE", ""): self._delete,
            ("POST", "cancel"): self._cancel,
            ("GET", "input_items"): self._list_input,
        }
        if (method, rest) == ("POST", "input_tokens"):
            await self._count(exchange)
            return
        endpoint = endpoints.get((method, action))
        if endpoint is not None:
            await endpoint(exchange, Place(self._owner(exchange), unquote(identity)))
        elif any(action == known for _, known in endpoints):
            raise MethodNotAllowed(f"{method} is not for {exchange.head.path[:200]}.")
        else:
            raise NotFound(f"There is no endpoint {unquote(exchange.head.path)[:200]!r} here.")

    async def below_streams(self, exchange: Exchange) -> None:
        """Any method, any path below BELOW_STREAMS."""
        method, path = exchange.head.method, exchange.head.path
        if method not in ("GET", "DELETE"):
            raise not_allowed(path[:200], "GET and DELETE", "GET, DELETE")
        place = Place(self._owner(exchange), unquote(path.removeprefix(STREAMS)))
        if method == "GET":
            after = last_event_id(exchange) - 1
            await self._check_reached(place, after)
            await self._follow(exchange, place, after)
            return
        await self._cancelled(place)
        exchange.respond(204, id_headers(NAME, self._gateway.services.new_trace_id()), b"")

    async def _retrieve(self, exchange: Exchange, place: Place) -> None:
        query = {name: values[-1] for name, values in parse_qs(exchange.head.query).items()}
        streams = query.get("stream", "").lower() in ("true", "1")
        after = _number(query, "starting_after", -1)
        if streams:  # who reconnects by itself asks for the same address again, and says in the header how far it came
            await self._follow(exchange, place, (last_event_id(exchange) or after + 1) - 1)
            return
        job = self._find_job(place)
        self._respond(exchange, job.kept.response if job is not None else self._object(await self._stored(place)))

    async def _check_reached(self, place: Place, after: int) -> None:
        """Raises BadRequest for an event that never was. What another process runs may be ahead of the store."""
        job = self._find_job(place)
        if job is not None:
            if after >= len(job.frames):
                raise beyond_error(after + 1, len(job.frames))
            return
        stored = await self._stored(place)
        if after < 0 or stored.running_until is not None or not stored.background:
            return
        assert self._archive is not None, "something was found in it"
        batches = await self._archive.run(lambda store: store.events(place, after))
        count = batches[-1].first + len(split_frames(batches[-1].frames)) if batches else 0
        if after >= count:
            raise beyond_error(after + 1, count)

    async def _follow(self, exchange: Exchange, place: Place, after: int) -> None:
        """Every event with a number over `after`."""
        job = self._find_job(place)
        if job is not None:
            self._attach(exchange, job, after + 1)
            return
        stored = await self._stored(place)
        assert self._archive is not None, "something was found in it"
        await Replay(exchange, self._archive, stored).run(after, self._gateway.services.wall)

    async def _delete(self, exchange: Exchange, place: Place) -> None:
        job = self._find_job(place)
        if job is not None:
            job.discard()
        if self._archive is None or not await self._archive.run(lambda store: store.delete(place)):
            raise wire.not_found(place.id)
        self._respond(exchange, wire.deleted_body(place.id))

    async def _cancel(self, exchange: Exchange, place: Place) -> None:
        self._respond(exchange, await self._cancelled(place))

    async def _cancelled(self, place: Place) -> bytes:
        """Its object, once it does not run any more."""
        job = self._find_job(place)
        if job is not None:
            job.cancel()
            return job.kept.response
        stored = await self._stored(place)
        if not stored.background:
            raise BadRequest(f"Response {place.id!r} does not run in the background: only such can be cancelled.")
        if runs(stored, self._gateway.services.wall()):
            stored = await self._cancel_elsewhere(place)
        return self._object(stored)

    async def _list_input(self, exchange: Exchange, place: Place) -> None:
        query = {name: values[-1] for name, values in parse_qs(exchange.head.query).items()}
        limit = _number(query, "limit", 20)
        if not 1 <= limit <= 100:
            raise BadRequest("limit: expected a number from 1 to 100", param="limit")
        items = input_items(await self._stored(place))
        listed = [wire.listed_item(item, f"item_{place.id}_{at}") for at, item in enumerate(items)]
        if query.get("order", "desc") != "asc":
            listed.reverse()
        after = query.get("after")
        if after is not None:
            at = next((at for at, item in enumerate(listed) if wire.item_id(item) == after), None)
            if at is None:
                raise BadRequest(f"after: there is no item {after[:200]!r}", param="after")
            listed = listed[at + 1 :]
        self._respond(exchange, wire.item_list(listed[:limit], has_more=len(listed) > limit))

    async def _count(self, exchange: Exchange) -> None:
        gateway = self._gateway
        key = gateway.identify(exchange)
        wish = wire.body_wish(exchange.body)
        body = await self._expanded(exchange, wish) if wish.reads else exchange.body
        request = self._codec.decode_request(body)
        plan = gateway.plan_for(exchange, key, request.model)
        incoming = Incoming(self._codec, request, body, exchange.head.headers)
        tokens, source = await self._counter.tokens(incoming, plan)
        headers = whole_headers(self._codec, gateway.services.new_trace_id())
        headers.append((b"x-strom-usage-source", source.encode()))
        exchange.respond(200, headers, wire.input_tokens_body(tokens))

    # -- what is stored --

    def _find_job(self, place: Place) -> Job | None:
        return self._jobs.find(place) if self._jobs is not None else None

    async def _stored(self, place: Place) -> StoredResponse:
        """Raises NotFound."""
        stored = await self._archive.find(lambda store: store.get(place)) if self._archive is not None else None
        if stored is None:
            raise wire.not_found(place.id)
        return stored

    def _object(self, stored: StoredResponse) -> bytes:
        return current_response(stored, self._gateway.services.wall())

    async def _cancel_elsewhere(self, place: Place) -> StoredResponse:
        """Ask the process that runs it, and wait until it has done so."""
        assert self._archive is not None
        await self._archive.run(lambda store: store.ask_cancel(place))
        for _ in range(int(CANCEL_WAIT_S / POLL_S)):
            await asyncio.sleep(POLL_S)
            stored = await self._stored(place)
            if not runs(stored, self._gateway.services.wall()):
                break
        return stored

    def _respond(self, exchange: Exchange, body: bytes) -> None:
        headers = [(b"content-type", b"application/json")]
        exchange.respond(200, headers + id_headers(NAME, self._gateway.services.new_trace_id()), body)


def _refusing(error: StromError) -> AtOnce:
    """A hook that refuses a call after its admission, so that the refusal has its record."""

    def refuse(request: Request, context: ReplyContext) -> bytes | None:
        raise error

    return refuse


def _number(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise BadRequest(f"{name}: expected a number", param=name)
    return int(text)
