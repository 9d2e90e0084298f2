"""A streamed call: when the head goes out, what leaves when, how it ends, what is recorded."""

import json

import pytest

from strom.gateway.pipes import FoldPipe
from strom.gateway.services import LINGER_S, CallSettings
from strom.protocols.codec import Quirks
from strom.transport.memory import MemoryExchange
from strom.transport.types import TransportFailure
from tests.gateway.rig import DONE, FINISH, JSON, KEY, ROLE, SSE, USAGE, Rig, data_objects, text

FRONTS = ["openai-chat", "anthropic"]


def begin(rig: Rig, front: str = "openai-chat") -> MemoryExchange:
    """A call whose upstream has answered 200 and said "Hel"."""
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hel"))
    return exchange


@pytest.mark.parametrize("front", FRONTS)
def test_head_and_first_token_leave_together(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    assert exchange.state == "new", "a role alone is no reason to commit"
    rig.upstream().read(text("Hel"))
    assert exchange.status == 200
    assert len(exchange.writes) == 1
    assert b"Hel" in exchange.writes[0]


@pytest.mark.parametrize("front", FRONTS)
def test_each_delta_leaves_in_the_turn_it_came(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    for piece in ("lo", " wor", "ld"):
        before = len(exchange.writes)
        rig.upstream().read(text(piece))
        assert len(exchange.writes) == before + 1
        assert piece.encode() in exchange.writes[-1]


def test_many_events_of_one_read_leave_in_one_write() -> None:
    rig = Rig()
    exchange = begin(rig)
    rig.upstream().read(text("a"), text("b") + text("c"), text("d"))
    assert exchange.writes[1] == text("a") + text("b") + text("c") + text("d")


def test_a_relayed_stream_is_byte_for_byte_the_upstream_s_up_to_its_finish() -> None:
    rig = Rig()
    exchange = begin(rig)
    rig.upstream().read(text("lo"))
    assert exchange.body_out == ROLE + text("Hel") + text("lo")


@pytest.mark.parametrize("front", FRONTS)
def test_a_proven_end_finishes_the_body_and_the_record(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.clock.advance(0.5)
    rig.upstream().read(FINISH, USAGE)
    assert exchange.state == "started", "the finish waits for the proof"
    rig.upstream().end(DONE)
    assert exchange.state == "finished"
    record = rig.record
    assert (record.status, record.complete, record.fault) == ("completed", True, None)
    assert (record.usage.input_tokens, record.usage.output_tokens, record.usage_source) == (9, 3, "reported")
    assert (record.model_requested, record.model_used, record.provider, record.endpoint_id) == (
        "m",
        "real-m",
        "p1",
        "e1",
    )
    assert record.cost_estimate is not None
    assert record.cost_estimate.amount == pytest.approx(9e-6 + 6e-6)
    assert record.timing.first_token_kind == "content"
    assert record.timing.request_duration_ms == pytest.approx(500)
    assert record.bytes_out == len(exchange.body_out)
    assert [(attempt.endpoint_id, attempt.outcome) for attempt in record.attempts] == [("e1", "ok")]
    assert rig.clock.armed == 0


@pytest.mark.parametrize("front", FRONTS)
def test_block_and_record_agree(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.upstream().end(FINISH, USAGE, DONE)
    (block,) = [found["strom"] for found in data_objects(exchange.body_out) if "strom" in found]
    record = rig.record
    assert block["complete"] is True
    assert block["trace_id"] == record.trace_id == exchange.header_out(b"x-strom-trace-id").decode()  # type: ignore[union-attr]
    assert block["usage_source"] == record.usage_source
    assert block["timing"]["time_to_first_token_ms"] == record.timing.time_to_first_token_ms
    assert block["attempts"][0]["outcome"] == "ok"


def test_the_block_can_be_switched_off() -> None:
    rig = Rig(settings=CallSettings(block_name=None))
    exchange = begin(rig)
    rig.upstream().end(FINISH, DONE)
    assert b"trace_id" not in exchange.body_out


@pytest.mark.parametrize("front", FRONTS)
def test_the_end_does_not_wait_for_a_body_that_stays_open(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.upstream().read(FINISH, DONE)
    assert exchange.state == "finished"
    assert not rig.upstream().aborted, "its connection may still serve again"
    rig.clock.advance(LINGER_S + 0.1)
    assert rig.upstream().aborted


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("tail", [b"", FINISH, DONE, ROLE])
def test_an_unproven_end_is_an_error_in_band_and_no_terminator(front: str, tail: bytes) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    if tail:
        rig.upstream().read(tail)
    if not rig.upstream().over:
        rig.upstream().end()
    assert exchange.state == "finished"
    assert b"[DONE]" not in exchange.body_out
    assert b"message_stop" not in exchange.body_out
    assert data_objects(exchange.body_out)[-1]["error"]["message"]
    assert rig.record.status == "incomplete"
    assert rig.record.usage_source == "estimated"
    assert rig.record.usage.output_tokens == 1


@pytest.mark.parametrize("front", FRONTS)
def test_a_cut_connection_is_told(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.upstream().fail(TransportFailure("cut", "reset", sent=True))
    assert b"broke before" in exchange.body_out
    assert rig.record.status == "incomplete"
    assert rig.record.fault == "upstream"


@pytest.mark.parametrize("front", FRONTS)
def test_an_error_frame_of_the_upstream_is_told_without_its_key(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    frame = {"error": {"message": f"key {KEY} is over quota", "type": "insufficient_quota"}}
    rig.upstream().read(b"data: " + json.dumps(frame).encode() + b"\n\n")
    assert exchange.state == "finished"
    assert b"over quota" in exchange.body_out
    assert KEY.encode() not in exchange.body_out
    assert KEY not in str(rig.record)
    assert rig.record.status == "failed"
    assert rig.upstream().aborted


def test_text_and_error_of_one_read_are_both_told() -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE + text("Hel") + b'data: {"error":{"message":"broke"}}\n\n')
    assert exchange.status == 200
    assert b"Hel" in exchange.body_out
    assert data_objects(exchange.body_out)[-1]["error"]["message"] == "Backend 'p1': broke"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("whole", [b'{"error":{"message":"no"}}', b"<html>busy</html>", b""])
def test_nothing_but_an_error_is_a_status(front: str, whole: bytes) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, JSON)
    rig.upstream().end(whole) if whole else rig.upstream().end()
    assert exchange.status >= 500
    assert exchange.header_out(b"content-type") == b"application/json"
    assert b"html" not in exchange.body_out
    assert rig.record.http_status == exchange.status


@pytest.mark.parametrize("front", FRONTS)
def test_a_whole_reply_becomes_a_stream(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front)
    rig.upstream().response(200, JSON)
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    reply = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "real-m",
        "choices": [choice],
        "usage": usage,
    }
    rig.upstream().end(json.dumps(reply).encode())
    assert exchange.state == "finished"
    assert exchange.header_out(b"content-type") == b"text/event-stream; charset=utf-8"
    assert b"Hello" in exchange.body_out
    assert rig.record.status == "completed"


@pytest.mark.parametrize("front", FRONTS)
def test_a_client_that_left_closes_the_upstream_at_once(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    exchange.disconnect()
    assert rig.upstream().aborted
    record = rig.record
    assert (record.status, record.http_status, record.complete) == ("cancelled", 499, False)
    assert (record.usage_source, record.usage.output_tokens) == ("estimated", 1)
    assert rig.clock.armed == 0


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_before_any_answer_counts_too(front: str, stream: bool) -> None:
    """The backend has read the prompt: what limits are charged with stands in the record and costs."""
    rig = Rig()
    exchange = rig.call(front, stream=stream)
    exchange.disconnect()
    assert rig.upstream().aborted
    record = rig.record
    assert (record.status, record.usage_source, record.usage.output_tokens) == ("cancelled", "estimated", 0)
    assert record.usage.input_tokens
    assert record.cost_estimate is not None
    assert (record.cost_estimate.input_amount, record.cost_estimate.output_amount) > (0, 0)


def test_leaving_before_anything_was_sent_uses_nothing() -> None:
    """Between two attempts: the first one was refused, the second one waits."""
    rig = Rig(retries=1)
    exchange = rig.call()
    rig.upstream().response(503, [(b"retry-after", b"30")])
    rig.upstream().end(b"{}")
    exchange.disconnect()
    record = rig.record
    assert (record.status, record.usage_source, record.usage.input_tokens) == ("cancelled", "none", None)
    assert len(rig.client.sent) == len(record.attempts) == 1


def test_what_comes_after_the_end_is_ignored() -> None:
    rig = Rig()
    exchange = begin(rig)
    rig.upstream().read(FINISH, DONE)
    size = len(exchange.body_out)
    rig.upstream().read(text("ghost"), DONE)
    rig.upstream().end()
    assert len(exchange.body_out) == size
    assert rig.record.status == "completed"


def test_a_slow_client_stops_the_upstream_and_its_clock() -> None:
    rig = Rig()
    exchange = begin(rig)
    exchange.pause()
    assert rig.upstream().paused
    rig.clock.advance(290)
    assert exchange.state == "started", "the client is slow, not the upstream"
    exchange.resume()
    assert not rig.upstream().paused
    rig.clock.advance(59)
    assert exchange.state == "started"
    rig.clock.advance(2)
    assert exchange.state == "finished"
    assert rig.record.error is not None
    assert rig.record.error.code == "idle_timeout"


def test_a_defect_of_ours_fails_this_call_only(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    exchange = begin(rig)

    class BrokenPipe(FoldPipe):
        def feed(self, data: bytes) -> bytes:
            raise ZeroDivisionError

    decoder = rig.gateway.codecs["openai-chat"].decoder(Quirks())
    rig.upstream().receiver.use(BrokenPipe(decoder, {}))  # type: ignore[attr-defined]
    rig.upstream().read(text("x"))
    assert exchange.state == "finished"
    assert rig.record.status == "failed"
    assert rig.record.fault == "gateway"
    assert rig.upstream().aborted
    assert "ZeroDivisionError" in caplog.text
    assert b"ZeroDivision" not in exchange.body_out


@pytest.mark.parametrize("front", FRONTS)
def test_the_sentinel_s_line_is_proof_though_the_connection_breaks_behind_it(front: str) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.upstream().read(FINISH)
    rig.upstream().read(b"data: [DONE]\n")
    rig.upstream().fail(TransportFailure("cut", "reset", sent=True))
    assert exchange.state == "finished"
    assert rig.record.status == "completed"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    "block", [b'xxdata: {"choices":[]}\n\n', b'{"error": {"message": "boom"}}\n\n', b"error: broken\n\n"]
)
def test_a_block_of_no_known_field_is_not_skipped_in_silence(front: str, block: bytes) -> None:
    rig = Rig()
    exchange = begin(rig, front)
    rig.upstream().read(block)
    assert exchange.state == "finished"
    assert data_objects(exchange.body_out)[-1]["error"]["message"]
    assert rig.record.status == "failed"


def test_text_after_the_finish_does_not_slip_through_with_a_read_of_many_frames() -> None:
    rig = Rig()
    exchange = begin(rig)
    rig.upstream().read(text("a") + text("b") + FINISH)
    rig.upstream().read(text("ghost"))
    rig.upstream().end(DONE)
    finishes = [n for n, o in enumerate(data_objects(exchange.body_out)) if o["choices"][0]["finish_reason"]]
    texts = [n for n, o in enumerate(data_objects(exchange.body_out)) if o["choices"][0]["delta"].get("content")]
    assert len(finishes) == 1
    assert max(texts) < finishes[0]


@pytest.mark.parametrize("cut", range(1, len(text("b")), 40))
def test_frames_cut_between_reads_pass_as_they_came(cut: int) -> None:
    rig = Rig()
    exchange = begin(rig)
    whole = text("a") + text("b") + text("c")
    at = len(text("a")) + cut
    rig.upstream().read(whole[:at])
    rig.upstream().read(whole[at:])
    assert exchange.body_out == ROLE + text("Hel") + whole
    assert rig.upstream().receiver.evidence.deltas == 4  # type: ignore[attr-defined]
