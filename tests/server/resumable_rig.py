"""A server that keeps resumable streams, upstreams that a test plays by hand, and a clock for grace and retention."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from strom.core.access import KeySettings
from strom.core.record import CallRecord
from strom.server.resumable import Resumption, StreamLimits, Streams
from strom.shared.streams import Elsewhere
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.upstreams.settings import ProviderSettings
from tests.gateway.rig import FakeClock
from tests.patience import until
from tests.server.rig import ServerRig, provider

SSE = [(b"content-type", b"text/event-stream")]
NDJSON = [(b"content-type", b"application/x-ndjson")]
RESUMABLE = (b"x-strom-resumable", b"1")
CHAT = "/v1/chat/completions"


def chunk(text: str) -> bytes:
    return _chat({"content": text})


def _chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    frame = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "real", "choices": [choice]}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


END = _chat({}, "stop") + b"data: [DONE]\n\n"


def numbered(*frames: bytes, first: int = 1) -> bytes:
    return b"".join(b"id: %d\n%b" % (first + at, frame) for at, frame in enumerate(frames))


class ResumableRig(ServerRig):
    def __init__(
        self,
        *,
        behind: ProviderSettings | None = None,
        keys: tuple[KeySettings, ...] = (),
        limits: StreamLimits | None = None,
        peers: Elsewhere | None = None,
        replicas: Elsewhere | None = None,
    ) -> None:
        super().__init__(providers=(behind or provider("p1"),), keys=keys)
        self.clock = FakeClock()
        self.streams = Streams(self.clock, limits or StreamLimits())
        self.resumption = self.app.streams = Resumption(self.gateway, self.streams, peers, replicas)

    def send(self, *headers: tuple[bytes, bytes], path: str = CHAT, **body: Any) -> MemoryExchange:
        asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], **body}
        exchange = MemoryExchange("POST", path, headers=[RESUMABLE, *headers], body=json.dumps(asked).encode())
        self.app.handle(exchange)
        return exchange

    def begin(self, *texts: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> tuple[MemoryExchange, str]:
        """A Chat stream under way, and the path under which it is kept."""
        exchange = self.send(*headers)
        self.upstream.response(200, SSE)
        for text in texts:
            self.upstream.read(chunk(text))
        return exchange, stream_path(exchange)

    async def open(self, path: str, *headers: tuple[bytes, bytes], method: str = "GET") -> MemoryExchange:
        """A request whose answer need not be finished."""
        exchange = MemoryExchange(method, path, headers=list(headers))
        self.app.handle(exchange)
        await self.until(lambda: exchange.state != "new")
        return exchange

    async def resume(self, path: str, after: int, *headers: tuple[bytes, bytes]) -> MemoryExchange:
        return await self.open(path, (b"last-event-id", b"%d" % after), *headers)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    @property
    def upstream(self) -> MemoryUpstream:
        return self.client.sent[-1]

    @property
    def record(self) -> CallRecord:
        return self.store.list().records[0]


def stream_path(exchange: MemoryExchange) -> str:
    return f"/v1/streams/{(exchange.header_out(b'x-strom-stream-id') or b'').decode()}"
