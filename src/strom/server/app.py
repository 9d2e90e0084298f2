"""The table of endpoints, and the handler that the transport calls.

An unknown path, a wrong method and a request the transport refused are answered in the words of the protocol whose paths
they resemble. Model calls go to the gateway; everything else is small, whole JSON.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from urllib.parse import unquote

from strom.core.errors import BadRequest, GatewayError, NotFound, StromError
from strom.gateway.gateway import AtOnce, Gateway
from strom.gateway.refusals import NESTED, not_allowed, refusal_error
from strom.gateway.responses import respond_error
from strom.protocols.codec import Codec
from strom.protocols.ollama import GENERATE_CODEC
from strom.protocols.ollama.form import CHAT, GENERATE
from strom.protocols.table import CODECS
from strom.server.counting import TokenCounter
from strom.server.embeddings import FRONTS as EMBEDDING_PATHS
from strom.server.embeddings import Embedder
from strom.server.models import ModelLister
from strom.server.ollama import OllamaPages, load_answer
from strom.server.pages import PATHS as PAGE_PATHS
from strom.server.pages import Pages
from strom.server.platform import Platform
from strom.server.problems import is_platform, respond_problem
from strom.server.responses import Responses
from strom.server.responses.endpoints import BELOW as BELOW_RESPONSES
from strom.server.responses.endpoints import BELOW_STREAMS as BACKGROUND_STREAMS
from strom.server.responses.endpoints import PATH as RESPONSES_PATH
from strom.server.resumable import BELOW as BELOW_STREAMS
from strom.server.resumable import Resumption
from strom.transport.types import Exchange

LOG = logging.getLogger("strom.server")
CALL_PATHS: dict[str, Codec] = {
    "/v1/chat/completions": CODECS["openai-chat"],
    RESPONSES_PATH: CODECS["openai-responses"],
    "/v1/messages": CODECS["anthropic"],
    "/api/chat": CODECS["ollama"],
    "/api/generate": GENERATE_CODEC,
}
"""Paths of model calls, and the codec that speaks each."""
AT_ONCE: dict[str, AtOnce] = {"/api/chat": load_answer(CHAT), "/api/generate": load_answer(GENERATE)}
"""Model calls of which some need no model."""

Endpoint = Callable[[Exchange], Coroutine[object, object, None]]


class App:
    """`handle` is the transport's handler. `tasks` are answers under way that are no model calls."""

    def __init__(
        self,
        gateway: Gateway,
        pages: Pages,
        models: ModelLister,
        platform: Platform,
        responses: Responses | None = None,
    ) -> None:
        """`responses` None: none are stored."""
        self._gateway = gateway
        self._responses = responses or Responses(gateway, None)
        self._pages = pages
        self.platform = platform
        self.streams: Resumption | None = None
        """None: no stream outlives its client's connection."""
        self._tasks: set[asyncio.Task[None]] = set()
        counter, ollama, embedder = TokenCounter(gateway), OllamaPages(gateway, models), Embedder(gateway)
        self._get: dict[str, Endpoint] = {
            "/v1/models": models.list_models,
            "/api/tags": ollama.tags,
            "/api/ps": ollama.running,
            "/api/version": ollama.version,
            "/readyz": pages.ready,
        }
        self._get_below: dict[str, Endpoint] = {
            "/v1/models/": models.one_model,
        }
        self._post: dict[str, Endpoint] = {
            "/v1/messages/count_tokens": counter.count,
            "/api/show": ollama.show,
            **dict.fromkeys(EMBEDDING_PATHS, embedder.embed),
        }

    def add_page(self, path: str, endpoint: Endpoint) -> None:
        """One more answer to GET and HEAD."""
        self._get[path] = endpoint

    def handle(self, exchange: Exchange) -> None:
        """Never raises, returns at once."""
        head = exchange.head
        codec = CALL_PATHS.get(head.path)
        try:
            if codec is not None and (head.method == "POST" or exchange.refusal is not None):
                self._call(exchange, codec)
                return
            recorded = head.method == "POST" and head.path in EMBEDDING_PATHS
            if exchange.refusal is not None and not recorded:
                raise refusal_error(exchange.refusal)
            if not self._pages.answer(exchange):
                self._start(exchange, self._find(exchange))
        except StromError as error:
            self.refuse(exchange, error)
        except RecursionError:
            self.refuse(exchange, BadRequest(NESTED))
        except Exception as error:  # noqa: BLE001 - a defect fails this answer, not the server
            self._defect(exchange, error)

    async def close(self) -> None:
        """Cancel what is still under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._responses.close()

    def _call(self, exchange: Exchange, codec: Codec) -> None:
        path = exchange.head.path
        if self.streams is not None:
            exchange = self.streams.wrap(exchange)
        if path != RESPONSES_PATH:
            self._gateway.handle_call(exchange, codec, AT_ONCE.get(path))
            return
        rest = self._responses.create(exchange)
        if rest is not None:
            self._start(exchange, lambda _: rest)
            exchange.on_disconnect = None  # it becomes a call even if its client leaves now: one with a record

    def _find(self, exchange: Exchange) -> Endpoint:
        method, path = exchange.head.method, exchange.head.path
        tables = {"GET": self._get, "HEAD": self._get, "POST": self._post}
        endpoint = tables.get(method, {}).get(path)
        if endpoint is not None:
            return endpoint
        if is_platform(path):
            return self.platform.answer
        takes_any_method = self._below(path)
        if takes_any_method is not None:
            return takes_any_method
        for prefix, below in self._get_below.items():
            if path.startswith(prefix) and len(path) > len(prefix):
                if method not in ("GET", "HEAD"):
                    raise not_allowed(path, "GET", "GET, HEAD")
                return below
        if path in CALL_PATHS or path in self._post:
            raise not_allowed(path, "POST")
        if path in self._get or path in PAGE_PATHS:
            raise not_allowed(path, "GET", "GET, HEAD")
        raise NotFound(f"There is no endpoint {unquote(path)[:200]!r} here.")

    def _below(self, path: str) -> Endpoint | None:
        if path.startswith(BELOW_RESPONSES):
            return self._responses.below
        if path.startswith(BACKGROUND_STREAMS):
            return self._responses.below_streams
        if self.streams is not None and path.startswith(BELOW_STREAMS):
            return self.streams.below
        return None

    def _start(self, exchange: Exchange, endpoint: Endpoint) -> None:
        task = asyncio.get_running_loop().create_task(self._run(exchange, endpoint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.on_disconnect = task.cancel  # type: ignore[assignment]  # its answer is not used

    async def _run(self, exchange: Exchange, endpoint: Endpoint) -> None:
        try:
            await endpoint(exchange)
        except StromError as error:
            self.refuse(exchange, error)
        except RecursionError:
            self.refuse(exchange, BadRequest(NESTED))
        except Exception as error:  # noqa: BLE001 - a defect fails this answer, not the server
            self._defect(exchange, error)

    def _defect(self, exchange: Exchange, error: Exception) -> None:
        LOG.error("%s failed by a defect", exchange.head.path, exc_info=error)
        self.refuse(exchange, GatewayError("The gateway failed while it answered this request."))

    def refuse(self, exchange: Exchange, error: StromError) -> None:
        """Answer with this error, in the words of the protocol that the path is of."""
        self._gateway.hold(exchange, error, lambda: self._refuse(exchange, error))

    def _refuse(self, exchange: Exchange, error: StromError) -> None:
        trace_id = self._gateway.services.new_trace_id()
        try:
            if is_platform(exchange.head.path):
                respond_problem(exchange, error, trace_id)
            else:
                respond_error(exchange, self._codec_for(exchange), error, trace_id)
        except RuntimeError:
            exchange.abort()  # its answer had begun: cut short, it is not taken for a whole one

    def _codec_for(self, exchange: Exchange) -> Codec:
        """The protocol a client of this path most likely speaks."""
        path, codecs = exchange.head.path, self._gateway.codecs
        if self.streams is not None and (codec := self.streams.codec_for(path)) is not None:
            return codec
        if path.startswith("/v1/messages") or exchange.head.header(b"anthropic-version") is not None:
            return codecs["anthropic"]
        if path.startswith("/api/") and "ollama" in codecs:
            return codecs["ollama"]
        if path.startswith((RESPONSES_PATH, BACKGROUND_STREAMS)):
            return codecs["openai-responses"]
        return codecs["openai-chat"]
