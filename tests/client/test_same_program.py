"""One program text against all protocols, and through Strom's own gateway: the event sequences agree."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import strom
from strom.client.events import StreamEvent
from strom.client.options import ModelOptions
from tests.client.rig import NDJSON, SSE, Answer, Rig, call, calls_answer, line, said, sse, text_answer


class Person(msgspec.Struct):
    name: str


def weather(city: str) -> str:
    return f"sunny in {city}"


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn") -> Answer:
    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "used-1", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}}  # fmt: skip
    frames: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        kind = block["type"]
        empty = {**block, "text": ""} if kind == "text" else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if kind == "text"
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        frames += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    frames += [
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    return Answer(tuple(f"event: {frame['type']}\n".encode() + sse(frame) for frame in frames), headers=SSE)


def ollama(text: str = "", call: dict[str, Any] | None = None) -> Answer:
    end = line(done=True, done_reason="stop", prompt_eval_count=5, eval_count=7)
    if call is not None:
        asked = line(message={"role": "assistant", "content": "", "tool_calls": [{"function": call}]}, done=False)
        return Answer((asked, end), headers=NDJSON)
    return Answer((said(text), end), headers=NDJSON)


def texts(protocol: str, text: str) -> Answer:
    match protocol:
        case "anthropic":
            return anthropic({"type": "text", "text": text})
        case "ollama":
            return ollama(text)
        case _:
            return text_answer(text)


def asks(protocol: str) -> Answer:
    match protocol:
        case "anthropic":
            block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
            return anthropic(block, stop="tool_use")
        case "ollama":
            return ollama(call={"name": "weather", "arguments": {"city": "Rome"}})
        case _:
            return calls_answer(call("c1", "weather", '{"city":"Rome"}'))


def shape(events: list[StreamEvent]) -> list[tuple[object, ...]]:
    """What a program sees, without ids and times."""
    seen: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case strom.StreamContent(text):
                seen.append(("content", text))
            case strom.StreamToolCall(called):
                seen.append(("call", called.name, called.arguments))
            case strom.StreamToolResult():
                seen.append(("result", event.result))
            case strom.StreamPartial(value):
                seen.append(("partial", value))
            case strom.StreamCompleted():
                seen.append(("completed", event.value, event.metadata.finish_reason, event.metadata.usage is not None))
            case _:
                seen.append(("other", event))
    return seen


PROTOCOLS = ["openai-chat", "anthropic", "ollama"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_stream_tools_structured_session(protocol: Any) -> None:
    answers = [
        texts(protocol, "Hello"),
        asks(protocol),
        texts(protocol, "It is sunny."),
        texts(protocol, '{"name":"Ann"}'),
    ]
    options: ModelOptions = {"protocol": protocol}
    rig = Rig(answers, model=options)
    assert shape(rig.play("Hi")) == [("content", "Hello"), ("completed", None, "stop", True)]
    assert shape(rig.play("Weather?", tools=[weather])) == [
        ("call", "weather", {"city": "Rome"}),
        ("result", "sunny in Rome"),
        ("content", "It is sunny."),
        ("completed", None, "stop", True),
    ]
    assert shape(rig.play("Who?", into=Person)) == [
        ("partial", {"name": "Ann"}),
        ("completed", Person("Ann"), "stop", True),
    ]
    paths = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}
    assert {send.request.target for send in rig.sent} == {paths[protocol]}
