"""Ends nobody wishes for: our own defects, upstreams that stall while they refuse, a shutdown in the middle."""

import gc
import json
import logging

import pytest

from strom.core.access import Limits
from strom.core.errors import StromError
from strom.core.evidence import Evidence
from strom.gateway import call as call_module
from strom.gateway.attempt import MAX_READ_BYTES
from strom.gateway.call import Call
from strom.gateway.clocks import REFUSAL_BODY_S
from strom.gateway.services import CallSettings
from strom.protocols.codec import Quirks
from tests.gateway.rig import DONE, FINISH, JSON, PATHS, ROLE, SSE, USAGE, Rig, data_objects, text
from tests.gateway.test_limits import AUTH, rig_with

FRONTS = sorted(PATHS)
CALM = CallSettings(heartbeat_s=1000)


class Defective:
    """A pipe or codec every word of which is a defect."""

    name = "openai-chat"

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


class DefectivePipe(Defective):
    """Its evidence is whole, everything else is broken."""

    def __init__(self) -> None:
        self.evidence = Evidence()

    def feed(self, data: bytes) -> bytes:
        raise ZeroDivisionError


def settled(rig: Rig) -> None:
    assert rig.record.fault == "gateway"
    assert rig.clock.armed == 0
    assert not rig.services.running
    assert all(upstream.over for upstream in rig.client.sent)


