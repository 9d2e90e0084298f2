"""A server with a response store, and upstreams that a test plays by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from strom.core.access import KeySettings
from strom.server.app import App
from strom.server.models import ModelLister
from strom.server.pages import Pages
from strom.server.platform import Platform
from strom.server.responses import Archive, Responses
from strom.stores.memory_responses import MemoryResponses
from strom.stores.responses import ResponseLimits, ResponseStore
from strom.transport.memory import MemoryExchange, MemoryUpstream, Script
from strom.upstreams.settings import ProviderSettings
from tests.patience import until
from tests.server.rig import ServerRig, provider

PATH = "/v1/responses"
SSE = [(b"content-type", b"text/event-stream")]


class Wall:
    """Unix seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


def chat_frames(*texts: str, finish: str | None = "stop") -> bytes:
    """A Chat stream; `finish` None: it stops in the middle."""
    frames = [_chunk({"role": "assistant", "content": ""}), *(_chunk({"content": text}) for text in texts)]
    if finish is not None:
        frames += [_chunk({}, finish), b"data: [DONE]\n\n"]
    return b"".join(frames)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "real", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chat_script(*texts: str) -> Script:
    return Script(200, SSE, ((chat_frames(*texts),),))


def chat_reply(text: str) -> Script:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "real", "choices": [choice], "usage": usage}
    return Script(200, [(b"content-type", b"application/json")], ((json.dumps(body).encode(),),))


CHAT, RESPONSES, ANTHROPIC = (
    provider("p1", protocol=name) for name in ("openai-chat", "openai-responses", "anthropic")
)
OPENED: list[Archive] = []
"""For the fixture that closes them."""


class ResponsesRig(ServerRig):
    """`store` False: none. `wall` is the store's and the gateway's clock."""

    def __init__(
        self,
        *scripts: Script,
        behind: ProviderSettings = CHAT,
        keys: tuple[KeySettings, ...] = (),
        store: ResponseStore | bool = True,
        max_background: int = 4,
        shared: bool = False,
    ) -> None:
        super().__init__(*scripts, providers=(behind,), keys=keys)
        self.wall = Wall()
        self.gateway.services.wall = self.wall
        self.responses_store = MemoryResponses(ResponseLimits(), self.wall) if isinstance(store, bool) else store
        self.archive = Archive(self.responses_store, shared=shared) if store else None
        OPENED.extend([self.archive] if self.archive is not None else [])
        self.responses = Responses(self.gateway, self.archive, max_background)
        self.app = App(
            self.gateway,
            Pages(self.gateway),
            ModelLister(self.gateway),
            Platform(self.gateway, self.store),
            self.responses,
        )

    async def create(self, body: dict[str, Any], headers: Any = None) -> MemoryExchange:
        return await self.ask("POST", PATH, {"model": "m", "input": "hi", **body}, headers)

    def send(self, body: dict[str, Any]) -> MemoryExchange:
        """A request of which nothing is awaited."""
        exchange = MemoryExchange("POST", PATH, body=json.dumps({"model": "m", "input": "hi", **body}).encode())
        self.app.handle(exchange)
        return exchange

    async def begin(self, body: dict[str, Any]) -> MemoryExchange:
        """A call that is at the upstream, and goes on as the test plays it."""
        sent = len(self.client.sent)
        exchange = self.send(body)
        await self.until(lambda: len(self.client.sent) > sent or exchange.state == "finished")
        return exchange

    async def restart(self) -> ResponsesRig:
        """Another process with the same store, as far as a test can tell; what this one has posted is there."""
        assert self.archive is not None
        await self.archive.run(lambda store: None)
        fresh = ResponsesRig(store=self.responses_store)
        fresh.wall = fresh.gateway.services.wall = self.wall
        return fresh

    async def open(self, path: str) -> MemoryExchange:
        """A GET whose answer need not be finished."""
        exchange = MemoryExchange("GET", path)
        self.app.handle(exchange)
        await self.until(lambda: exchange.state != "new")
        return exchange

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    @property
    def upstream(self) -> MemoryUpstream:
        return self.client.sent[-1]

    def sent_body(self, number: int = -1) -> Any:
        return json.loads(self.client.sent[number].request.body)


def events(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]


def numbers(body: bytes) -> list[int]:
    return [event["sequence_number"] for event in events(body)]
