"""Ollama's small endpoints: which models there are, what one is, which are loaded, the version.

An upstream that speaks Ollama is asked itself (its digests and details are real); of others only the name is known. The version
is one that clients accept as recent enough for tools, thinking and structured output.
"""

from __future__ import annotations

import asyncio

import msgspec

from strom.core.errors import ModelNotFound, StromError
from strom.gateway.fetch import fetch
from strom.gateway.gateway import AtOnce, Gateway
from strom.gateway.responses import id_headers
from strom.protocols.ollama import endpoints, load
from strom.protocols.ollama.endpoints import ModelCard
from strom.protocols.ollama.form import Form
from strom.server.models import Listed, ModelLister
from strom.transport.types import Exchange
from strom.upstreams.upstream import Upstream
from strom.wire.splice import join, split

VERSION = "0.12.0"
ASK_TIMEOUT_S = 3.0
CAPABILITIES = ("completion", "tools", "thinking")
"""What is said of a model of which nothing is known: a client that asks for less than there is loses it."""


def load_answer(form: Form) -> AtOnce:
    """A request that only loads or unloads a model is answered at once, without the backend."""
    return lambda request, context: load.load_reply(form, request, context) if load.is_load(request) else None


class OllamaPages:
    def __init__(self, gateway: Gateway, lister: ModelLister) -> None:
        self._gateway = gateway
        self._lister = lister

    async def tags(self, exchange: Exchange) -> None:
        cards = await self._cards(exchange, "/api/tags")
        self._respond(exchange, endpoints.tags_body(cards))

    async def running(self, exchange: Exchange) -> None:
        """Models of Ollama upstreams that are loaded; of other kinds nobody tells, so all of theirs are listed."""
        cards = await self._cards(exchange, "/api/ps")
        self._respond(exchange, endpoints.ps_body(cards))

    async def show(self, exchange: Exchange) -> None:
        key = self._gateway.identify(exchange)
        wanted = endpoints.shown_model(exchange.body)
        plan = self._gateway.plan_for(exchange, key, wanted)
        endpoint = plan.endpoints[0]
        plan.check(endpoint)
        if endpoint.upstream.protocol == "ollama":
            answer = await self._ask_show(exchange, endpoint.upstream, plan.model_for(endpoint))
            if answer is not None:
                self._respond(exchange, answer)
                return
        listed = await self._lister.visible(exchange)
        known = (
            not listed or self._gateway.state.router.models or any(endpoints.same_model(wanted, i.id) for i in listed)
        )
        if not known:
            raise ModelNotFound(f"model '{wanted}' not found", param="model")
        card = self._card(Listed(wanted, endpoint.upstream.name, endpoint.context_window))
        self._respond(exchange, endpoints.show_body(card))

    async def version(self, exchange: Exchange) -> None:
        self._respond(exchange, endpoints.version_body(VERSION))

    async def _cards(self, exchange: Exchange, path: str) -> list[ModelCard]:
        listed = await self._lister.visible(exchange)
        upstreams = [u for u in self._lister.reachable(exchange) if u.protocol == "ollama"]
        answers = await asyncio.gather(*(self._ask_cards(upstream, path) for upstream in upstreams))
        told = {upstream.name: cards for upstream, cards in zip(upstreams, answers, strict=True) if cards is not None}
        result = []
        for item in listed:
            cards = told.get(item.owner)
            own = item.upstream_name or item.id
            found = None if cards is None else next((c for c in cards if endpoints.same_model(c.name, own)), None)
            if found is not None:
                result.append(
                    msgspec.structs.replace(found, name=item.id, modified_at=found.modified_at or self._since())
                )
            elif cards is None or path == "/api/tags":
                result.append(self._card(item))
        return result

    async def _ask_cards(self, upstream: Upstream, path: str) -> list[ModelCard] | None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                fetched = await fetch(self._gateway.services.client, upstream, path)
            return endpoints.read_tags(fetched.body) if fetched.status == 200 else None
        except (StromError, TimeoutError):
            return None

    async def _ask_show(self, exchange: Exchange, upstream: Upstream, model: str) -> bytes | None:
        try:
            members = {name: value for name, value in split(exchange.body).items() if name != "name"}
            body = join({**members, "model": msgspec.json.encode(model)})
            async with asyncio.timeout(ASK_TIMEOUT_S):
                fetched = await fetch(self._gateway.services.client, upstream, "/api/show", body=body)
        except (StromError, TimeoutError, ValueError):
            return None
        return fetched.body if fetched.status == 200 and fetched.body.lstrip().startswith(b"{") else None

    def _card(self, item: Listed) -> ModelCard:
        return ModelCard(
            item.id, self._since(), capabilities=CAPABILITIES, context_length=item.context_window, digest="0" * 64
        )

    def _since(self) -> str:
        return self._lister.since_text()

    def _respond(self, exchange: Exchange, body: bytes) -> None:
        headers = [(b"content-type", b"application/json")]
        exchange.respond(200, headers + id_headers("ollama", self._gateway.services.new_trace_id()), body)
