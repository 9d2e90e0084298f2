"""`/v1/models` in OpenAI's and Anthropic's shape.

With configured models the list is theirs; without, each backend is asked, and its names get the provider in front as soon as
there are several. The Anthropic shape is for clients that send `anthropic-version` (protocol-facts.md section 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from urllib.parse import parse_qs, unquote

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import BadRequest, ModelNotFound, StromError
from strom.gateway.fetch import fetch, models_path
from strom.gateway.gateway import Gateway
from strom.gateway.responses import id_headers
from strom.gateway.routing import Router
from strom.transport.types import Exchange
from strom.upstreams.upstream import Upstream

LIST_TIMEOUT_S = 3.0
CACHE_S = 5.0
MAX_PAGE = 1000


class _Named(msgspec.Struct):
    id: str = ""
    name: str = ""


class _UpstreamList(msgspec.Struct):
    """What OpenAI-, Anthropic- and Ollama-like lists have in common."""

    data: list[_Named] | None = None
    models: list[_Named] | None = None


class Listed(msgspec.Struct, frozen=True):
    id: str
    owner: str
    context_window: int | None = None
    upstream_name: str = ""
    """What the upstream calls it, where that is known."""


class ModelLister:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._cached: dict[str, tuple[float, list[str]]] = {}
        self._cached_for: Router | None = None

    async def list_models(self, exchange: Exchange) -> None:
        found = await self.visible(exchange)
        if exchange.head.header(b"anthropic-version") is not None:
            self._respond(exchange, "anthropic", self._anthropic_page(exchange, found))
        else:
            self._respond(exchange, "openai-chat", {"object": "list", "data": [self._openai(item) for item in found]})

    async def one_model(self, exchange: Exchange) -> None:
        wanted = unquote(exchange.head.path.removeprefix("/v1/models/"))
        found = await self.visible(exchange)
        item = next((item for item in found if item.id == wanted), None)
        if item is None:
            raise ModelNotFound(f"The model {wanted!r} is not served here.", param="model")
        if exchange.head.header(b"anthropic-version") is not None:
            self._respond(exchange, "anthropic", self._anthropic(item))
        else:
            self._respond(exchange, "openai-chat", self._openai(item))

    async def visible(self, exchange: Exchange) -> list[Listed]:
        """The models the caller may use."""
        key: KeySettings | None = self._gateway.identify(exchange)
        found = await self.all(self.reachable(exchange))
        if key is None or not key.models:
            return found
        return [item for item in found if any(fnmatchcase(item.id, pattern) for pattern in key.models)]

    def reachable(self, exchange: Exchange) -> list[Upstream]:
        """The upstreams that the policies of the caller allow: no other is asked anything, not even what it has."""
        key = self._gateway.identify(exchange)
        return self._gateway.state.router.open_upstreams(key, self._gateway.destination(exchange, key).policy)

    async def all(self, upstreams: Iterable[Upstream] | None = None) -> list[Listed]:
        """What these have, or all."""
        router = self._gateway.state.router
        upstreams = list(router.upstreams.values() if upstreams is None else upstreams)
        if router.models:
            names = [(model.name, model) for model in router.models.values()]
            names += [(alias, model) for alias, model in router.plain_aliases()]
            return [
                Listed(name, first.upstream.name, first.context_window, first.model)
                for name, model in names
                for first in [each for each in model.endpoints if each.upstream in upstreams][:1]
            ]
        if self._cached_for is not router:
            self._cached.clear()
            self._cached_for = router  # a reload makes a new one
        lists = await asyncio.gather(*(self._names(upstream) for upstream in upstreams))
        several = len(router.upstreams) > 1
        return [
            Listed(f"{upstream.name}/{name}" if several else name, upstream.name, None, name)
            for upstream, names in zip(upstreams, lists, strict=True)
            for name in names
        ]

    async def _names(self, upstream: Upstream) -> list[str]:
        now = asyncio.get_running_loop().time()
        known = self._cached.get(upstream.name)
        if known is None or now >= known[0]:
            known = self._cached[upstream.name] = (now + CACHE_S, await self._ask_one(upstream))
        return known[1]

    async def _ask_one(self, upstream: Upstream) -> list[str]:
        """Names a backend lists; none when it does not answer or answers something else."""
        headers = [(b"anthropic-version", b"2023-06-01")] if upstream.protocol == "anthropic" else None
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                fetched = await fetch(self._gateway.services.client, upstream, models_path(upstream), headers=headers)
            listed = msgspec.json.decode(fetched.body, type=_UpstreamList)
        except (StromError, TimeoutError, msgspec.DecodeError):
            return []
        return [item.id or item.name for item in (listed.data or listed.models or []) if item.id or item.name]

    def _started(self) -> int:
        return int(self._gateway.services.started_at)

    def since_text(self) -> str:
        return datetime.fromtimestamp(self._started(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _openai(self, item: Listed) -> dict[str, object]:
        return {"id": item.id, "object": "model", "created": self._started(), "owned_by": item.owner}

    def _anthropic(self, item: Listed) -> dict[str, object]:
        return {"type": "model", "id": item.id, "display_name": item.id, "created_at": self.since_text()}

    def _anthropic_page(self, exchange: Exchange, found: list[Listed]) -> dict[str, object]:
        """Cursor paging by id: `limit`, `after_id`, `before_id`."""
        query = parse_qs(exchange.head.query)
        limit = _limit(query.get("limit", ["20"])[0])
        ids = [item.id for item in found]
        start, end = 0, len(found)
        after, before = query.get("after_id", [""])[0], query.get("before_id", [""])[0]
        if after in ids:
            start = ids.index(after) + 1
        if before in ids:
            end = ids.index(before)
            start = max(start, end - limit)
        page = found[start : min(end, start + limit)]
        has_more = end > start + limit if not before else start > 0
        data = [self._anthropic(item) for item in page]
        first, last = (page[0].id, page[-1].id) if page else (None, None)
        return {"data": data, "has_more": has_more, "first_id": first, "last_id": last}

    def _respond(self, exchange: Exchange, protocol: str, body: object) -> None:
        headers = [(b"content-type", b"application/json"), *id_headers(protocol, self._gateway.services.new_trace_id())]
        exchange.respond(200, headers, msgspec.json.encode(body))


def _limit(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MAX_PAGE:
        raise BadRequest(f"limit must be a number from 1 to {MAX_PAGE}.", param="limit")
    return int(text)
