"""Heartbeats and timeouts: what is sent in silence, and when silence becomes an error."""

from typing import Any

import pytest

from strom.gateway.services import CallSettings
from strom.transport.memory import MemoryExchange
from strom.upstreams.timeouts import SomeTimeouts
from tests.gateway.rig import DONE, FINISH, ROLE, SSE, Rig, data_objects, text

BEAT = CallSettings(heartbeat_s=10)


def test_a_silent_prefill_gets_the_head_and_comments() -> None:
    rig = Rig(settings=BEAT)
    exchange = rig.call()
    rig.clock.advance(9.9)
    assert exchange.state == "new"
    rig.clock.advance(20.2)
    assert exchange.status == 200
    assert exchange.writes == [b": keep-alive\n\n"] * 3
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("hi"))
    assert exchange.body_out.endswith(ROLE + text("hi"))


def test_towards_anthropic_the_message_starts_before_the_ping() -> None:
    rig = Rig(settings=BEAT)
    exchange = rig.call("anthropic")
    rig.clock.advance(10.1)
    assert exchange.body_out.index(b"message_start") < exchange.body_out.index(b"event: ping")
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("hi"))
    rig.upstream().end(FINISH, DONE)
    assert exchange.body_out.count(b"event: message_start") == 1
    assert exchange.body_out.count(b"event: message_stop") == 1


def test_what_is_held_back_goes_out_with_the_heartbeat() -> None:
    rig = Rig(settings=BEAT)
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    rig.clock.advance(10.1)
    assert exchange.body_out == ROLE + b": keep-alive\n\n"


def test_a_heartbeat_is_due_only_in_silence() -> None:
    rig = Rig(settings=BEAT)
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    for _ in range(10):
        rig.upstream().read(text("x"))
        rig.clock.advance(9)
    assert b"keep-alive" not in exchange.body_out


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
def test_no_first_token_in_time(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    for _ in range(12):
        rig.upstream().read(b": still working\n\n")
        rig.clock.advance(10)
    rig.clock.advance(0.1)
    assert rig.upstream().aborted
    assert exchange.state == "finished"
    assert "120 s" in data_objects(exchange.body_out)[-1]["error"]["message"]
    assert rig.record.attempts[0].outcome == "timeout"


def test_no_first_token_and_no_heartbeat_yet_is_a_504() -> None:
    rig = Rig(settings=CallSettings(heartbeat_s=1000))
    exchange = rig.call()
    rig.clock.advance(120.1)
    assert exchange.status == 504


def test_comments_of_the_upstream_do_not_reset_the_idle_clock() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    for _ in range(7):
        rig.upstream().read(b": keep-alive\n\n")
        rig.clock.advance(9)
    assert exchange.state == "finished"
    assert rig.record.error is not None
    assert "silent for 60 s" in rig.record.error.message


def test_frames_reset_the_idle_clock() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    for _ in range(10):
        rig.upstream().read(text("a"))
        rig.clock.advance(59)
    assert exchange.state == "started"


def test_a_whole_reply_has_longer() -> None:
    rig = Rig()
    exchange = rig.call(stream=False)
    rig.clock.advance(599)
    assert exchange.state == "new"
    rig.clock.advance(2)
    assert exchange.status == 504
    assert rig.upstream().aborted


def streaming(rig: Rig, front: str = "openai-chat", **more: Any) -> MemoryExchange:
    exchange = rig.call(front, **more)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("x"))
    return exchange


def ended(rig: Rig) -> str:
    assert rig.upstream().aborted
    assert rig.record.status == "failed"
    assert rig.record.fault == "upstream"
    assert rig.record.attempts[-1].outcome == "timeout"
    assert rig.record.error is not None
    return rig.record.error.code


