"""Writing requests for Chat upstreams, and relaying those that came in Chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
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
from strom.protocols.codec import Quirks, Target, ToolName, UpstreamCall
from strom.protocols.openai_chat import CODEC

MARKER = Json('{"type":"ephemeral"}')
EMPTY = {"type": "object", "properties": {}}
HI = Message("user", (TextPart("hi"),))


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def system(words: str) -> Message:
    return Message("system", (TextPart(words),))


def send(
    *messages: Message, quirks: dict[str, Any] | None = None, stream: bool = False, **members: Any
) -> UpstreamCall:
    request = Request(**{"protocol": "anthropic", "model": "alias", "messages": messages or (HI,), **members})
    return CODEC.encode_request(request, Target("theirs", stream, Quirks(**(quirks or {}))))


def body(call: UpstreamCall) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(call.body)
    return sent


def messages(*given: Message, **members: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = body(send(*given, **members))["messages"]
    return sent


def test_a_plain_request() -> None:
    call = send()
    assert call.path == "/v1/chat/completions"
    assert body(call) == {"model": "theirs", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    assert (call.dropped, call.tool_names) == ((), {})


def test_streaming_asks_for_usage() -> None:
    assert body(send(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body(send(stream=True, quirks={"stream_usage": False}))


def test_every_parameter_that_is_set_is_sent() -> None:
    sampling = Sampling(0.5, 1, 7, 0.1, 3, 0, 1, 1.1, Json('{"5":1}'), True, 2)
    sent = body(send(sampling=sampling, max_output_tokens=8, stop=("a",), user="u", verbosity="low"))
    assert {name: sent[name] for name in sent if name not in ("model", "messages", "stream")} == {
        "max_tokens": 8,
        "stop": ["a"],
        "temperature": 0.5,
        "top_p": 1,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 3,
        "frequency_penalty": 0,
        "presence_penalty": 1,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": 2,
        "user": "u",
        "verbosity": "low",
    }
    assert body(send(max_output_tokens=8, quirks={"max_completion_tokens": True}))["max_completion_tokens"] == 8


def test_several_choices_come_from_chat_only() -> None:
    assert body(send(sampling=Sampling(n=2), protocol="openai-chat"))["n"] == 2
    with pytest.raises(Unsupported):
        send(sampling=Sampling(n=2))
    assert body(send(sampling=Sampling(n=1)))["n"] == 1


@pytest.mark.parametrize(
    ("reasoning", "effort"),
    [
        (Reasoning(effort="high"), "high"),
        (Reasoning(enabled=False, effort="high"), "none"),
        (Reasoning(enabled=True, budget_tokens=2000), "low"),
        (Reasoning(enabled=True, budget_tokens=8000), "medium"),
        (Reasoning(enabled=True, budget_tokens=16000), "high"),
        (Reasoning(enabled=True, budget_tokens=32000), "max"),
        (Reasoning(adaptive=True), None),
        (None, None),
    ],
)
def test_effort(reasoning: Reasoning | None, effort: str | None) -> None:
    assert body(send(reasoning=reasoning)).get("reasoning_effort") == effort


def test_response_formats() -> None:
    wanted = ResponseFormat("json_schema", "", '{"type":"object"}', True, "d")
    schema = {"name": "response", "schema": {"type": "object"}, "strict": True, "description": "d"}
    assert body(send(response_format=wanted))["response_format"] == {"type": "json_schema", "json_schema": schema}
    plain = ResponseFormat("json_object")
    assert body(send(response_format=plain))["response_format"] == {"type": "json_object"}
    unnamed = body(send(response_format=ResponseFormat("json_schema")))["response_format"]["json_schema"]
    assert unnamed == {"name": "response"}
    call = send(response_format=plain, quirks={"response_format": False})
    assert "response_format" not in body(call)
    assert call.dropped == ("response_format",)


def test_leftovers_go_to_their_own_protocol_only() -> None:
    extras = (("x", Json("[1]")), ("y", Json("2")))
    sent = body(send(extras=extras, metadata=Json('{"a":1}'), protocol="openai-chat"))
    assert (sent["x"], sent["y"], sent["metadata"]) == ([1], 2, {"a": 1})
    call = send(extras=extras, metadata=Json("{}"), keep_alive=Json("5"))
    assert call.dropped == ("x", "y", "metadata", "keep_alive")
    assert body(call) == body(send())


# --- messages ------------------------------------------------------------------------------------------


def test_system_messages() -> None:
    leading = [Message("system", (TextPart("a"), TextPart("b"))), Message("developer", (TextPart("c"),)), HI]
    assert messages(*leading)[0] == {"role": "system", "content": "a\n\nb\n\nc"}
    roles = [m["role"] for m in messages(*leading, protocol="openai-chat")]
    assert roles == ["system", "system", "user"]
    known = messages(*leading, protocol="openai-chat", quirks={"developer_role": True})
    assert [m["role"] for m in known] == ["system", "developer", "user"]


def test_the_billing_header_is_left_out() -> None:
    header = TextPart("x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli;")
    call = send(Message("system", (header, TextPart("rules"))), Message("system", (header,)), HI)
    assert body(call)["messages"][0] == {"role": "system", "content": "rules"}
    assert call.dropped == ("x-anthropic-billing-header",)


def test_a_system_message_in_the_middle() -> None:
    turns = [
        system("s"),
        HI,
        system("mid"),
        assistant(TextPart("a")),
        system("late"),
        user(TextPart("b")),
        system("end"),
    ]
    assert [m["role"] for m in messages(*turns)] == [
        "system",
        "user",
        "system",
        "assistant",
        "system",
        "user",
        "system",
    ]
    assert messages(*turns, quirks={"mid_system": False}) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi\n\nmid"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "late\n\nb\n\nend"},
    ]
    alone = [HI, assistant(TextPart("a")), system("end")]
    assert messages(*alone, quirks={"mid_system": False})[-1] == {"role": "user", "content": "end"}


def test_a_system_message_after_a_result_is_folded_into_it() -> None:
    turns = [
        HI,
        assistant(ToolCallPart("c", "f", "{}")),
        user(ToolResultPart("c", (TextPart("r"),))),
        system("mid"),
        assistant(TextPart("x")),
    ]
    assert messages(*turns, quirks={"mid_system": False})[2] == {
        "role": "tool",
        "content": "r\nmid",
        "tool_call_id": "c",
    }
    assert [m["role"] for m in messages(*turns)] == ["user", "assistant", "tool", "system", "assistant"]


def test_results_stand_behind_their_calls_in_order() -> None:
    turns = [
        user(TextPart("q")),
        assistant(TextPart("let me see"), ToolCallPart("t1", "f", '{"a":1}'), ToolCallPart("t2", "g", "")),
        user(
            TextPart("and now?"),
            ToolResultPart("t2", (TextPart("r2"), TextPart("more")), is_error=True),
            ToolResultPart("t1", (TextPart("r1"),)),
        ),
    ]
    assert messages(*turns)[1:] == [
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "content": "r1", "tool_call_id": "t1"},
        {"role": "tool", "content": "Error: r2\nmore", "tool_call_id": "t2"},
        {"role": "user", "content": "and now?"},
    ]


def test_a_missing_result_is_invented_and_a_stray_one_stays() -> None:
    turns = [HI, assistant(ToolCallPart("c", "f", "{}")), user(TextPart("go on"), ToolResultPart("stray"))]
    assert messages(*turns)[2:] == [
        {"role": "tool", "content": "[no result]", "tool_call_id": "c"},
        {"role": "tool", "content": "", "tool_call_id": "stray"},
        {"role": "user", "content": "go on"},
    ]


def test_results_of_the_same_id_in_two_turns() -> None:
    turn = [assistant(ToolCallPart("c", "f", "{}")), user(ToolResultPart("c", (TextPart("r"),)))]
    assert [m["role"] for m in messages(HI, *turn, *turn)] == ["user", "assistant", "tool", "assistant", "tool"]


def test_images_in_results_follow_in_a_user_message() -> None:
    result = ToolResultPart(
        "c",
        (
            TextPart("taken"),
            ImagePart("image/png", "QUJD"),
            DocumentPart("application/pdf", "QUJD"),
            DocumentPart(text="plain", name="a.txt"),
            OpaquePart("anthropic", "tool_reference", Json("{}")),
        ),
    )
    turns = [HI, assistant(ToolCallPart("c", "f", "{}")), user(result, TextPart("see?"))]
    call = send(*turns)
    assert body(call)["messages"][2:] == [
        {
            "role": "tool",
            "content": "taken\n[image attached below]\n[document attached below]\na.txt\nplain",
            "tool_call_id": "c",
        },
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
                {
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,QUJD"},
                },
                {"type": "text", "text": "see?"},
            ],
        },
    ]
    assert call.dropped == ("tool_reference in a tool result",)
    with pytest.raises(Unsupported, match="images and documents in tool results"):
        send(*turns, quirks={"images": False})


def test_parts_of_a_user_message() -> None:
    parts: list[Part] = [
        TextPart("t"),
        TextPart(""),
        ImagePart(url="https://x.test/a", detail="low"),
        AudioPart("QUJD", "wav"),
        DocumentPart("application/pdf", "QUJD", name="a.pdf"),
        DocumentPart("text/plain", "QUJD", name="n", context="c"),
        OpaquePart("anthropic", "search_result", Json("{}")),
        ThinkingPart("x"),
    ]
    call = send(user(*parts))
    (message,) = body(call)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "t"},
        {"type": "image_url", "image_url": {"url": "https://x.test/a", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        {"type": "text", "text": "n\nc\nABC"},
    ]
    assert call.dropped == ("search_result",)


def test_parts_of_chat_go_back_to_chat() -> None:
    video = OpaquePart("openai-chat", "video_url", Json('{"type":"video_url"}'))
    stored = DocumentPart(file_id="file-1")
    (message,) = messages(user(video, stored), protocol="openai-chat")
    assert message["content"] == [{"type": "video_url"}, {"type": "file", "file": {"file_id": "file-1"}}]


@pytest.mark.parametrize(
    "part",
    [
        ImagePart(file_id="f"),
        DocumentPart(file_id="f"),
        DocumentPart(url="https://x.test/a.pdf"),
    ],
)
def test_what_cannot_be_sent_is_refused(part: Part) -> None:
    with pytest.raises(Unsupported):
        send(user(part))


@pytest.mark.parametrize(
    "part", [ImagePart(url="u"), DocumentPart("application/pdf", "QUJD"), AudioPart("QUJD", "wav")]
)
def test_a_backend_of_text_only_refuses_the_rest(part: Part) -> None:
    with pytest.raises(Unsupported):
        send(user(part), quirks={"images": False})


def test_empty_messages_are_not_sent() -> None:
    turns = [
        user(TextPart("")),
        HI,
        assistant(),
        assistant(TextPart("")),
        assistant(ThinkingPart("x")),
        user(TextPart("b")),
    ]
    assert [m["content"] for m in messages(*turns)] == ["hi", "b"]


def test_assistant_turns() -> None:
    opaque = OpaquePart("anthropic", "server_tool_use", Json("{}"))
    call = send(HI, assistant(TextPart("a"), opaque, RefusalPart("b"), TextPart("c", MARKER)))
    assert body(call)["messages"][1] == {"role": "assistant", "content": "abc"}
    assert call.dropped == ("server_tool_use", "cache_control")


def test_reasoning_goes_back_within_the_tool_loop_only() -> None:
    old = assistant(ThinkingPart("old", signature="sig", origin="anthropic"), TextPart("a"))
    new = assistant(
        ThinkingPart("new"), ThinkingPart(encrypted="secret", origin="anthropic"), ToolCallPart("c", "f", "{}")
    )
    turns = [HI, old, user(TextPart("b")), new, user(ToolResultPart("c"))]
    sent = messages(*turns)
    assert "reasoning_content" not in sent[1]
    assert sent[3]["reasoning_content"] == "new"
    assert "sig" not in json.dumps(sent)
    assert "secret" not in json.dumps(sent)
    assert messages(*turns, quirks={"reasoning_field": "reasoning"})[3]["reasoning"] == "new"
    assert "reasoning_content" not in messages(*turns, quirks={"reasoning_field": ""})[3]
    assert messages(*turns, protocol="openai-chat")[1]["reasoning_content"] == "old"
    assert messages(assistant(ThinkingPart("x"), TextPart("y")))[0]["reasoning_content"] == "x"


def test_cache_markers() -> None:
    turns = [
        Message("system", (TextPart("s", MARKER),)),
        user(TextPart("a"), ImagePart(url="u", cache_control=MARKER)),
        assistant(ToolCallPart("c", "f", "{}", cache_control=MARKER)),
        user(ToolResultPart("c", (TextPart("r", MARKER),), cache_control=MARKER)),
    ]
    tools = (Tool("f", cache_control=MARKER),)
    call = send(*turns, tools=tools)
    assert call.dropped == ("cache_control",)
    assert b"ephemeral" not in call.body
    known = body(send(*turns, tools=tools, quirks={"cache_control": True}))
    marked = {"type": "ephemeral"}
    assert known["messages"][0]["content"] == [{"type": "text", "text": "s", "cache_control": marked}]
    assert known["messages"][1]["content"][1]["cache_control"] == marked
    assert known["messages"][3]["content"] == [{"type": "text", "text": "r", "cache_control": marked}]
    assert known["tools"][0]["cache_control"] == marked


def test_arguments_and_ids_of_the_history() -> None:
    long_id = "c" * 70
    turns = [HI, assistant(ToolCallPart(long_id, "f", "not json")), user(ToolResultPart(long_id))]
    sent = messages(*turns)
    call = sent[1]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"_raw": "not json"}
    assert len(call["id"]) <= 64
    assert call["id"] == sent[2]["tool_call_id"]


# --- tools ---------------------------------------------------------------------------------------------


def test_tools() -> None:
    tools = (
        Tool("f", "d", '{"type":"object","properties":{"a":{}}}', True),
        Tool("g"),
        Tool("h", parameters='{"type":"object"}'),
        Tool("i", parameters='{"$ref":"#/x"}'),
        Tool("j", parameters='{"type":"string"}'),
        Tool("k", parameters="[]"),
        Tool("web", opaque=OpaquePart("anthropic", "web_search_20250305", Json("{}"))),
    )
    call = send(tools=tools, parallel_tool_calls=False)
    sent = body(call)
    assert sent["tools"][0]["function"] == {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {}}},
        "strict": True,
    }
    assert [tool["function"]["parameters"] for tool in sent["tools"][1:]] == [
        EMPTY,
        EMPTY,
        {"$ref": "#/x"},
        {"type": "string"},
        [],
    ]
    assert sent["parallel_tool_calls"] is False
    assert call.dropped == ("tools[6] web_search_20250305",)
    only = send(tools=tools[6:], tool_choice=ToolChoice("auto"), parallel_tool_calls=True)
    assert body(only).keys() == {"model", "messages", "stream"}


def test_names_are_made_legal_and_given_back() -> None:
    long = "mcp__" + "x" * 80
    tools = (Tool(long), Tool("a.b"), Tool("a_b"), Tool("ok"), Tool("run", namespace="box"))
    history = [HI, assistant(ToolCallPart("c", "a.b", "{}"), ToolCallPart("d", "gone!", "{}"))]
    call = send(*history, tools=tools, tool_choice=ToolChoice("named", long))
    sent = body(call)
    names = [tool["function"]["name"] for tool in sent["tools"]]
    assert names[2:] == ["a_b", "ok", "box__run"]
    assert all(len(name) <= 64 for name in names)
    assert len(set(names)) == 5
    assert sent["tool_choice"]["function"]["name"] == names[0]
    called = [one["function"]["name"] for one in sent["messages"][1]["tool_calls"]]
    assert called == [names[1], "gone_"]
    assert call.tool_names == {
        names[0]: ToolName(long),
        names[1]: ToolName("a.b"),
        "box__run": ToolName("run", "box"),
        "gone_": ToolName("gone!"),
    }


def test_custom_tools_go_out_as_functions() -> None:
    tools = (Tool("sh", "run", custom=True, format=Json('{"type":"grammar"}')), Tool("raw", custom=True))
    history = [HI, assistant(ToolCallPart("c", "sh", 'say "x"', custom=True))]
    call = send(*history, tools=tools, tool_choice=ToolChoice("named", "sh"), protocol="openai-responses")
    sent = body(call)
    parameters = sent["tools"][0]["function"]["parameters"]
    assert parameters["required"] == ["input"]
    assert "grammar" in parameters["properties"]["input"]["description"]
    assert json.loads(sent["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"input": 'say "x"'}
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "sh"}}
    assert call.tool_names == {"sh": ToolName("sh", custom=True), "raw": ToolName("raw", custom=True)}


def test_custom_tools_of_chat_stay() -> None:
    tools = (
        Tool("sh", custom=True, format=Json('{"type":"text"}')),
        Tool("raw", custom=True),
        Tool("x", opaque=OpaquePart("openai-chat", "x", Json('{"type":"x"}'))),
    )
    history = [HI, assistant(ToolCallPart("c", "sh", "ls", custom=True))]
    call = send(*history, tools=tools, tool_choice=ToolChoice("named", "sh"), protocol="openai-chat")
    sent = body(call)
    assert sent["tools"] == [
        {"type": "custom", "custom": {"name": "sh", "format": {"type": "text"}}},
        {"type": "custom", "custom": {"name": "raw"}},
        {"type": "x"},
    ]
    assert sent["messages"][1]["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]
    assert sent["tool_choice"] == {"type": "custom", "custom": {"name": "sh"}}
    assert call.tool_names == {}


TWO = (Tool("f"), Tool("g"))


@pytest.mark.parametrize(
    ("choice", "sent", "names"),
    [
        (ToolChoice("auto"), "auto", ["f", "g"]),
        (ToolChoice("none"), "none", ["f", "g"]),
        (ToolChoice("required"), "required", ["f", "g"]),
        (ToolChoice("named", "f"), {"type": "function", "function": {"name": "f"}}, ["f", "g"]),
        (ToolChoice("named", "gone"), None, ["f", "g"]),
        (ToolChoice("allowed", allowed=("g",)), "auto", ["g"]),
        (ToolChoice("allowed", allowed=("g",), required=True), "required", ["g"]),
    ],
)
def test_tool_choices(choice: ToolChoice, sent: Any, names: list[str]) -> None:
    given = body(send(tools=TWO, tool_choice=choice))
    assert given.get("tool_choice") == sent
    assert [tool["function"]["name"] for tool in given["tools"]] == names


def test_allowed_tools_of_chat_stay() -> None:
    given = body(send(tools=TWO, tool_choice=ToolChoice("allowed", allowed=("g",)), protocol="openai-chat"))
    assert given["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]},
    }
    assert len(given["tools"]) == 2


@pytest.mark.parametrize(
    ("choice", "names", "dropped"),
    [
        (ToolChoice("none"), None, ()),
        (ToolChoice("named", "g"), ["g"], ()),
        (ToolChoice("allowed", allowed=("f",)), ["f"], ()),
        (ToolChoice("auto"), ["f", "g"], ()),
        (ToolChoice("required"), ["f", "g"], ("tool_choice",)),
    ],
)
def test_a_backend_without_tool_choice(choice: ToolChoice, names: list[str] | None, dropped: tuple[str, ...]) -> None:
    for protocol in ("anthropic", "openai-chat"):
        call = send(tools=TWO, tool_choice=choice, quirks={"tool_choice": False}, protocol=protocol)
        given = body(call)
        assert "tool_choice" not in given
        tools = [tool["function"]["name"] for tool in given["tools"]] if "tools" in given else None
        assert (tools, call.dropped) == (names, dropped)


# --- relay ---------------------------------------------------------------------------------------------


def relayed(raw: bytes, *, stream: bool = True, **quirks: Any) -> bytes:
    request = CODEC.decode_request(raw)
    return CODEC.relay_request(raw, request, Target("theirs", stream, Quirks(**quirks))).body


def test_the_clients_bytes_stay() -> None:
    inner = b'[ {"role":"user","content":"h\\u0069", "x": {"a": [1, null]}} ]'
    raw = b'{"model": "alias", "messages": ' + inner + b', "x": 1.50 , "stream": true, "temperature": null}'
    out = relayed(raw)
    assert out.startswith(b'{"model":"theirs","messages":' + inner + b',"x":1.50,"stream":true')
    assert json.loads(out)["stream_options"] == {"include_usage": True}
    assert b"temperature" not in out


def test_the_stream_switch_is_ours() -> None:
    head = b'{"model":"a","messages":[{"role":"developer","content":"x"}]'
    assert "stream" not in json.loads(relayed(head + b"}", stream=False))
    out = json.loads(relayed(head + b',"stream":true,"stream_options":{"include_usage":true}}', stream=False))
    assert (out["stream"], "stream_options" in out) == (False, False)
    out = json.loads(relayed(head + b',"stream":false,"stream_options":null}'))
    assert (out["stream"], out["stream_options"]) == (True, {"include_usage": True})
    out = json.loads(relayed(head + b',"stream_options":{"include_usage":false,"x":1}}'))
    assert out["stream_options"] == {"include_usage": True, "x": 1}
    assert "stream_options" not in json.loads(relayed(head + b"}", stream_usage=False))


def test_a_body_that_is_no_object_is_refused() -> None:
    request = CODEC.decode_request(b'{"model":"a","messages":[{"role":"user","content":"x"}]}')
    with pytest.raises(BadRequest):
        CODEC.relay_request(b"[]", request, Target("theirs", stream=True))
