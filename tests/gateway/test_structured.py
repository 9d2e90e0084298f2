"""A JSON schema for a backend that enforces none: asked for in the prompt, and no success without the right JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.gateway.services import CallSettings
from strom.protocols.codec import Quirks
from tests.gateway.rig import DONE, FINISH, JSON, PATHS, ROLE, SSE, USAGE, Rig, chat_frame, data_objects, text
from tests.gateway.test_call_fallback import check

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
CANNOT = Quirks(response_format=False)
FRONTS = sorted(PATHS)
WANTED: dict[str, dict[str, Any]] = {
    "openai-chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    "openai-responses": {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
    "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "ollama": {"format": SCHEMA},
}
OBJECT: dict[str, dict[str, Any]] = {
    "openai-chat": {"response_format": {"type": "json_object"}},
    "openai-responses": {"text": {"format": {"type": "json_object"}}},
    "ollama": {"format": "json"},
}


def asked(rig: Rig) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(rig.upstream().request.body)
    return body


def stream(rig: Rig, *pieces: str, finish: bytes = FINISH) -> None:
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, *(text(piece) for piece in pieces))
    rig.upstream().end(finish, USAGE, DONE)


def whole(rig: Rig, content: str) -> None:
    reply = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "real-m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    rig.upstream().response(200, JSON)
    rig.upstream().end(json.dumps(reply).encode())


@pytest.mark.parametrize("front", FRONTS)
def test_a_right_answer_streams_through(front: str) -> None:
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(front, **WANTED[front])
    body = asked(rig)
    assert "response_format" not in body
    assert body["messages"][0]["role"] == "system"
    assert '"integer"' in body["messages"][0]["content"]
    stream(rig, '{"n"', ": 1}")
    check(front, exchange.body_out)
    assert rig.record.status == "completed"
    assert any(note.startswith("response_format json_schema (put into the prompt") for note in rig.record.dropped)


@pytest.mark.parametrize("answer", ["Sure! Here it is.", '{"n": "one"}', '{"m": 1}', '{"n": 1', "", "[1]"])
@pytest.mark.parametrize("front", FRONTS)
def test_a_wrong_answer_ends_a_stream_with_an_error(front: str, answer: str) -> None:
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(front, **WANTED[front])
    stream(rig, *([answer] if answer else []))
    out = exchange.body_out
    assert b"not the JSON that was asked for" in out
    for terminator in (b"[DONE]", b"message_stop", b"response.completed", b'"done":true'):
        assert terminator not in out
    assert (rig.record.status, rig.record.complete, rig.record.fault) == ("failed", False, "upstream")
    assert rig.record.error is not None
    assert rig.record.error.code == "invalid_structured_output"


@pytest.mark.parametrize("front", FRONTS)
def test_a_wrong_whole_answer_is_a_502(front: str) -> None:
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(front, stream=False, **WANTED[front])
    whole(rig, '{"n": "one"}')
    assert exchange.status == 502
    assert b"$.n: expected integer, got string" in exchange.body_out
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(front, stream=False, **WANTED[front])
    whole(rig, '```json\n{"n": 7}\n```\n')
    assert exchange.status == 200
    assert b"```" not in exchange.body_out


def test_a_fence_is_taken_off_while_it_streams() -> None:
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(**WANTED["openai-chat"])
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("``"), text('`json\n{"n"'))
    assert b'{\\"n\\"' in exchange.body_out, "it does not wait for the end"
    rig.upstream().read(text(":1}\n``"), text("`\n"))
    rig.upstream().end(FINISH, USAGE, DONE)
    frames = data_objects(exchange.body_out)
    said = "".join(f["choices"][0]["delta"].get("content") or "" for f in frames if f["choices"])
    assert said == '{"n":1}'
    assert rig.record.status == "completed"


@pytest.mark.parametrize("front", sorted(OBJECT))
def test_json_objects(front: str) -> None:
    for answer, status in (('{"a": []}', 200), ("[]", 502), ("1", 502), ("no", 502)):
        rig = Rig(quirks=CANNOT)
        exchange = rig.call(front, stream=False, **OBJECT[front])
        whole(rig, answer)
        assert exchange.status == status, answer


def test_what_has_its_own_reason_is_not_judged() -> None:
    """A cut answer ends as cut; a turn that calls a tool is no final answer."""
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(**WANTED["openai-chat"])
    stream(rig, '{"n', finish=chat_frame({}, "length"))
    assert exchange.body_out.endswith(DONE)
    assert rig.record.finish_reason == "length"
    rig = Rig(quirks=CANNOT)
    exchange = rig.call(**WANTED["openai-chat"])
    rig.upstream().response(200, SSE)
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    rig.upstream().read(ROLE, text("Let me see."), chat_frame({"tool_calls": [call]}))
    rig.upstream().end(chat_frame({}, "tool_calls"), USAGE, DONE)
    assert rig.record.status == "completed"


def test_refusal_by_setting_sends_nothing() -> None:
    rig = Rig(quirks=CANNOT, settings=CallSettings(structured_fallback="refuse"))
    exchange = rig.call(**WANTED["openai-chat"])
    assert exchange.status == 400
    assert b"structured_fallback" in exchange.body_out
    assert rig.client.sent == []


def test_several_choices_and_broken_schemas_are_refused() -> None:
    rig = Rig(quirks=CANNOT)
    assert rig.call(n=2, **WANTED["openai-chat"]).status == 400
    rig = Rig(quirks=CANNOT)
    assert rig.call("ollama", format=json.loads('{"items":' * 150 + "{}" + "}" * 150)).status == 400


def test_a_backend_that_enforces_it_is_relayed_untouched() -> None:
    rig = Rig()
    exchange = rig.call(**WANTED["openai-chat"])
    assert asked(rig)["response_format"] == WANTED["openai-chat"]["response_format"]
    stream(rig, "no JSON at all")
    assert exchange.body_out.endswith(DONE)
    assert rig.record.dropped == []


def test_json_object_for_anthropic_is_asked_for_and_checked() -> None:
    rig = Rig("anthropic")
    rig.call(**OBJECT["openai-chat"])
    assert "JSON object" in asked(rig)["system"]
    assert "output_config" not in asked(rig)


def test_the_instruction_joins_the_leading_system_text() -> None:
    rig = Rig(quirks=CANNOT)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    rig.call(messages=turns, **WANTED["openai-chat"])
    messages = asked(rig)["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"].startswith("Be brief.")
