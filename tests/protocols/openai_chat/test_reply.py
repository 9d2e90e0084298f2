"""Whole replies: a folded stream, relayed byte for byte where they are legal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest, IncompleteCompletion, InvalidStreamEvent, ProviderError, StromError
from strom.core.events import Completed, Failed, Finished
from strom.core.fold import Fold, fold
from strom.core.messages import RefusalPart, Reply, TextPart, ThinkingPart, ToolCallPart
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat import CODEC
from tests.protocols.openai_chat.frames import BLOCK, DONE, USAGE, check_order, context, failure, role, stop, text
from tests.recordings import load, names

WHOLE = names(protocol="chat", status=200, streamed=False)


def body(message: Any = None, reason: str | None = "stop", **members: Any) -> bytes:
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "ok"}, "finish_reason": reason}
    whole = {
        "id": "chatcmpl-w",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    }
    whole = {name: value for name, value in {**whole, **members}.items() if value is not ...}
    return json.dumps(whole, ensure_ascii=False).encode()


def parts(data: bytes) -> tuple[Any, ...]:
    events = CODEC.decode_reply(data, Quirks())
    check_order(events)
    folded = Fold()
    folded.feed(events)
    return folded.parts()


@pytest.mark.parametrize(("engine", "case"), WHOLE)
def test_recordings(engine: str, case: str) -> None:
    recording = load(engine, case)
    events = CODEC.decode_reply(recording.response, Quirks())
    check_order(events)
    assert events[-1] == Completed()
    assert CODEC.relay_reply(recording.response, context(), events) == recording.response
    relayed = json.loads(CODEC.relay_reply(recording.response, context(block=BLOCK), events))
    assert relayed.pop("strom") == {"complete": True}
    assert relayed == json.loads(recording.response)


def test_a_whole_reply() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [call], "refusal": "no"}
    reply = fold(CODEC.decode_reply(body(message, "tool_calls"), Quirks()))
    assert reply == Reply(
        "chatcmpl-w",
        "m",
        5,
        (ThinkingPart("hm"), TextPart("so"), RefusalPart("no"), ToolCallPart("c", "f", '{"a":1}')),
        "tool_calls",
        finish_raw="tool_calls",
        usage=Usage(9, 3),
    )


def test_every_entry_is_a_call_of_its_own() -> None:
    calls = [{"index": 0, "function": {"name": "f", "arguments": f'{{"n":{n}}}'}} for n in range(2)]
    found = parts(body({"content": None, "tool_calls": calls}))
    assert [part.arguments for part in found] == ['{"n":0}', '{"n":1}']


def test_think_tags_in_a_whole_reply() -> None:
    assert parts(body({"content": "<think>hm</think>so"})) == (ThinkingPart("hm"), TextPart("so"))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (
            b'{"error":{"message":"m","type":"invalid_request_error","code":"unsupported_parameter","param":"p"}}',
            BadRequest,
        ),
        (b'{"error":"text"}', ProviderError),
        (b"{}", ProviderError),
        (b'{"choices":null}', ProviderError),
        (body(reason=None), IncompleteCompletion),
        (b"<html>", ProviderError),
        (b"  ", ProviderError),
        (b"plain", InvalidStreamEvent),
        (b"[1]", InvalidStreamEvent),
        (role() + text("half"), ProviderError),
    ],
)
def test_what_is_no_answer(data: bytes, kind: type[StromError]) -> None:
    error = failure(CODEC.decode_reply(data, Quirks()))
    assert isinstance(error, kind)
    assert "html" not in error.message.replace("HTML", "")


def test_an_error_under_status_200_keeps_its_code() -> None:
    data = b'{"error":{"message":"m","type":"invalid_request_error","code":"unsupported_parameter","param":"p"}}'
    error = failure(CODEC.decode_reply(data, Quirks()))
    assert (error.status, error.code, error.param, error.message) == (400, "unsupported_parameter", "p", "m")


def test_broken_arguments() -> None:
    call = b'{"function":{"name":"f","arguments":"\xff"}}'
    broken = b'{"choices":[{"message":{"tool_calls":[' + call + b']},"finish_reason":"stop"}]}'
    assert isinstance(failure(CODEC.decode_reply(broken, Quirks())), InvalidStreamEvent)


def test_quirk_finish_reason_not_required() -> None:
    events = CODEC.decode_reply(body(reason=None), Quirks(finish_reason_required=False))
    assert events[-2:] == [Finished("stop", assumed=True), Completed()]
    relayed = json.loads(CODEC.relay_reply(body(reason=None), context(), events))
    assert relayed["choices"][0]["finish_reason"] == "stop"


def relayed(data: bytes, **members: Any) -> dict[str, Any]:
    events = CODEC.decode_reply(data, Quirks())
    assert not isinstance(events[-1], Failed)
    whole: dict[str, Any] = json.loads(CODEC.relay_reply(data, context(**members), events))
    return whole


def test_a_reply_is_repaired_where_it_breaks_the_protocol() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": {"a": 1}}, "x": 1}
    empty = {"id": "c", "type": "function", "function": {"name": "g", "arguments": ""}}
    message = {"content": None, "reasoning": "hm", "tool_calls": [call, empty], "y": [1]}
    whole = relayed(body(message, id=..., object=..., usage=..., created=1.5), input_estimate=4)
    assert (whole["id"], whole["object"], whole["created"]) == ("chatcmpl-r1", "chat.completion", 1)
    assert whole["usage"]["prompt_tokens"] == 4
    said = whole["choices"][0]["message"]
    assert (said["reasoning_content"], said["y"]) == ("hm", [1])
    first, second = said["tool_calls"]
    assert first["id"].startswith("call_")
    assert (first["type"], first["function"]["arguments"], first["x"]) == ("function", '{"a": 1}', 1)
    assert second["function"]["arguments"] == "{}"


def test_a_reply_with_several_choices_keeps_them() -> None:
    choices = [{"index": n, "message": {"content": str(n)}, "finish_reason": "stop"} for n in range(2)]
    data = body(choices=choices)
    assert CODEC.relay_reply(data, context(), CODEC.decode_reply(data, Quirks())) == data


def test_a_custom_call_needs_no_arguments() -> None:
    call = {"id": 7, "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    whole = relayed(body({"content": None, "tool_calls": [call]}, usage=...))
    assert whole["choices"][0]["message"]["tool_calls"][0]["id"] == "7"
    assert whole["usage"]["completion_tokens"] == 1
    bare = {"id": "c", "type": "function", "index": 0}
    assert relayed(body({"content": "a", "tool_calls": [bare]}))["choices"][0]["message"]["tool_calls"] == [bare]


def test_reasoning_on_relay() -> None:
    data = body({"content": "so", "reasoning_content": "hm"})
    dropped = relayed(data, reasoning="drop")["choices"][0]["message"]
    assert dropped == {"content": "so"}
    shown = relayed(data, reasoning="text")["choices"][0]["message"]
    assert shown == {"content": "<think>\nhm\n</think>\n\nso"}


def test_a_stream_that_nobody_asked_for_becomes_a_whole_reply() -> None:
    whole = relayed(role() + text("a") + stop() + DONE)
    assert (whole["object"], whole["choices"][0]["message"]["content"]) == ("chat.completion", "a")


# --- encoding ------------------------------------------------------------------------------------------


def encoded(*given: Any, reason: str = "stop", usage: Usage | None = None, **members: Any) -> dict[str, Any]:
    reply = Reply("resp_1", "theirs", 7, given, reason, usage=usage)
    whole: dict[str, Any] = json.loads(CODEC.encode_reply(reply, context(**members)))
    return whole


def test_an_encoded_reply() -> None:
    call, free = ToolCallPart("c", "f", ""), ToolCallPart("d", "sh", "ls", custom=True)
    whole = encoded(ThinkingPart("hm"), TextPart("so"), call, free, usage=Usage(9, 3), block=BLOCK)
    assert (whole["id"], whole["model"], whole["created"], whole["strom"]) == (
        "chatcmpl-r1",
        "alias",
        1750000000,
        {"complete": True},
    )
    choice = whole["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": "so",
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "d", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        ],
    }
    assert whole["usage"] == USAGE


def test_content_is_null_only_beside_something_else() -> None:
    assert encoded()["choices"][0]["message"]["content"] == ""
    assert encoded(ToolCallPart("c", "f", "{}"))["choices"][0]["message"]["content"] is None
    assert encoded(RefusalPart("no"))["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": "no",
    }


def test_reasoning_and_estimates_of_an_encoded_reply() -> None:
    shown = encoded(ThinkingPart("hm"), TextPart("so"), RefusalPart(""), reasoning="text", input_estimate=2)
    assert shown["choices"][0]["message"]["content"] == "<think>\nhm\n</think>\n\nso"
    assert shown["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    dropped = encoded(ThinkingPart("hm"), TextPart("so"), reasoning="drop")["choices"][0]["message"]
    assert "reasoning_content" not in dropped
    assert encoded(TextPart("x"), reason="context_full")["choices"][0]["finish_reason"] == "length"