@pytest.mark.parametrize("front", ["openai-chat", "anthropic", "ollama", "openai-responses"])
def test_the_total_clock_ends_an_answer_that_flows(front: str) -> None:
    rig = Rig(timeouts=SomeTimeouts(total_s=30))
    exchange = streaming(rig, front)
    for _ in range(29):
        rig.clock.advance(1)
        rig.upstream().read(text("more"))
    assert exchange.state == "started"
    rig.clock.advance(1.1)
    assert exchange.state == "finished"
    assert ended(rig) == "total_timeout"
    assert b"30 s" in exchange.body_out


def test_the_total_clock_leaves_no_time_for_another_attempt() -> None:
    rig = Rig(endpoints=2, timeouts=SomeTimeouts(total_s=10))
    exchange = rig.call()
    rig.clock.advance(10.1)
    assert len(rig.client.sent) == 1
    assert exchange.status == 504


def test_the_total_clock_runs_on_over_attempts() -> None:
    rig = Rig(endpoints=2, timeouts=SomeTimeouts(first_token_s=6, total_s=10))
    rig.call()
    rig.clock.advance(6.1)
    assert len(rig.client.sent) == 2
    rig.clock.advance(4)
    assert ended(rig) == "total_timeout"


def test_too_few_characters_in_a_window() -> None:
    rig = Rig(timeouts=SomeTimeouts(min_chars_per_s=2, throughput_window_s=10))
    exchange = streaming(rig)
    for _ in range(10):
        rig.clock.advance(1)
        rig.upstream().read(text("fast enough"))
    for _ in range(8):
        rig.clock.advance(1)
        rig.upstream().read(text("."))
    assert exchange.state == "started", "the window is judged when it is over"
    rig.clock.advance(3)
    assert ended(rig) == "throughput_timeout"


def test_a_slow_client_is_no_slow_upstream() -> None:
    rig = Rig(timeouts=SomeTimeouts(min_chars_per_s=2, throughput_window_s=10))
    exchange = streaming(rig)
    exchange.pause()
    rig.clock.advance(100)
    exchange.resume()
    rig.clock.advance(9)
    assert exchange.state == "started"
    rig.clock.advance(2)
    assert ended(rig) == "throughput_timeout"


def test_the_total_clock_runs_on_while_the_client_is_slow() -> None:
    rig = Rig(timeouts=SomeTimeouts(idle_s=2, total_s=10))
    exchange = streaming(rig)
    exchange.pause()
    rig.clock.advance(9)
    assert exchange.state == "started"
    rig.clock.advance(2.1)
    assert rig.upstream().aborted
    assert ended(rig) == "total_timeout"


def test_heartbeats_reset_no_clock() -> None:
    rig = Rig(settings=BEAT, timeouts=SomeTimeouts(idle_s=25, total_s=1000))
    streaming(rig)
    for _ in range(5):
        rig.clock.advance(5.1)
        rig.upstream().read(b": still here\n\n")
    assert ended(rig) == "idle_timeout"


def test_a_caller_is_less_patient_for_one_call() -> None:
    rig = Rig()
    streaming(rig, headers=[(b"x-strom-timeouts", b"idle_s=3, first_token_s=1000")])
    rig.clock.advance(3.1)
    assert ended(rig) == "idle_timeout"


def test_wishes_may_come_in_several_lines_and_none_twice() -> None:
    rig = Rig()
    streaming(rig, headers=[(b"x-strom-timeouts", b"idle_s=3"), (b"x-strom-timeouts", b"total_s=100")])
    rig.clock.advance(3.1)
    assert ended(rig) == "idle_timeout"
    twice = [(b"x-strom-timeouts", b"idle_s=3"), (b"x-strom-timeouts", b"idle_s=100")]
    assert rig.call(headers=twice).status == 400


def test_a_wish_that_is_none_is_told() -> None:
    rig = Rig()
    exchange = rig.call("anthropic", headers=[(b"x-strom-timeouts", b"idle=3")])
    assert exchange.status == 400
    assert b"first_token_s" in exchange.body_out
    assert not rig.client.sent
