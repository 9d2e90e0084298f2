"""The server's handler without sockets: ask it, play the upstreams by script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from strom.core.access import KeySettings, PolicySettings
from strom.gateway.gateway import Gateway, State
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.policies.auth import KeyRing
from strom.protocols.table import CODECS
from strom.server.app import App
from strom.server.models import ModelLister
from strom.server.pages import Pages
from strom.server.platform import Platform
from strom.stores.memory import MemoryStore
from strom.transport.memory import MemoryClient, MemoryExchange, Script
from strom.transport.timers import LoopClock
from strom.upstreams.settings import ModelSettings, ProviderSettings
from strom.upstreams.upstream import Upstream
from tests.patience import until

JSON = [(b"content-type", b"application/json")]


def provider(name: str, kind: str = "generic", protocol: Any = "openai-chat") -> ProviderSettings:
    return ProviderSettings(name, kind, protocol, "http://127.0.0.1:9/v1")


def json_script(body: Any, status: int = 200) -> Script:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Script(status, JSON, ((data,),))


class ServerRig:
    """Made inside a running loop."""

    def __init__(
        self,
        *scripts: Script,
        providers: tuple[ProviderSettings, ...] = (),
        models: tuple[ModelSettings, ...] = (),
        keys: tuple[KeySettings, ...] = (),
        policies: tuple[PolicySettings, ...] = (),
    ) -> None:
        self.client = MemoryClient(*scripts)
        self.store = MemoryStore()
        clock = LoopClock(asyncio.get_running_loop())
        services = Services(self.client, self.store, CallSettings(), clock)
        router = Router([Upstream(p) for p in providers or (provider("p1"),)], models, policies)
        self.gateway = Gateway(services, CODECS, State(router, KeyRing(keys, required=bool(keys))))
        self.app = App(self.gateway, Pages(self.gateway), ModelLister(self.gateway), Platform(self.gateway, self.store))

    async def ask(
        self, method: str, path: str, body: Any = None, headers: list[tuple[bytes, bytes]] | None = None
    ) -> MemoryExchange:
        """The finished exchange."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        exchange = MemoryExchange(method, path, headers=headers or [], body=data)
        self.app.handle(exchange)
        await until(lambda: exchange.state in ("finished", "aborted", "left"), told=lambda: f"{method} {path}")
        return exchange


def answer(exchange: MemoryExchange) -> Any:
    return json.loads(exchange.body_out)
