"""One program text against all protocols, and through Strom's own gateway: the event sequences agree."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import strom
from strom.client.events import StreamEvent
from strom.client.options import ModelOptions
from tests.client.loopback import Loopback
from tests.client.rig import NDJSON, SSE, Answer, Rig, call, calls_answer, line, said, sse, text_answer
from tests.patience import PATIENCE_S


class Person(msgspec.Struct):
    name: str


def weather(city: str) -> str:
    return f"sunny in {city}"


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn") -> Answer:
    message: dict[str, Any] = {
        "id": "m", "type": "message", "role": "assistant", "model": "used-1", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
    }  # fmt: skip
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


def responses(item: dict[str, Any], deltas: list[dict[str, Any]]) -> Answer:
    """One output item: its start, its deltas, its end, and the response with all of it."""
    base: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 1, "model": "used-1", "status": "in_progress",
                            "output": []}  # fmt: skip
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "response": base},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
        {"type": "response.completed", "response": {**base, "status": "completed", "output": [item], "usage": usage}},
    ]
    reads = [
        f"event: {frame['type']}\n".encode() + sse({**frame, "sequence_number": number})
        for number, frame in enumerate(frames)
    ]
    return Answer(tuple(reads))


def responses_text(text: str) -> Answer:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    deltas = [
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": text},
        {"type": "response.output_text.done", **at, "text": text},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    return responses(item, deltas)


def responses_call() -> Answer:
    arguments = '{"city":"Rome"}'
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": arguments}
    at = {"item_id": "fc_1", "output_index": 0}
    deltas = [
        {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
        {"type": "response.function_call_arguments.done", **at, "arguments": arguments},
    ]
    return responses(item, deltas)


def texts(protocol: str, text: str) -> Answer:
    match protocol:
        case "anthropic":
            return anthropic({"type": "text", "text": text})
        case "ollama":
            return ollama(text)
        case "openai-responses":
            return responses_text(text)
        case _:
            return text_answer(text)


def asks(protocol: str) -> Answer:
    match protocol:
        case "anthropic":
            block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
            return anthropic(block, stop="tool_use")
        case "ollama":
            return ollama(call={"name": "weather", "arguments": {"city": "Rome"}})
        case "openai-responses":
            return responses_call()
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


PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


@pytest.mark.parametrize("protocol", PATHS)
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
    assert {send.request.target for send in rig.sent} == {PATHS[protocol]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    """Strom's own gateway, as a program, before a scripted backend."""
    with Loopback() as backend:
        port = free_port()
        command = [sys.executable, "-m", "strom", "serve", "--backend", backend.url, "--port", str(port)]
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                await_port(port)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait(PATIENCE_S)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def await_port(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < end, "the gateway does not start"
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("protocol", PATHS)
def test_through_our_own_gateway(protocol: Any, gateway: str) -> None:
    model = strom.Model("m", base_url=gateway, protocol=protocol)
    assert model.complete("one two").text == "one two "
    events = list(model.stream("go", tools=[strom.tool(name="f")(lambda a: a)]))
    assert [event.type for event in events][:2] == ["tool_call", "tool_result"]
    assert events[-1].type == "completed"
    session = model.session()
    assert session.send("three").text == "three "
    with pytest.raises(strom.StreamFailed) as caught:
        model.complete("refuse")
    assert caught.value.reason == "request_failed"
    assert model.map(["a", "b"])[1].ok
