"""A call that is over is freed at once: nothing of it waits for a collection, which a process of many streams rarely makes.

Whatever way it ended, in success, by an upstream's fault, refused or left. Each call is made a second time with the collector
off; what it then finds was kept by circles alone.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strom.core.access import Limits
from strom.transport.memory import MemoryExchange
from strom.transport.types import TransportFailure
from tests.e2e.cuts import BEHIND
from tests.gateway.rig import JSON, PATHS, SSE, Rig
from tests.gateway.test_limits import AUTH, answer, rig_with
from tests.recordings import Recording, load, recordings_root

FRONTS = tuple(PATHS)
RECORDED = [("vllm", "plain"), ("vllm", "anthropic_max_tokens"), ("xllamacpp_tools", "echo_responses_tools")]
WHOLE = [("vllm", "nonstream"), ("vllm", "err_bad_type"), ("vllm", "err_bad_schema")]
LINGER_S = 10
BROKEN = {
    "openai-chat": b'data: {"error": {"message": "it fell over"}}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "it fell over"}}\n\n',
    "openai-responses": b'event: error\ndata: {"type": "error", "message": "it fell over"}\n\n',
}


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def circles() -> Counter[str]:
    """What of Strom only a collection frees, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(
            kind.__qualname__
            for kind in map(type, gc.garbage)
            if kind.__module__.startswith("strom.") or kind.__name__ == "frame"
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.collect()


def left_by(rig: Rig, call: Callable[[], None]) -> Counter[str]:
    def over() -> None:
        call()
        rig.clock.advance(LINGER_S)
        rig.clock.forget()
        rig.client.sent.clear()
        rig.records.all.clear()

    over()  # what is made at the first time stays
    with collector_off():
        over()
        return circles()


def answered(rig: Rig, front: str, recording: Recording, how: str) -> None:
    streamed, body = bool(recording.index["streamed"]), recording.response
    exchange = rig.call(front, stream=streamed)
    upstream = rig.upstream()
    upstream.response(recording.index["status"], SSE if streamed else JSON)
    if how != "whole":
        body = body[: len(body) // 2]
    for at in range(0, len(body), 500):
        upstream.read(body[at : at + 500])
    if how == "left":
        exchange.disconnect()
    elif how == "reset":
        upstream.fail(TransportFailure("cut", "gone", sent=True))
    else:
        if how == "garbage":
            upstream.read(b'\n\ndata: {"\n\n')
        elif how == "error":
            upstream.read(b"\n\n" + BROKEN[BEHIND[recording.index["protocol"]]])
        upstream.end()


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("how", ["whole", "short", "reset", "left", "garbage", "error"])
def test_an_answer_leaves_nothing_behind(front: str, how: str) -> None:
    recordings_root()
    for name in RECORDED + (WHOLE if how in ("whole", "short", "reset") else []):
        recording = load(*name)
        rig = Rig(BEHIND[recording.index["protocol"]])
        assert left_by(rig, lambda: answered(rig, front, recording, how)) == {}, name  # noqa: B023 - called here


@pytest.mark.parametrize("front", FRONTS)
def test_a_retried_and_a_continued_answer_leave_nothing_behind(front: str) -> None:
    recording = load("vllm", "plain")
    rig = Rig(endpoints=2, continuation=True)

    def call() -> None:
        rig.call(front)
        refused = rig.upstream()
        refused.response(503, JSON)
        refused.end(b'{"error": {"message": "busy"}}')
        second = rig.upstream()
        second.response(200, SSE)
        second.read(recording.response[: len(recording.response) // 2])
        second.fail(TransportFailure("cut", "gone", sent=True))

    assert left_by(rig, call) == {}


@pytest.mark.parametrize("front", FRONTS)
def test_a_refused_request_leaves_nothing_behind(front: str) -> None:
    rig = rig_with(Limits(tokens_per_minute=5))
    assert left_by(rig, lambda: _refused(rig.call(front), 401)) == {}
    turn = "input" if front == "openai-responses" else "messages"
    long: dict[str, Any] = {turn: [{"role": "user", "content": "word " * 100}]}
    assert left_by(rig, lambda: _refused(rig.call(front, headers=AUTH, **long), 429)) == {}
    for body in (b"{", b'{"model": 1}', b'{"model": "other"}', b"", b"[" * 100_000):
        assert left_by(rig, lambda: _refused(rig.call_raw(front, body, AUTH), 400, 404)) == {}, body[:20]  # noqa: B023


def _refused(exchange: MemoryExchange, *statuses: int) -> None:
    assert exchange.status in statuses


def test_a_limited_answer_leaves_nothing_behind() -> None:
    rig = rig_with(Limits(tokens_per_minute=10_000_000))

    def call() -> None:
        rig.call(headers=AUTH)
        answer(rig)

    assert left_by(rig, call) == {}


def test_circles_are_found() -> None:
    with collector_off():
        rig = Rig()
        rig.clock.callback = rig  # type: ignore[attr-defined]
        del rig
        assert circles()["Services"] == 1
