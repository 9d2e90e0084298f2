"""Whole replies, read, written and relayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import IncompleteCompletion, InvalidStreamEvent, Overloaded, StromError
from strom.core.events import Completed, Event, Failed
from strom.core.fold import fold
from strom.core.messages import (
    ImagePart,
    Json,
    OpaquePart,
    Part,
    RefusalPart,
    Reply,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from strom.core.order import OrderChecker
from strom.core.usage import Usage
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks
from tests.protocols.anthropic_messages.frames import context, decode, text_stream

BASE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 3},
}


def wire(**members: Any) -> bytes:
    return json.dumps({**BASE, **members}).encode()


def events(body: bytes, quirks: Quirks | None = None) -> list[Event]:
    found = CODEC.decode_reply(body, quirks or Quirks())
    checker = OrderChecker()
    for event in found:
        checker.feed(event)
    assert checker.ended
    return found


def failure(body: bytes) -> StromError:
    last = events(body)[-1]
    assert isinstance(last, Failed)
    return last.error


def written(*parts: Part, reason: str = "stop", usage: Usage | None = None, **members: Any) -> dict[str, Any]:
    reply = Reply("chatcmpl-1", "up", 0, parts, reason, members.pop("stop_sequence", ""), usage=usage)
    found: dict[str, Any] = json.loads(CODEC.encode_reply(reply, context(**members)))
    return found


# --- read ---


def test_a_reply_is_a_folded_stream() -> None:
    assert events(wire()) == decode(*text_stream("Hi"))
    content = [
        {"type": "thinking", "thinking": "h", "signature": "s"},
        {"type": "redacted_thinking", "data": "X"},
        {"type": "text", "text": "Hi", "citations": [{"a": 1}, {"b": 2}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"z": 1}},
        {"type": "tool_use", "id": "u", "name": "g", "input": {}},
        {"type": "server_tool_use", "id": "s"},
    ]
    reply = fold(events(wire(content=content, stop_reason="stop_sequence", stop_sequence="END")))
    assert reply.parts == (
        ThinkingPart("h", "s", origin="anthropic"),
        ThinkingPart(encrypted="X", origin="anthropic"),
        TextPart("Hi", citations=Json('[{"a": 1},{"b": 2}]')),
        ToolCallPart("t", "f", '{"z": 1}'),
        ToolCallPart("u", "g", ""),
        OpaquePart("anthropic", "server_tool_use", Json('{"type": "server_tool_use", "id": "s"}')),
    )
    assert (reply.finish_reason, reply.stop_sequence, reply.usage) == ("stop_sequence", "END", Usage(9, 3))


def test_replies_that_are_none() -> None:
    assert isinstance(failure(wire(stop_reason=None)), IncompleteCompletion)
    assert isinstance(failure(wire(content=None)), InvalidStreamEvent)
    assert isinstance(failure(wire(content=[{"type": "tool_use", "id": "t"}])), InvalidStreamEvent)
    assert isinstance(failure(b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}'), Overloaded)
    assert all(isinstance(failure(body), InvalidStreamEvent) for body in (b"", b"<html>", b"[]", b"{", b"\xff"))
    lenient = events(wire(stop_reason=None), Quirks(finish_reason_required=False))
    assert isinstance(lenient[-1], Completed)
    assert fold(lenient).finish_assumed


def test_a_stream_in_place_of_a_reply() -> None:
    assert events(b"".join(text_stream("Hi"))) == decode(*text_stream("Hi"))
    assert isinstance(failure(b"".join(text_stream("Hi")[:-1])), StromError)


ODD: list[Any] = [[], [1], ["x"], [{}], [{"type": 1}]]
ODD_REPLIES = [wire(content=value) for value in ODD]


@given(st.binary(max_size=80) | st.sampled_from(ODD_REPLIES))
def test_garbage_never_raises(body: bytes) -> None:
    events(body)


# --- written ---


def test_a_whole_reply() -> None:
    found = written(
        ThinkingPart("h", "s", origin="anthropic"),
        ThinkingPart(encrypted="X", origin="anthropic"),
        TextPart("Hi", citations=Json("[]")),
        ToolCallPart("a.b", "f", '{"z":1}'),
        ToolCallPart("t", "g", ""),
        usage=Usage(20, 8, 5, None, 2),
    )
    assert found == {
        "id": "msg_r1",
        "model": "client-model",
        "content": [
            {"type": "thinking", "thinking": "h", "signature": "s"},
            {"type": "redacted_thinking", "data": "X"},
            {"type": "text", "text": "Hi", "citations": []},
            {"type": "tool_use", "id": "strom_YS5i", "name": "f", "input": {"z": 1}},
            {"type": "tool_use", "id": "t", "name": "g", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 15,
            "output_tokens": 8,
            "cache_read_input_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 2},
        },
        "type": "message",
        "role": "assistant",
        "strom": {"complete": True},
    }


def test_what_is_left_out_of_a_whole_reply() -> None:
    found = written(
        TextPart(""),
        RefusalPart(""),
        OpaquePart("openai-responses", "x", Json("{}")),
        ImagePart(url="http://x"),
        OpaquePart("anthropic", "x", Json('{"type":"x"}')),
        block=lambda: None,
    )
    assert found["content"] == [{"type": "x"}]
    assert "strom" not in found
    assert found["usage"] == {"input_tokens": 7, "output_tokens": 0}


def test_refusals_reasons_and_broken_arguments() -> None:
    assert written(RefusalPart("No."))["stop_reason"] == "refusal"
    assert written(TextPart("a"), reason="length")["stop_reason"] == "max_tokens"
    stopped = written(TextPart("a"), reason="stop_sequence", stop_sequence="END")
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "END")
    assert written(ToolCallPart("t", "f", "{cut"))["content"][0]["input"] == {"_raw": "{cut"}
    assert written(ToolCallPart("t", "f", "+hi", custom=True))["content"][0]["input"] == {"input": "+hi"}


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        ("native", [{"type": "thinking", "thinking": "h", "signature": ""}]),
        ("text", [{"type": "text", "text": "<think>h</think>\n\n"}]),
        ("drop", []),
    ],
)
def test_reasoning(mode: str, content: list[object]) -> None:
    assert written(ThinkingPart("h"), reasoning=mode)["content"] == content


# --- relayed ---


def relayed(body: bytes, **members: Any) -> bytes:
    return CODEC.relay_reply(body, context(**members), events(body))


def test_a_legal_reply_only_gains_the_block() -> None:
    body = wire(
        x_vendor={"a": [1, None]},
        stop_reason="tool_use",
        content=[{"type": "new_block"}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    )
    assert relayed(body) == body[:-1] + b',"strom":{"complete":true}}'
    assert relayed(body, block=lambda: None) == body


@pytest.mark.parametrize(
    "members",
    [
        {"id": 7},
        {"usage": None},
        {"usage": {"output_tokens": 1}},
        {"type": None},
        {"stop_reason": 5},
        {"content": [{"type": "tool_use", "id": "t", "name": "f"}]},
        {"content": [{"type": "tool_use", "id": 5, "name": "f", "input": {}}]},
    ],
)
def test_a_reply_that_breaks_the_protocol_is_written_anew(members: dict[str, Any]) -> None:
    found = json.loads(relayed(wire(**members)))
    assert (found["type"], found["role"], found["model"]) == ("message", "assistant", "claude-x")
    assert isinstance(found["id"], str)
    assert isinstance(found["stop_reason"], str)
    assert isinstance(found["usage"]["input_tokens"], int)
    assert all(block.get("input", {}) == {} for block in found["content"])


def test_reasoning_that_is_not_wanted() -> None:
    body = wire(
        content=[{"type": "thinking", "thinking": "h", "signature": "s"}, {"type": "text", "text": "a"}], model=None
    )
    found = json.loads(relayed(body, reasoning="drop"))
    assert [block["type"] for block in found["content"]] == ["text"]
    assert found["model"] == "client-model"
