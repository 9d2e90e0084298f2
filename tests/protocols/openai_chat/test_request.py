"""Reading Chat requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Reasoning,
    RefusalPart,
    Request,
    ResponseFormat,
    Sampling,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from strom.protocols.openai_chat import CODEC


def decoded(*messages: Any, **members: Any) -> Request:
    body = {"model": "m", "messages": list(messages) or [{"role": "user", "content": "hi"}], **members}
    return CODEC.decode_request(json.dumps(body, separators=(",", ":")).encode())


def test_the_plain_members() -> None:
    request = decoded(
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True, "x": 1},
        max_tokens=32,
        max_completion_tokens=8,
        stop="END",
        temperature=0.5,
        top_p=1,
        top_k=7,
        min_p=0.1,
        seed=3,
        frequency_penalty=0,
        presence_penalty=1,
        repetition_penalty=1.1,
        logit_bias={"5": 1},
        logprobs=True,
        top_logprobs=2,
        n=2,
        parallel_tool_calls=False,
        user="u",
        metadata={"a": "b"},
        verbosity="low",
        reasoning_effort="high",
        x_custom={"deep": None},
        store=None,
    )
    assert request == Request(
        protocol="openai-chat",
        model="m",
        messages=(Message("user", (TextPart("hi"),)),),
        parallel_tool_calls=False,
        max_output_tokens=8,
        stop=("END",),
        sampling=Sampling(0.5, 1, 7, 0.1, 3, 0, 1, 1.1, Json('{"5":1}'), True, 2, 2),
        reasoning=Reasoning(enabled=True, effort="high"),
        stream=True,
        include_usage=True,
        continuous_usage=True,
        user="u",
        metadata=Json('{"a":"b"}'),
        verbosity="low",
        extras=(("x_custom", Json('{"deep":null}')),),
    )


def test_null_means_absent() -> None:
    names = ("stream", "stream_options", "max_tokens", "temperature", "stop", "tools", "tool_choice", "response_format")
    assert decoded(**dict.fromkeys((*names, "n", "user", "metadata", "logit_bias", "reasoning_effort"))) == decoded()


def test_stop_and_limits() -> None:
    assert decoded(stop=["a", "b"]).stop == ("a", "b")
    assert decoded(max_tokens=5).max_output_tokens == 5


def test_reasoning() -> None:
    assert decoded(reasoning_effort="none").reasoning == Reasoning(enabled=False, effort="none")
    asked = decoded(chat_template_kwargs={"enable_thinking": False})
    assert asked.reasoning == Reasoning(enabled=False)
    assert asked.extras == (("chat_template_kwargs", Json('{"enable_thinking":false}')),)
    assert decoded(chat_template_kwargs={}).reasoning is None
    assert decoded(chat_template_kwargs=7).reasoning is None


def test_response_formats() -> None:
    assert decoded(response_format={"type": "text"}).response_format is None
    assert decoded(response_format={"type": "json_object"}).response_format == ResponseFormat("json_object")
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"}
    wanted = ResponseFormat("json_schema", "n", '{"type":"object"}', True, "d")
    assert decoded(response_format={"type": "json_schema", "json_schema": schema}).response_format == wanted
    local = decoded(response_format={"type": "json_object", "schema": {"type": "object"}}).response_format
    assert local == ResponseFormat("json_schema", "response", '{"type":"object"}')


# --- messages ------------------------------------------------------------------------------------------


def test_system_and_developer_messages_stay_where_they_are() -> None:
    request = decoded(
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b", "name": "bob"},
        {"role": "developer", "content": [{"type": "text", "text": "c", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "d", "cache_control": {"type": "ephemeral"}},
    )
    marker = Json('{"type":"ephemeral"}')
    assert request.messages == (
        Message("system", (TextPart("a"),)),
        Message("user", (TextPart("b"),), "bob"),
        Message("developer", (TextPart("c", marker),)),
        Message("system", (TextPart("d", marker),)),
    )


def test_parts() -> None:
    content = [
        {"type": "text", "text": "t"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
        {"type": "image_url", "image_url": "https://x.test/a.png"},
        {"type": "image_url", "image_url": {"url": "data:image/png,raw"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,QUJD", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "data:text/plain;charset=utf-8;base64,QUJD", "filename": "a.txt"}},
        {"type": "file", "file": {"file_data": "QUJD"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_url", "video_url": {"url": "x"}},
    ]
    (message,) = decoded({"role": "user", "content": content}).messages
    assert message.parts == (
        TextPart("t"),
        ImagePart("image/png", "QUJD", detail="low"),
        ImagePart(url="https://x.test/a.png"),
        ImagePart(url="data:image/png,raw"),
        AudioPart("QUJD", "mp3"),
        DocumentPart("application/pdf", "QUJD", name="a.pdf"),
        DocumentPart("text/plain", text="ABC", name="a.txt"),
        DocumentPart("application/pdf", "QUJD"),
        DocumentPart(file_id="file-1"),
        OpaquePart("openai-chat", "video_url", Json('{"type":"video_url","video_url":{"url":"x"}}')),
    )


def test_a_text_document_that_is_no_base64() -> None:
    file = {"type": "file", "file": {"file_data": "data:text/plain;base64,%%%"}}
    with pytest.raises(BadRequest, match="base64"):
        decoded({"role": "user", "content": [file]})


def test_a_tool_turn() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": 2, "type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
        {"id": "c3", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
    ]
    request = decoded(
        {"role": "assistant", "content": "", "reasoning_content": "hm", "refusal": "no", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "r1"},
        {"role": "tool", "tool_call_id": 2, "content": [{"type": "text", "text": "r2"}]},
        {"role": "tool", "tool_call_id": "c3", "content": None},
        {"role": "user", "content": "so?"},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "refusal", "refusal": "y"}]},
        {"role": "tool", "tool_call_id": "late", "content": "r"},
    )
    assert request.messages == (
        Message(
            "assistant",
            (
                ThinkingPart("hm"),
                RefusalPart("no"),
                ToolCallPart("c1", "f", '{"a": 1}'),
                ToolCallPart("2", "g", '{"b":2}'),
                ToolCallPart("c3", "sh", "ls", custom=True),
            ),
        ),
        Message(
            "user",
            (
                ToolResultPart("c1", (TextPart("r1"),)),
                ToolResultPart("2", (TextPart("r2"),)),
                ToolResultPart("c3"),
            ),
        ),
        Message("user", (TextPart("so?"),)),
        Message("assistant", (TextPart("x"), RefusalPart("y"))),
        Message("user", (ToolResultPart("late", (TextPart("r"),)),)),
    )


def test_legacy_functions() -> None:
    request = decoded(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
        functions=[{"name": "f", "parameters": {"type": "object"}}],
        function_call={"name": "f"},
    )
    assert request.tools == (Tool("f", parameters='{"type":"object"}'),)
    assert request.tool_choice == ToolChoice("named", "f")
    call, result = request.messages[0].parts[0], request.messages[1].parts[0]
    assert isinstance(call, ToolCallPart)
    assert isinstance(result, ToolResultPart)
    assert call.call_id == result.call_id != ""


# --- tools ---------------------------------------------------------------------------------------------


def test_tools() -> None:
    request = decoded(
        tools=[
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}, "strict": True}},
            {"type": "custom", "custom": {"name": "sh", "description": "run", "format": {"type": "text"}}},
            {"type": "custom", "custom": {"name": "raw"}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search", "x": 1},
        ]
    )
    assert request.tools == (
        Tool("f", "d", "{}", True),
        Tool("sh", "run", custom=True, format=Json('{"type":"text"}')),
        Tool("raw", custom=True, cache_control=Json('{"type":"ephemeral"}')),
        Tool("web_search", opaque=OpaquePart("openai-chat", "web_search", Json('{"type":"web_search","x":1}'))),
    )


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f")),
        ({"type": "custom", "custom": {"name": "sh"}}, ToolChoice("named", "sh")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "mcp"}],
                },
            },
            ToolChoice("allowed", allowed=("f",), required=True),
        ),
    ],
)
def test_tool_choices(choice: Any, wanted: ToolChoice) -> None:
    assert decoded(tool_choice=choice).tool_choice == wanted


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": "m", ', None),
        (b"[]", None),
        (b'"x"', None),
        (b"\xff", None),
        (b"[" * 100000, None),
        (b'{"messages":[{"role":"user","content":"x"}]}', "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":"\xff"}', None),
        (b'{"model":"m","messages":[]}', "messages"),
        (b'{"model":"m","messages":{}}', "messages"),
        (b'{"model":"m","messages":[{"role":"banana","content":"x"}]}', "messages[0].role"),
        (b'{"model":"m","messages":[{"role":"user","content":7}]}', "messages[0].content"),
        (b'{"model":"m","messages":[{"role":"user","content":[{"text":"x"}]}]}', "type"),
        (b'{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c"}]}]}', "messages"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":"ten"}', "max_tokens"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"some"}', "tool_choice"),
        (b'{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"function"}}', "tool_choice"),
    ],
)
def test_bad_requests(body: bytes, param: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        CODEC.decode_request(body)
    assert caught.value.param == param
    assert caught.value.message