@pytest.mark.parametrize("stream", [True, False])
def test_a_defect_on_the_way_to_the_first_endpoint(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.gateway.codecs = {"openai-chat": Defective()}  # type: ignore[dict-item]
    exchange = rig.call("anthropic", stream=stream)
    assert exchange.status == 500
    settled(rig)
    assert "ZeroDivisionError" in caplog.text


def test_a_defect_on_the_way_to_the_second_endpoint_when_a_timer_struck() -> None:
    """Nobody above a timer catches anything: the call must not hang."""
    rig = Rig(endpoints=2, settings=CALM)
    codecs = rig.gateway.codecs = dict(rig.gateway.codecs)
    exchange = rig.call("anthropic")
    codecs["openai-chat"] = Defective()  # type: ignore[assignment]
    rig.clock.advance(121)
    assert exchange.status == 500
    settled(rig)


def test_a_defect_that_cannot_even_be_told_cuts_the_client_off() -> None:
    """A clean end would say that the answer is complete."""
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hel"))
    rig.upstream().receiver.use(DefectivePipe())  # type: ignore[attr-defined]
    rig.upstream().read(text("lo"))
    assert exchange.state == "aborted"
    settled(rig)


@pytest.mark.parametrize("how", ["left", "whole", "cut"])
def test_a_record_that_cannot_be_filled_keeps_nothing_from_being_given_back(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_with(Limits(concurrent=1))

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    for _ in range(2):  # the second call gets the place of the first one
        exchange = rig.call(headers=AUTH)
        rig.upstream().response(200, SSE)
        rig.upstream().read(ROLE, text("Hel"))
        with monkeypatch.context() as patched:
            patched.setattr(call_module, "bring_up_to_date", broken)
            if how == "left":
                exchange.disconnect()
            else:
                rig.upstream().read(*([FINISH, USAGE, DONE] if how == "whole" else []))
                rig.upstream().end()
            rig.clock.advance(10)
        assert (exchange.status, DONE in exchange.body_out) == (200, False)
        assert "no complete record" in caplog.text
        assert [record.status for record in rig.records.all] == ["failed"]
        assert not rig.services.running
        rig.records.all.clear()


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_body_that_stalls_does_not_hold_the_client(stream: bool) -> None:
    rig = Rig()
    exchange = rig.call(stream=stream)
    rig.upstream().response(429, [*JSON, (b"retry-after", b"7")])
    rig.upstream().read(b'{"error":{"mess')
    rig.clock.advance(REFUSAL_BODY_S + 0.1)
    assert exchange.status == 429
    assert exchange.header_out(b"retry-after") == b"7"
    assert rig.upstream().aborted


def test_an_upstream_that_streams_a_whole_reply_is_watched_like_any_stream() -> None:
    rig = Rig(quirks=Quirks(always_stream=True))
    exchange = rig.call(stream=False)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hel"))
    for _ in range(3):
        rig.clock.advance(59)
        rig.upstream().read(text("lo"))
    assert exchange.state == "new"
    rig.clock.advance(61)
    assert exchange.status == 504
    assert b"silent for 60 s" in exchange.body_out
    assert b"Hel" not in exchange.body_out


def test_a_stream_nobody_asked_for_is_watched_too() -> None:
    rig = Rig()
    exchange = rig.call(stream=False)
    rig.upstream().response(200, SSE)
    rig.clock.advance(120.1)
    assert exchange.status == 504
    assert b"no token within 120 s" in exchange.body_out


def test_a_backend_that_never_streams_has_the_time_of_a_whole_reply() -> None:
    rig = Rig(quirks=Quirks(never_stream=True))
    exchange = rig.call()
    rig.clock.advance(300)
    assert exchange.state == "started", "heartbeats, and patience"
    rig.clock.advance(301)
    assert "no reply within 600 s" in data_objects(exchange.body_out)[-1]["error"]["message"]


@pytest.mark.parametrize("front", FRONTS)
def test_a_shutdown_is_told_in_band_and_nobody_else_is_blamed(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hel"))
    for call in list(rig.services.running):
        call.stop()
    assert exchange.state == "finished"
    assert b"shut down" in exchange.body_out
    assert (rig.record.status, rig.record.error.code) == ("failed", "shutting_down")  # type: ignore[union-attr]
    settled(rig)


@pytest.mark.parametrize("stream", [True, False])
def test_a_shutdown_before_the_answer_is_a_status(stream: bool) -> None:
    rig = Rig()
    exchange = rig.call(stream=stream)
    for call in list(rig.services.running):
        call.stop()
        call.stop()
    assert exchange.status == 503
    settled(rig)


def test_a_read_that_unfolds_to_megabytes_is_passed_on_in_pieces() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    piece = text("x" * 60_000)
    rig.upstream().read(ROLE, *[piece] * 50)
    assert len(exchange.writes) > 1
    assert max(map(len, exchange.writes)) < MAX_READ_BYTES + 2 * len(piece)
    assert exchange.body_out == ROLE + piece * 50
    rig.upstream().end(FINISH, DONE)
    assert rig.record.deltas == 50


def test_a_slow_client_does_not_cost_the_upstream_its_connection() -> None:
    """The read that filled the client's buffer held the terminator as well: the body may still end by itself."""
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    exchange.pause()
    rig.upstream().read(FINISH, DONE)
    assert exchange.state == "finished"
    assert not rig.upstream().paused


def test_block_and_record_tell_the_same_times() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    times = iter(range(2000, 3000))
    rig.clock.time = lambda: float(next(times))  # type: ignore[method-assign]
    rig.services.clock.time = rig.clock.time  # type: ignore[misc]
    rig.upstream().read(FINISH, DONE)
    block = data_objects(exchange.body_out)[-1]["strom"]
    assert block["timing"]["request_duration_ms"] == rig.record.timing.request_duration_ms
    assert block["attempts"][0]["ms"] == rig.record.attempts[0].ms


def test_ollama_s_empty_lines_do_not_reset_the_idle_clock() -> None:
    rig = Rig("ollama")
    exchange = rig.call("ollama")
    line = b'{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"%s"},"done":false}\n'
    rig.upstream().response(200, [(b"content-type", b"application/x-ndjson")])
    rig.upstream().read(line % b"a")
    for _ in range(7):
        rig.upstream().read(line % b"")
        rig.clock.advance(9)
    assert exchange.state == "finished"
    assert b"silent for 60 s" in exchange.body_out


def test_the_message_of_a_defect_is_not_the_client_s(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    exchange = rig.call()
    attempt = rig.upstream().receiver

    def fail() -> None:
        raise StromError("SECRET", detail="SECRET")

    attempt.guarded(fail)  # type: ignore[attr-defined]
    assert exchange.status == 500
    assert b"SECRET" not in exchange.body_out
    assert any(record.levelno == logging.ERROR for record in caplog.records)


REPLY = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"r","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'
)
NUMBERS = {
    "openai-chat": ("prompt_tokens", "completion_tokens"),
    "anthropic": ("input_tokens", "output_tokens"),
    "openai-responses": ("input_tokens", "output_tokens"),
    "ollama": ("prompt_eval_count", "eval_count"),
}


@pytest.mark.parametrize("front", FRONTS)
def test_usage_nobody_reported_is_called_an_estimate_wherever_it_stands(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front, stream=False)
    rig.upstream().response(200, JSON)
    rig.upstream().end(REPLY)
    body = json.loads(exchange.body_out)
    shown = tuple((body.get("usage") or body).get(name) for name in NUMBERS[front])
    usage = rig.record.usage
    assert shown == (usage.input_tokens, usage.output_tokens)
    assert (
        body["strom"]["usage_source"] == rig.record.usage_source == ("none" if shown == (None, None) else "estimated")
    )
    assert (rig.record.cost_estimate is None) == (shown == (None, None))


def test_a_client_that_never_reads_again_is_gone() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    exchange.pause()
    rig.clock.advance(CallSettings().slow_reader_s - 10)
    assert exchange.state == "started"
    rig.clock.advance(20)
    assert exchange.state == "aborted"
    assert rig.record.status == "cancelled"
    assert rig.record.error is not None
    assert rig.record.error.code == "slow_reader"
    assert rig.record.fault == "client"
    assert rig.upstream().aborted
    assert rig.clock.armed == 0


@pytest.mark.parametrize(("unread_s", "code"), [(10, "cancelled"), (300.5, "slow_reader")])
def test_a_client_that_leaves_after_it_did_not_read(unread_s: float, code: str) -> None:
    """The transport may drop it before the call looks."""
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    exchange.pause()
    rig.clock.advance(unread_s)
    exchange.disconnect()
    assert rig.record.error is not None
    assert rig.record.error.code == code


def test_a_reload_does_not_change_a_running_call() -> None:
    rig = Rig(settings=CallSettings(block_name=None))
    exchange = rig.call()
    rig.services.settings = CallSettings(block_name="strom")
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text("a"), FINISH, DONE)
    assert b"trace_id" not in exchange.body_out


def calls_alive() -> int:
    return sum(type(found) is Call for found in gc.get_objects())


def play_and_forget(end: str) -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call("anthropic", stream=end != "whole")
    if end == "left":
        exchange.disconnect()
    elif end == "refused":
        for _ in range(2):
            rig.upstream().response(503, JSON)
            rig.upstream().end(b"{}")
    elif end == "whole":
        rig.upstream().response(200, JSON)
        rig.upstream().end(REPLY)
    elif end == "silent":
        rig.clock.advance(1000)
    else:
        rig.upstream().response(200, SSE)
        rig.upstream().end(ROLE, text("a"), *([FINISH, DONE] if end == "proven" else []))
    assert exchange.state in ("finished", "left")
    rig.clock.forget()
    for sent in rig.client.sent:
        del sent.receiver  # the transport's tie to the attempt, which a real connection cuts itself


@pytest.mark.parametrize("end", ["proven", "unproven", "left", "refused", "whole", "silent"])
def test_a_call_is_gone_without_a_collection(end: str) -> None:
    gc.collect()
    gc.disable()
    try:
        before = calls_alive()
        play_and_forget(end)
        assert calls_alive() == before
    finally:
        gc.enable()
