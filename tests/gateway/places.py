"""Upstreams, endpoints and a gateway over many of them, for tests of where calls go."""

from __future__ import annotations

from typing import Any

from strom.core.access import KeySettings, PolicySettings
from strom.gateway.board import Board
from strom.gateway.gateway import Gateway, State
from strom.gateway.plan import Endpoint
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.policies.auth import KeyRing
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryClient, MemoryExchange, MemoryUpstream
from strom.upstreams.settings import EndpointSettings, HealthSettings, ModelSettings, ProviderSettings
from strom.upstreams.upstream import Upstream
from tests.gateway.rig import JSON, PATHS, ROLE, SSE, USAGE, FakeClock, Records, body_of, chat_frame, text

NAMES = ("a", "b", "c", "d", "e", "f")


def provider(name: str, protocol: Any = "openai-chat", **more: Any) -> ProviderSettings:
    """Each at a port of its own, so that a test sees where a request went."""
    port = 9000 + NAMES.index(name) if name in NAMES else 9100
    return ProviderSettings(name, "generic", protocol, f"http://127.0.0.1:{port}/v1", **more)


def place(name: str, **more: Any) -> Endpoint:
    health = more.pop("health", HealthSettings())
    return Endpoint(name, Upstream(provider(name, health=health)), "real", **more)


class Field:
    """A gateway whose models and policies a test says. The first upstream's port is 9000, and so on."""

    def __init__(
        self,
        models: list[ModelSettings],
        providers: list[ProviderSettings] | None = None,
        policies: tuple[PolicySettings, ...] = (),
        keys: tuple[KeySettings, ...] = (),
        *,
        settings: CallSettings | None = None,
    ) -> None:
        clock = self.clock = FakeClock()
        self.client = MemoryClient()
        self.records = Records()
        self.services = Services(
            self.client, self.records, settings or CallSettings(), self.clock, wall=lambda: 1.7e9 + clock.now
        )
        self.board = Board(self.clock.time, draw=lambda: 0.5)
        self.services.health = self.board
        names = dict.fromkeys(entry.provider for model in models for entry in model.endpoints)
        upstreams = [Upstream(each) for each in providers or [provider(name) for name in names]]
        self.router = Router(upstreams, models, policies, draw=lambda: 0.5, health=self.board)
        state = State(self.router, KeyRing(keys, required=bool(keys)), may_pin_freely=True)
        self.gateway = Gateway(self.services, CODECS, state)

    def call(
        self, front: str = "openai-chat", *, stream: bool = True, headers: Any = (), **body: Any
    ) -> MemoryExchange:
        exchange = MemoryExchange("POST", PATHS[front], headers=headers, body=body_of(front, stream=stream, **body))
        self.gateway.handle_call(exchange, CODECS[front])
        return exchange

    @property
    def last(self) -> MemoryUpstream:
        return self.client.sent[-1]

    @property
    def asked(self) -> list[str]:
        """Names of the upstreams that were asked, in order."""
        return [NAMES[sent.origin.port - 9000] for sent in self.client.sent]

    def answer(self, number: int = -1) -> None:
        sent = self.client.sent[number]
        sent.response(200, SSE)
        sent.read(ROLE, text("hello"))
        sent.end(chat_frame({}, "stop"), USAGE, b"data: [DONE]\n\n")

    def refuse(self, status: int, body: bytes = b"{}", headers: Any = (), number: int = -1) -> None:
        sent = self.client.sent[number]
        sent.response(status, [*JSON, *headers])
        sent.end(body)


def model(*names: str, **more: Any) -> ModelSettings:
    """ "m" at these providers, one order after the other, unless `order` says otherwise."""
    order = more.pop("order", None)
    endpoints = tuple(
        EndpointSettings(f"e-{name}", name, "real", order=at if order is None else order, **more.pop(name, {}))
        for at, name in enumerate(names, 1)
    )
    return ModelSettings(more.pop("name", "m"), endpoints, **more)
