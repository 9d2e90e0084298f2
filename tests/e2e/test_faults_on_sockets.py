"""The gateway's calls over real sockets to a replayed backend that misbehaves: what clients and records are told."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from strom.core.record import CallRecord
from strom.gateway.gateway import Gateway, State
from strom.gateway.routing import Router
from strom.gateway.services import CallSettings, Services
from strom.policies.auth import KeyRing
from strom.protocols.codec import Quirks
from strom.protocols.table import CODECS
from strom.replay import ReplayOptions, ReplayServer, load
from strom.transport.client import NativeClient
from strom.transport.memory import MemoryExchange
from strom.transport.timers import LoopClock
from strom.upstreams.settings import EndpointSettings, ModelSettings, ProviderSettings
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.upstream import Upstream
from tests.e2e.cuts import FRONTS, REQUESTS, signals_of
from tests.gateway.rig import PATHS, Records
from tests.patience import until
from tests.recordings import recordings_root

MAX_FRAME_BYTES = 65_536


class Outcome:
    def __init__(self, front: str, exchange: MemoryExchange, record: CallRecord) -> None:
        self.exchange = exchange
        self.record = record
        self.signals = tuple(signals_of(front, exchange, streamed=True))


async def call(front: str, faults: str, case: str = "vllm/echo_tools_stream") -> Outcome:
    """One streamed call of `front` to a Chat backend that replays the recording with these faults; no connection is left."""
    recordings = load(recordings_root() / case)
    async with ReplayServer(recordings, ReplayOptions(speed=None, faults=faults)) as backend:
        client, records = NativeClient(environ={}), Records()
        services = Services(client, records, CallSettings(), LoopClock(asyncio.get_running_loop()))
        gateway = Gateway(services, CODECS, State(_router(backend.url), KeyRing((), required=False)))
        body = json.dumps({**REQUESTS[front], "stream": True}).encode()
        exchange = MemoryExchange("POST", PATHS[front], body=body)
        gateway.handle_call(exchange, CODECS[front])
        await until(lambda: records.all)
        services.lingering.close()
        client.close()
        await until(lambda: not backend.open_connections)
        return Outcome(front, exchange, records.all[0])


def _router(url: str) -> Router:
    assert urlsplit(url).hostname == "127.0.0.1"
    quirks = Quirks(max_frame_bytes=MAX_FRAME_BYTES)
    timeouts = Timeouts(first_token_s=5, idle_s=0.5)
    upstream = Upstream(ProviderSettings("p1", "generic", "openai-chat", url, timeouts=timeouts, quirks=quirks))
    return Router([upstream], [ModelSettings("m", (EndpointSettings("e1", "p1", "m"),))], [])


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("faults", ["", "trickle", "gzip", "double-terminator", "stall@3t=0.05", "gzip; trickle"])
async def test_what_a_reader_must_bear_changes_nothing(front: str, faults: str) -> None:
    outcome = await call(front, faults)
    assert outcome.signals == (1, 0)
    assert (outcome.record.status, outcome.record.complete, outcome.record.finish_reason) == (
        "completed",
        True,
        "tool_calls",
    )


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("faults", "status", "code"),
    [
        ("cut@5t", "incomplete", "incomplete_stream"),
        ("cut@5t=reset", "incomplete", "incomplete_stream"),
        ("cut@5t=half", "incomplete", "incomplete_stream"),
        ("cut@3061", "completed", None),
        ("no-terminator", "incomplete", "incomplete_stream"),
        ("garbage@1573=40", "failed", "invalid_stream_event"),
        (f"giant@1t={8 * MAX_FRAME_BYTES}", "failed", "invalid_stream_event"),
        ("stall@3t", "failed", "idle_timeout"),
    ],
)
async def test_what_breaks_an_answer_is_told_once(front: str, faults: str, status: str, code: str | None) -> None:
    outcome = await call(front, faults)
    error = outcome.record.error.code if outcome.record.error is not None else None
    assert (outcome.record.status, error) == (status, code)
    assert outcome.signals == ((1, 0) if code is None else (0, 1))


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("faults", "statuses", "retry_after"),
    [
        ("status=429; retry-after=3", {429}, b"3"),
        ("status=429", {429}, None),
        ("status=529", {503, 529}, None),
        ("status=500", {502}, None),
        ("html=502", {502}, None),
        ("cut@0", {502}, None),
    ],
)
async def test_a_refusal_before_the_first_token_is_a_real_status(
    front: str, faults: str, statuses: set[int], retry_after: bytes | None
) -> None:
    outcome = await call(front, faults)
    assert outcome.exchange.status in statuses
    assert outcome.signals == (0, 1)
    assert b"<html" not in outcome.exchange.body_out
    if retry_after is not None:
        assert outcome.exchange.header_out(b"retry-after") == retry_after
    assert outcome.record.http_status == outcome.exchange.status
