"""What a second attempt finds when the first one has already said something that no client saw, or a heartbeat went out."""

import json
from typing import Any

import pytest

from strom.gateway.services import CallSettings
from strom.transport.types import TransportFailure
from tests.gateway.rig import DONE, FINISH, JSON, PATHS, ROLE, SSE, USAGE, Rig, chat_frame, data_objects, text
from tests.grammar import anthropic, ollama, openai_chat, openai_responses

BEAT = CallSettings(heartbeat_s=10)
CUT = TransportFailure("cut", "", sent=True)
FRONTS = sorted(PATHS)
MESSAGES = [
    {"type": "message_start", "message": {"id": "msg_2", "type": "message", "role": "assistant", "model": "real",
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "second"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]  # fmt: skip


def check(front: str, body: bytes) -> Any:
    """What the client saw; raises or fails where the body breaks the protocol."""
    match front:
        case "openai-chat":
            seen = openai_chat.read(body)
            assert seen.broken == []
            return seen
        case "anthropic":
            return anthropic.read(body)
        case "openai-responses":
            return openai_responses.read(body)
        case _:
            return ollama.read(body)


def answer(rig: Rig) -> None:
    """The newest request gets a whole answer, "second"."""
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("second"))
    rig.upstream().end(FINISH, USAGE, DONE)


@pytest.mark.parametrize("front", FRONTS)
def test_what_the_first_attempt_began_is_begun_anew(front: str) -> None:
    """The role frame of the first attempt was held back and thrown away: its message_start must come again."""
    rig = Rig(endpoints=2)
    exchange = rig.call(front)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    rig.upstream().fail(CUT)
    answer(rig)
    check(front, exchange.body_out)
    assert b"second" in exchange.body_out
    assert rig.record.status == "completed"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("behind", ["openai-chat", "anthropic"])
def test_after_a_heartbeat_any_protocol_may_answer(front: str, behind: str) -> None:
    rig = Rig(("openai-chat" if behind == "anthropic" else "anthropic", behind), settings=BEAT)
    exchange = rig.call(front)
    rig.clock.advance(25)
    rig.upstream().response(503, JSON)
    rig.upstream().end(b"{}")
    if behind == "anthropic":
        rig.upstream().response(200, SSE)
        rig.upstream().end(*(anthropic_frame(event) for event in MESSAGES))
    else:
        answer(rig)
    check(front, exchange.body_out)
    assert b"second" in exchange.body_out
    assert rig.record.status == "completed"


def anthropic_frame(event: Any) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@pytest.mark.parametrize("front", FRONTS)
def test_after_a_heartbeat_a_whole_reply_may_answer(front: str) -> None:
    rig = Rig(settings=BEAT)
    exchange = rig.call(front)
    rig.clock.advance(25)
    rig.upstream().response(200, JSON)
    rig.upstream().end(
        b'{"id":"c","object":"chat.completion","created":1,"model":"r","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"second"},"finish_reason":"stop"}]}'
    )
    check(front, exchange.body_out)
    assert b"second" in exchange.body_out


@pytest.mark.parametrize("front", ["openai-chat", "anthropic", "ollama"])
def test_after_a_heartbeat_an_endpoint_that_cannot_be_asked_is_told_in_band(front: str) -> None:
    """The second endpoint's protocol cannot carry the request: the client must not see a clean end without a word."""
    rig = Rig((front, "openai-responses"), settings=BEAT)
    rig.gateway.codecs = {**rig.gateway.codecs, "openai-responses": Refusing()}  # type: ignore[dict-item]
    exchange = rig.call(front)
    rig.clock.advance(11)
    rig.upstream().response(503, JSON)
    rig.upstream().end(b"{}")
    assert exchange.state == "finished"
    assert b"cannot carry" in exchange.body_out
    check(front, exchange.body_out)
    assert rig.record.status == "failed"


class Refusing:
    name = "openai-responses"

    def encode_request(self, request: object, target: object) -> None:
        from strom.core.errors import Unsupported

        raise Unsupported("This backend cannot carry it.")


def test_an_error_in_band_names_the_attempt_that_failed() -> None:
    """The block of response.failed is written before the call settles, and must not call the attempt good."""
    rig = Rig()
    exchange = rig.call("openai-responses")
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("a"))
    rig.upstream().fail(CUT)
    block = data_objects(exchange.body_out)[-1]["response"]["strom"]
    assert block["attempts"][0]["outcome"] == "failed"
    assert block["attempts"][0]["reason"] == rig.record.attempts[0].reason
    assert block["usage_source"] == rig.record.usage_source


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [True, False])
def test_text_of_an_unproven_whole_reply_is_not_asked_for_again(front: str, stream: bool) -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call(front, stream=stream)
    rig.upstream().response(200, JSON)
    rig.upstream().end(
        b'{"id":"c","object":"chat.completion","created":1,"model":"r","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"half"},"finish_reason":null}]}'
    )
    assert len(rig.client.sent) == 1
    assert rig.record.status == "incomplete"
    if stream:
        check(front, exchange.body_out)
    else:
        assert b"half" not in exchange.body_out


@pytest.mark.parametrize("front", FRONTS)
def test_a_refused_call_has_no_usage_and_no_cost(front: str) -> None:
    rig = Rig()
    rig.call(front)
    rig.upstream().response(503, JSON)
    rig.upstream().end(b"{}")
    record = rig.record
    assert (record.usage.input_tokens, record.usage.output_tokens, record.usage_source) == (None, None, "none")
    assert record.cost_estimate is None


@pytest.mark.parametrize("front", FRONTS)
def test_a_call_refused_after_a_heartbeat_costs_nothing(front: str) -> None:
    """Responses demands counts of it, which are then estimates; no front makes its callers pay for them."""
    rig = Rig(settings=BEAT)
    exchange = rig.call(front)
    rig.clock.advance(11)
    rig.upstream().response(503, JSON)
    rig.upstream().end(b"{}")
    assert (exchange.status, rig.record.status, rig.record.cost_estimate) == (200, "failed", None)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("beat", [True, False])
def test_a_block_the_first_attempt_left_open_is_not_closed_by_the_second(front: str, beat: bool) -> None:
    """Encoders may hold what is not yet written (Ollama's hold whole calls)."""
    rig = Rig(("anthropic" if front != "anthropic" else "openai-chat", "openai-chat"), settings=BEAT)
    exchange = rig.call(front)
    if beat:
        rig.clock.advance(11)
    rig.upstream().response(200, SSE)
    if front == "anthropic":
        call = {"index": 0, "id": "call_first", "type": "function", "function": {"name": "f", "arguments": ""}}
        rig.upstream().read(chat_frame({"tool_calls": [call]}))
    else:
        block = {"type": "tool_use", "id": "call_first", "name": "f", "input": {}}
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        rig.upstream().read(anthropic_frame(MESSAGES[0]), anthropic_frame(start))
    rig.upstream().fail(CUT)
    if len(rig.client.sent) == 2:
        answer(rig)
        assert b"call_first" not in exchange.body_out
    else:
        assert beat, "before anything was sent, the next endpoint answers"
    check(front, exchange.body_out)
