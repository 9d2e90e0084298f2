"""An answer whose upstream fails in the middle goes on at the next endpoint, where the model allows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.protocols.codec import Quirks
from strom.transport.types import TransportFailure
from tests.gateway.rig import DONE, FINISH, ROLE, SSE, USAGE, Rig, chat_frame, data_objects, text

CUT = TransportFailure("cut", "closed", sent=True)
STORY = "It was a dark and stormy night, and the rain fell in torrents upon the roofs."


def begin(front: str = "openai-chat", *, prefill: bool = True, endpoints: int = 2, **body: Any) -> tuple[Rig, Any]:
    rig = Rig(endpoints=endpoints, quirks=Quirks(prefill=prefill), continuation=True)
    exchange = rig.call(front, **body)
    rig.upstream().response(200, SSE)
    return rig, exchange


def words(body: bytes) -> str:
    """What a Chat client puts together."""
    found = ""
    for frame in data_objects(body):
        for choice in frame.get("choices", ()):
            found += choice["delta"].get("content") or ""
    return found


def asked(rig: Rig) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(rig.upstream().request.body)
    return sent


def test_the_next_endpoint_goes_on_and_the_block_says_so() -> None:
    rig, exchange = begin(max_tokens=100)
    rig.upstream().read(ROLE, text(STORY[:20]), text(STORY[20:40]))
    rig.upstream().fail(CUT)
    assert exchange.state == "started", "the client has heard nothing of it"
    assert asked(rig)["messages"][-1] == {"role": "assistant", "content": STORY[:40].rstrip()}
    assert asked(rig)["max_tokens"] == 98
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text(STORY[40:60]))
    rig.upstream().end(text(STORY[60:]), FINISH, USAGE, DONE)
    assert exchange.state == "finished"
    assert words(exchange.body_out) == STORY
    assert exchange.body_out.count(b"[DONE]") == 1
    block = data_objects(exchange.body_out)[-1]["strom"]
    assert block["continued"] is True
    assert block["usage_source"] == "estimated"
    assert [attempt["outcome"] for attempt in block["attempts"]] == ["failed", "ok"]
    assert rig.record.continued
    assert rig.record.status == "completed"
    assert rig.record.usage.output_tokens == 3 + -(-40 // 4)


def test_no_more_is_asked_for_than_the_client_wants() -> None:
    rig, exchange = begin(max_tokens=2)
    rig.upstream().read(ROLE, text(STORY[:20]), text(STORY[20:40]))
    rig.upstream().fail(CUT)
    assert len(rig.client.sent) == 1
    assert "error" in data_objects(exchange.body_out)[-1], "that it ends there was not proven"
    assert words(exchange.body_out) == STORY[:40]


def test_a_limit_that_strikes_in_the_middle_is_a_failure_of_that_backend() -> None:
    rig, exchange = begin()
    limited = (
        b'data: {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}\n\n'
    )
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.upstream().read(limited)
    assert exchange.state == "started"
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text(STORY[40:]), FINISH, DONE)
    assert words(exchange.body_out) == STORY


def test_without_the_option_the_error_is_honest() -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text(STORY[:20]))
    rig.upstream().fail(CUT)
    assert len(rig.client.sent) == 1
    assert "error" in data_objects(exchange.body_out)[-1]
    assert b"[DONE]" not in exchange.body_out
    assert not rig.record.continued


@pytest.mark.parametrize("at", range(1, len(STORY)))
def test_the_text_equals_the_uncut_run_wherever_it_is_cut(at: int) -> None:
    rig, exchange = begin("anthropic")
    rig.upstream().read(ROLE, text(STORY[:at]))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    shown = asked(rig)["messages"][-1]["content"]
    rig.upstream().end(ROLE, *map(text, STORY[len(shown) :]), FINISH, DONE)
    got = "".join(
        frame["delta"].get("text", "")
        for frame in data_objects(exchange.body_out)
        if frame["type"].endswith("_delta") and "text" in frame["delta"]
    )
    assert got == STORY
    assert exchange.body_out.count(b"content_block_start") == 2, "event and type of one block"
    assert exchange.body_out.count(b"event: message_stop") == 1


def test_a_model_that_cannot_be_prefilled_is_asked_in_words() -> None:
    rig, exchange = begin(prefill=False)
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.upstream().fail(CUT)
    *_, said, prompt = asked(rig)["messages"]
    assert said == {"role": "assistant", "content": STORY[:40].rstrip()}
    assert prompt["role"] == "user"
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text(STORY[20:50]), text(STORY[50:]), FINISH, DONE)
    assert words(exchange.body_out) == STORY, "the end that was repeated is cut away"


def test_an_answer_that_is_begun_anew_is_joined_where_it_is_the_same() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:60]))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, *map(text, STORY), FINISH, DONE)
    assert words(exchange.body_out) == STORY


def test_an_answer_that_is_begun_anew_and_differs_is_an_error() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:60]))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text(STORY[:50]), text("but not here"), FINISH, DONE)
    assert words(exchange.body_out) == STORY[:60]
    assert data_objects(exchange.body_out)[-1]["error"]["code"] == "continuation_failed"
    assert rig.record.status == "failed"


def test_a_tool_call_is_never_given_twice() -> None:
    rig, exchange = begin()
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    rig.upstream().read(ROLE, chat_frame({"tool_calls": [call]}))
    rig.upstream().fail(CUT)
    assert len(rig.client.sent) == 1
    assert "error" in data_objects(exchange.body_out)[-1]


def test_a_tool_call_may_follow_the_text_that_was_continued() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text("Let me "))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    rig.upstream().end(ROLE, text("look."), chat_frame({"tool_calls": [call]}), chat_frame({}, "tool_calls"), DONE)
    assert words(exchange.body_out) == "Let me look."
    assert b'"name":"f"' in exchange.body_out.replace(b" ", b"")
    assert rig.record.finish_reason == "tool_calls"


def test_reasoning_before_any_text_is_done_anew() -> None:
    rig, exchange = begin("anthropic")
    rig.upstream().read(ROLE, chat_frame({"reasoning_content": "Hm. "}))
    rig.upstream().fail(CUT)
    assert asked(rig)["messages"][-1]["role"] == "user"
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, chat_frame({"reasoning_content": "Well."}), text("Yes."), FINISH, DONE)
    starts = [f["content_block"]["type"] for f in data_objects(exchange.body_out) if f["type"] == "content_block_start"]
    stops = [f for f in data_objects(exchange.body_out) if f["type"] == "content_block_stop"]
    assert starts == ["thinking", "thinking", "text"]
    assert len(stops) == 3


def test_reasoning_of_the_next_endpoint_is_left_out_once_there_is_text() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, chat_frame({"reasoning_content": "Go on."}), text(STORY[40:]), FINISH, DONE)
    assert b"Go on." not in exchange.body_out
    assert words(exchange.body_out) == STORY


def test_an_upstream_that_has_nothing_to_add_closes_the_block() -> None:
    rig, exchange = begin("anthropic")
    rig.upstream().read(ROLE, text(STORY))
    rig.upstream().fail(CUT)
    rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, FINISH, DONE)
    kinds = [frame["type"] for frame in data_objects(exchange.body_out)]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_the_third_goes_on_where_the_second_broke_off() -> None:
    rig, exchange = begin(endpoints=3)
    for part in (STORY[:30], STORY[30:55]):
        rig.upstream().read(ROLE, text(part))
        rig.upstream().fail(CUT)
        rig.upstream().response(200, SSE)
    rig.upstream().end(ROLE, text(STORY[55:]), FINISH, DONE)
    assert words(exchange.body_out) == STORY
    assert len(rig.record.attempts) == 3


def test_the_last_one_that_fails_is_the_error() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.upstream().fail(CUT)
    rig.upstream().response(503)
    rig.upstream().end(b"{}")
    assert "error" in data_objects(exchange.body_out)[-1]
    assert b"[DONE]" not in exchange.body_out
    assert rig.record.status == "failed"
    assert rig.record.complete is False


def test_silence_in_the_middle_is_a_failure_too_and_the_next_has_its_own_first_token_time() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.clock.advance(61)
    assert len(rig.client.sent) == 2
    rig.clock.advance(100)
    assert exchange.state == "started", "a prompt is read before a token comes"
    rig.clock.advance(25)
    assert exchange.state == "finished"
    assert rig.record.error is not None
    assert rig.record.error.code == "first_token_timeout"


def test_a_client_that_leaves_ends_it() -> None:
    rig, exchange = begin()
    rig.upstream().read(ROLE, text(STORY[:40]))
    rig.upstream().fail(CUT)
    exchange.disconnect()
    assert rig.upstream().aborted
    assert rig.record.status == "cancelled"


@pytest.mark.parametrize("more", [{"response_format": {"type": "json_object"}}])
def test_what_cannot_be_continued_is_not_begun(more: dict[str, Any]) -> None:
    rig, exchange = begin(**more)
    rig.upstream().read(ROLE, text('{"a": '))
    rig.upstream().fail(CUT)
    assert len(rig.client.sent) == 1
    assert "error" in data_objects(exchange.body_out)[-1]
