"""A gateway without sockets and without time: a test plays both the client and the upstream, and turns the clock."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable
from typing import Any

from strom.core.access import KeySettings, PolicySettings
from strom.core.errors import StromError
from strom.core.record import CallRecord
from strom.gateway.gateway import Gateway, State
from strom.gateway.health import Condition
from strom.gateway.plan import Endpoint
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.policies.auth import KeyRing
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryClient, MemoryExchange, MemoryUpstream
from strom.upstreams.settings import EndpointSettings, ModelSettings, Price, ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.upstream import Upstream

SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
    "ollama": "/api/chat",
}
KEY = "up-key-1"


class Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Timer]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> Any:
        timer = Timer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def armed(self) -> int:
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def forget(self) -> None:
        """Let go of cancelled timers, as a loop does in time."""
        self._timers = [entry for entry in self._timers if not entry[2].cancelled]

    def advance(self, seconds: float) -> None:
        """Let time pass; timers go off in order, each at its own instant."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.cancelled:
                timer.callback()
        self.now = end


class Records:
    def __init__(self) -> None:
        self.all: list[CallRecord] = []
        self.begun: dict[str, None] = {}
        """Trace ids of the calls that were told to begin."""

    def begin(self, record: CallRecord) -> None:
        assert record.trace_id not in self.begun, "begun twice"
        assert not self.all or self.all[-1] is not record, "begun after its end"
        self.begun[record.trace_id] = None

    def put(self, record: CallRecord) -> None:
        self.all.append(record)


class Board:
    """A HealthBoard that keeps the books: who is under way, and how each attempt ended."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.asked: list[str] = []
        """Endpoint of each attempt, in their order."""
        self.ends: list[tuple[str, str | None]] = []
        """Endpoint and error code of each attempt, None: it went well."""

    def began(self, endpoint: Endpoint) -> None:
        self.under_way.append(endpoint.id)
        self.asked.append(endpoint.id)

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        self.under_way.remove(endpoint.id)
        self.ends.append((endpoint.id, error.code if error is not None else None))

    def condition(self, endpoint: Endpoint) -> Condition:
        return Condition(in_flight=self.under_way.count(endpoint.id))


class Rig:
    """One model "m" with `endpoints` endpoints (providers p1, p2 …) that speak `behind`; a tuple names one each."""

    def __init__(
        self,
        behind: str | tuple[str, ...] = "openai-chat",
        *,
        endpoints: int = 1,
        quirks: Quirks | None = None,
        settings: CallSettings | None = None,
        keys: tuple[KeySettings, ...] = (),
        **model: Any,
    ) -> None:
        """`model`: more fields of its ModelSettings; but `places` are more fields of each EndpointSettings, and `board` is
        asked for choices, too."""
        places: dict[str, Any] = model.pop("places", {})
        board: Board | None = model.pop("board", None)
        self.clock = FakeClock()
        self.client = MemoryClient()
        self.records = Records()
        protocols = behind if isinstance(behind, tuple) else (behind,) * endpoints
        endpoints = len(protocols)
        self.services = Services(
            self.client, self.records, settings or CallSettings(), self.clock, wall=lambda: 1.7e9 + self.clock.now
        )
        self.board = self.services.health = board or Board()
        providers = [self._provider(f"p{n + 1}", name, quirks or Quirks()) for n, name in enumerate(protocols)]
        more: dict[str, Any] = {"price": Price(1.0, 2.0, "EUR"), **places}
        endpoint_settings = tuple(
            EndpointSettings(f"e{n + 1}", f"p{n + 1}", "upstream-m", **{"order": n + 1, **more})
            for n in range(endpoints)
        )
        router = Router(
            [Upstream(provider) for provider in providers],
            [ModelSettings("m", endpoint_settings, **model)],
            [PolicySettings("eu-only", regions=("eu-*",))],
            health=board,  # type: ignore[arg-type]  # one that is given can be asked
        )
        state = State(router, KeyRing(keys, required=bool(keys)))
        self.gateway = Gateway(self.services, CODECS, state)

    def _provider(self, name: str, protocol: str, quirks: Quirks) -> ProviderSettings:
        timeouts = Timeouts(connect_s=5, first_token_s=120, idle_s=60)
        return ProviderSettings(
            name,
            "generic",
            protocol,  # type: ignore[arg-type]
            "http://127.0.0.1:9/v1",
            api_key=Secret(KEY),
            region="us-east",
            timeouts=timeouts,
            quirks=quirks,
        )

    def call(
        self, front: str = "openai-chat", *, stream: bool = True, headers: Any = (), **body: Any
    ) -> MemoryExchange:
        """Send a request; it is at the upstream when this returns (`upstream()`)."""
        return self.call_raw(front, body_of(front, stream=stream, **body), headers=headers)

    def call_raw(self, front: str, body: bytes, headers: Any = ()) -> MemoryExchange:
        exchange = MemoryExchange("POST", PATHS[front], headers=headers, body=body)
        self.gateway.handle_call(exchange, CODECS[front])
        return exchange

    def upstream(self, number: int = -1) -> MemoryUpstream:
        return self.client.sent[number]

    @property
    def record(self) -> CallRecord:
        """The one record of the one call."""
        assert len(self.records.all) == 1, f"{len(self.records.all)} records"
        return self.records.all[0]


def body_of(front: str, *, stream: bool, **fields: Any) -> bytes:
    """A short request to the model "m", with more or other fields."""
    turn = "input" if front == "openai-responses" else "messages"
    full = {"model": "m", turn: [{"role": "user", "content": "hi"}], "stream": stream, **fields}
    if front == "anthropic":
        full.setdefault("max_tokens", 64)
    return json.dumps(full).encode()


def chat_frame(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "real-m",
        "choices": [choice],
        **more,
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


ROLE = chat_frame({"role": "assistant", "content": ""})
FINISH = chat_frame({}, "stop")
USAGE = (
    b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"real-m","choices":[],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def text(piece: str) -> bytes:
    return chat_frame({"content": piece})


def data_objects(body: bytes) -> list[Any]:
    """The JSON objects of an event stream, without [DONE]."""
    lines = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]
