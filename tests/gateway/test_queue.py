"""Queues in front of endpoints: order, bounds, deadlines, heartbeats with the place, leaving."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import Overloaded, StromError
from strom.gateway.plan import Endpoint
from strom.gateway.queue import Place, Queues, take_place
from strom.gateway.services import CallSettings
from strom.transport.types import TransportFailure
from strom.upstreams.settings import Price
from tests.gateway.places import Field, model, place
from tests.gateway.rig import PATHS, FakeClock, data_objects
from tests.gateway.test_call_ends import calls_alive
from tests.gateway.test_call_fallback import check

FRONTS = sorted(PATHS)
ONE = {"max_concurrent": 1, "queue": 2, "queue_timeout_s": 40.0}
BEAT = CallSettings(heartbeat_s=10)


def busy(**more: object) -> Field:
    """One call is under way at "a", which serves one."""
    field = Field([model("a", a={**ONE, **more})], settings=BEAT)
    field.call()
    return field


def test_calls_beyond_the_limit_wait_in_their_order() -> None:
    field = busy()
    second, third = field.call(), field.call()
    assert len(field.client.sent) == 1
    field.answer(0)
    assert len(field.client.sent) == 2
    field.answer(1)
    assert b"hello" in second.body_out
    assert third.state == "new"
    field.answer(2)
    assert b"hello" in third.body_out
    assert [record.status for record in field.records.all] == ["completed"] * 3
    assert field.services.queues.waiting(field.router.endpoints()[0][1]) == 0


@pytest.mark.parametrize("front", FRONTS)
def test_the_client_is_told_its_place_and_the_answer_is_whole(front: str) -> None:
    field = busy()
    field.call()
    waiting = field.call(front)
    field.clock.advance(11)
    told = waiting.body_out
    match front:
        case "openai-chat" | "anthropic":
            assert told == b": queued, place 2\n\n"
        case "openai-responses":
            last = json.loads(told.strip().split(b"\n")[-1].removeprefix(b"data: "))
            assert (last["type"], last["place"]) == ("keepalive", 2)
        case _:
            assert json.loads(told)["done"] is False
    field.answer(0)
    field.clock.advance(10)
    if front in ("openai-chat", "anthropic"):
        assert waiting.body_out.endswith(b": queued, place 1\n\n")
    field.answer(1)
    field.answer(2)
    check(front, waiting.body_out)
    assert b"hello" in waiting.body_out
    assert waiting.state == "finished"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_full_queue_is_told_at_once_in_the_protocol_with_a_time(front: str, stream: bool) -> None:
    field = busy()
    field.call()
    field.call()
    refused = field.call(front, stream=stream)
    assert refused.status == (529 if front == "anthropic" else 503)
    assert int(refused.header_out(b"retry-after") or b"0") >= 1
    record = field.records.all[-1]
    assert (record.status, record.error.code if record.error else "") == ("rejected", "queue_full")
    assert [(each.endpoint_id, each.outcome, each.reason) for each in record.attempts] == [
        ("e-a", "refused", "queue_full")
    ]
    assert len(field.records.begun) == 1


def test_who_waited_too_long_is_told_so() -> None:
    field = busy()
    late = field.call(stream=False)
    field.clock.advance(41)
    assert late.status == 503
    assert field.records.all[-1].error is not None
    assert field.records.all[-1].error.code == "queue_timeout"
    field.answer(0)
    assert len(field.client.sent) == 1


@pytest.mark.parametrize("front", FRONTS)
def test_who_waited_too_long_used_nothing_whatever_the_protocol_demands(front: str) -> None:
    field = Field([model("a", a={**ONE, "price": Price(1.0, 2.0, "EUR")})], settings=BEAT)
    field.call()
    late = field.call(front)
    field.clock.advance(41)
    record = field.records.all[-1]
    assert (late.status, record.status, record.usage_source) == (200, "rejected", "none")
    assert (record.usage.input_tokens, record.usage.output_tokens, record.cost_estimate) == (None, None, None)
    if front == "openai-responses":
        told = data_objects(late.body_out)[-1]["response"]
        assert (told["usage"]["input_tokens"], told["usage"]["output_tokens"]) == (0, 0)
        assert (told["strom"]["usage_source"], told["strom"]["cost_estimate"]) == ("none", None)


def test_who_waited_too_long_after_heartbeats_is_told_in_the_stream() -> None:
    field = busy()
    late = field.call("anthropic")
    field.clock.advance(41)
    assert late.status == 200
    assert b"event: error" in late.body_out
    assert b"overloaded_error" in late.body_out
    assert b"message_stop" not in late.body_out


def test_full_or_late_goes_to_the_next_endpoint() -> None:
    field = Field([model("a", "b", a={**ONE, "queue": 1, "queue_timeout_s": 5.0})])
    field.call()
    field.call()
    field.call()
    assert field.asked == ["a", "b"], "the third found the queue full"
    field.clock.advance(6)
    assert field.asked == ["a", "b", "b"]
    field.answer()
    assert [each.reason for each in field.records.all[-1].attempts] == ["queue_timeout", None]


def test_a_client_that_leaves_makes_room_at_once() -> None:
    field = busy()
    second, third = field.call(), field.call()
    second.disconnect()
    field.clock.advance(11)
    assert third.body_out == b": queued, place 1\n\n"
    field.answer(0)
    assert len(field.client.sent) == 2
    assert [record.status for record in field.records.all] == ["cancelled", "completed"]
    third.disconnect()
    field.call()
    assert len(field.client.sent) == 3, "its place is free again"


def test_waiting_is_not_the_backends_time() -> None:
    field = busy(queue_timeout_s=1000.0)
    field.call()
    field.clock.advance(100)
    field.answer(0)
    field.clock.advance(100)
    field.answer(1)
    record = field.records.all[-1]
    assert record.status == "completed"
    assert record.timing.request_duration_ms == 100_000
    assert record.attempts[-1].ms == 100_000


def test_a_failed_attempt_gives_its_place_back() -> None:
    field = busy()
    waiting = field.call()
    field.refuse(500, number=0)
    assert len(field.client.sent) == 2
    field.answer(1)
    assert b"hello" in waiting.body_out


def test_a_stopped_process_tells_those_who_wait() -> None:
    field = busy()
    waiting = field.call(stream=False)
    for call in list(field.services.running):
        call.stop()
    assert waiting.status == 503
    assert not field.services.running


def end_somehow(end: str) -> None:
    field = busy(queue=1)
    waiting = field.call()
    match end:
        case "answered":
            field.answer(0)
            field.answer(1)
        case "left":
            waiting.disconnect()
        case "late":
            field.clock.advance(41)
        case "full":
            field.call()
        case _:
            for call in list(field.services.running):
                call.stop()
    for sent in field.client.sent:
        sent.fail(TransportFailure("cut", "", sent=True))
    if end == "full":
        waiting.disconnect()
    field.clock.forget()
    for sent in field.client.sent:
        del sent.receiver  # the transport's tie to the attempt, which a real connection cuts itself


@pytest.mark.parametrize("end", ["answered", "left", "late", "full", "stopped"])
def test_no_call_that_waited_stays_in_memory(end: str) -> None:
    gc.collect()
    gc.disable()
    try:
        before = calls_alive()
        end_somehow(end)
        assert calls_alive() == before
    finally:
        gc.enable()


@given(st.lists(st.sampled_from(["enter", "leave first", "leave last", "wait"]), max_size=60), st.integers(1, 3))
def test_never_more_places_than_the_limit_and_none_is_lost(steps: list[str], limit: int) -> None:
    clock = FakeClock()
    queues = Queues(clock)
    endpoint = place("a", max_concurrent=limit, queue=3, queue_timeout_s=10)
    held: list[Place] = []
    told: dict[int, list[StromError | None]] = {}
    for step in steps:
        if step == "enter":
            number = len(told)
            told[number] = []
            try:
                held.append(queues.enter(endpoint, told[number].append))
            except Overloaded:
                assert sum(each.granted for each in held) == limit
        elif step == "wait":
            clock.advance(4)
        elif held:
            held.pop(0 if step == "leave first" else -1).leave()
        granted = [each for each in held if each.granted]
        waiting = [each for each in held if each.number]
        assert len(granted) <= limit
        assert not waiting or len(granted) == limit
        assert [each.number for each in waiting] == list(range(1, len(waiting) + 1))
        assert all(len(each) <= 1 for each in told.values())
    for each in held:
        each.leave()
        each.leave()
    assert queues.enter(endpoint, lambda _: None).granted


async def test_a_coroutine_waits_and_leaves() -> None:
    queues = Queues(FakeClock())
    endpoint = place("a", max_concurrent=1, queue=2)
    assert await take_place(queues, place("b")) is None
    first = await take_place(queues, endpoint)
    left, stayed = (asyncio.create_task(take_place(queues, endpoint)) for _ in range(2))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await take_place(queues, endpoint)
    left.cancel()
    await asyncio.sleep(0)
    assert queues.waiting(endpoint) == 1
    assert first is not None
    first.leave()
    second = await stayed
    assert second is not None
    assert second.granted


async def test_a_coroutine_is_told_that_it_is_late() -> None:
    clock = FakeClock()
    queues = Queues(clock)
    endpoint: Endpoint = place("a", max_concurrent=1, queue=1, queue_timeout_s=3)
    await take_place(queues, endpoint)
    late = asyncio.create_task(take_place(queues, endpoint))
    await asyncio.sleep(0)
    clock.advance(4)
    with pytest.raises(Overloaded, match="within 3 s"):
        await late
