"""Canonical requests → /api/chat, and the relay of Ollama's own."""

from __future__ import annotations

import json
from base64 import b64encode
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
    ToolName,
    ToolResultPart,
)
from strom.core.tool_names import WRAPPER_SCHEMA
from strom.protocols.codec import Quirks, Target, UpstreamCall
from strom.protocols.ollama import CODEC, GENERATE_CODEC

TARGET = Target("up", stream=True)
MARK = Json('{"type":"ephemeral"}')
HI = Message("user", (TextPart("hi"),))


def encode(*messages: Message, target: Target = TARGET, protocol: str = "openai-chat", **members: Any) -> UpstreamCall:
    return CODEC.encode_request(Request(protocol, "asked", messages or (HI,), **members), target)


def body(call: UpstreamCall) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(call.body)
    return value


def sent(*messages: Message, target: Target = TARGET, protocol: str = "openai-chat") -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = body(encode(*messages, target=target, protocol=protocol))["messages"]
    return value


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def system(text: str) -> Message:
    return Message("system", (TextPart(text),))


def test_the_least_request() -> None:
    call = encode()
    assert call.path == "/api/chat"
    assert body(call) == {"model": "up", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    assert call.dropped == ()
    assert body(encode(target=Target("up", stream=False)))["stream"] is False


# --- messages ----------------------------------------------------------------------------------------


def test_leading_system_texts_become_one() -> None:
    messages = (
        system("a"),
        Message("developer", (TextPart("b"), TextPart("c"))),
        HI,
        Message("developer", (TextPart("d"),)),
        HI,
    )
    assert sent(*messages) == [
        {"role": "system", "content": "a\n\nb\n\nc"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "d"},
        {"role": "user", "content": "hi"},
    ]


def test_a_later_system_text_where_the_template_takes_none() -> None:
    target = Target("up", stream=True, quirks=Quirks(mid_system=False))
    said = sent(system("a"), HI, system("b"), assistant(TextPart("x")), system("c"), system(""), target=target)
    assert [(message["role"], message["content"]) for message in said] == [
        ("system", "a"), ("user", "hi\n\nb"), ("assistant", "x"), ("user", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mid_system", "roles"), [(True, "user assistant tool system user"), (False, "user assistant tool user")]
)
def test_a_system_text_never_stands_between_a_call_and_its_result(mid_system: bool, roles: str) -> None:
    target = Target("up", stream=True, quirks=Quirks(mid_system=mid_system))
    said = sent(
        HI,
        assistant(ToolCallPart("1", "f", "")),
        system("s"),
        user(ToolResultPart("1", (TextPart("r"),))),
        user(TextPart("next")),
        target=target,
    )
    assert " ".join(message["role"] for message in said) == roles
    assert "s" in said[3 if mid_system else 2]["content"]


def test_a_deferred_system_text_is_not_lost() -> None:
    assert sent(assistant(ToolCallPart("1", "f", "")), system("s"))[-1] == {"role": "system", "content": "s"}
    said = sent(assistant(ToolCallPart("1", "f", "")), system("s"), assistant(TextPart("x")))
    assert [message["role"] for message in said] == ["assistant", "system", "assistant"]


def test_results_name_their_tool_and_stand_in_the_order_of_the_calls() -> None:
    said = sent(
        assistant(TextPart("I "), TextPart("look"), ToolCallPart("1", "f", '{"a": 1}'), ToolCallPart("2", "g", "")),
        user(
            TextPart("so?"),
            ToolResultPart("2", (TextPart("two"), TextPart("lines")), is_error=True),
            ToolResultPart("1", (TextPart("one"),)),
            ToolResultPart("9", name="gone away"),
            ToolResultPart("8", (TextPart("Error x"),), is_error=True),
        ),
    )
    assert said == [
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [
                {"function": {"name": "f", "arguments": {"a": 1}}},
                {"function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "one", "tool_name": "f"},
        {"role": "tool", "content": "Error: two\nlines", "tool_name": "g"},
        {"role": "tool", "content": "", "tool_name": said[3]["tool_name"]},
        {"role": "tool", "content": "Error x"},
        {"role": "user", "content": "so?"},
    ]
    assert said[3]["tool_name"].startswith("gone_away")


def test_arguments_that_are_no_object() -> None:
    said = sent(assistant(ToolCallPart("1", "f", "{no"), ToolCallPart("2", "g", "raw", custom=True)))
    assert [entry["function"]["arguments"] for entry in said[0]["tool_calls"]] == [{"_raw": "{no"}, {"input": "raw"}]


def test_thinking_goes_back_within_the_current_loop_only() -> None:
    turn = (
        HI,
        assistant(ThinkingPart("old"), TextPart("a")),
        HI,
        assistant(ThinkingPart("new", encrypted="e"), ToolCallPart("1", "f", "")),
    )
    call = encode(*turn, user(ToolResultPart("1")))
    assert [message.get("thinking") for message in body(call)["messages"]] == [None, None, None, "new", None]
    assert call.dropped == ("encrypted thinking",)
    assert [message.get("thinking") for message in sent(*turn, protocol="ollama")] == [None, "old", None, "new"]
    assert sent(assistant(ThinkingPart("t"))) == [{"role": "assistant", "content": "", "thinking": "t"}]


def test_empty_messages_are_not_sent() -> None:
    assert sent(HI, assistant(TextPart("")), user(TextPart("")), HI) == [{"role": "user", "content": "hi"}] * 2
    with pytest.raises(BadRequest, match="nothing to say"):
        encode(assistant(TextPart("")))


def test_images_are_raw_base64() -> None:
    parts = (
        TextPart("what?"),
        ImagePart("image/png", "AAAA"),
        ImagePart(url="data:image/png;base64,BBBB", detail="low"),
    )
    call = encode(user(*parts, ToolResultPart("1", (TextPart("r"), ImagePart("image/png", "CCCC")))))
    assert body(call)["messages"] == [
        {"role": "tool", "content": "r", "images": ["CCCC"]},
        {"role": "user", "content": "what?", "images": ["AAAA", "BBBB"]},
    ]
    assert call.dropped == ("image detail",)


@pytest.mark.parametrize(
    ("part", "error", "says"),
    [
        (ImagePart(url="https://x/y.png"), Unsupported, "by address"),
        (ImagePart(file_id="f"), Unsupported, "by file id"),
        (ImagePart(url="data:image/png,x"), BadRequest, "base64"),
        (AudioPart("x", "wav"), Unsupported, "audio"),
        (DocumentPart("application/pdf", "AAAA"), Unsupported, "application/pdf"),
        (DocumentPart(file_id="f"), Unsupported, "this kind"),
        (DocumentPart(url="data:application/pdf;base64,AAAA"), Unsupported, "application/pdf"),
        (DocumentPart("text/plain", "AAA"), BadRequest, "base64 text"),
        (DocumentPart("text/plain", b64encode(b"\xff").decode()), BadRequest, "base64 text"),
    ],
)
def test_what_the_model_would_have_to_see_is_refused(part: Part, error: type, says: str) -> None:
    with pytest.raises(error, match=says) as raised:
        encode(user(part))
    assert "messages[0]" in str(raised.value)


def test_images_where_the_backend_takes_none() -> None:
    with pytest.raises(Unsupported, match="text only"):
        encode(user(ImagePart("image/png", "AAAA")), target=Target("up", stream=True, quirks=Quirks(images=False)))


def test_documents_that_are_text() -> None:
    plain = DocumentPart(text="body", name="n.txt", context="c")
    coded = DocumentPart("text/plain", b64encode(b"coded").decode())
    uri = DocumentPart(data="data:text/markdown;base64," + b64encode(b"uri").decode())
    assert sent(user(plain, coded, uri))[0]["content"] == "n.txt\nc\nbody\n\ncoded\n\nuri"


def test_what_is_lost_is_named_once() -> None:
    call = encode(
        Message("user", (TextPart("a", cache_control=MARK), TextPart("b", cache_control=MARK)), name="joe"),
        assistant(
            RefusalPart("No."),
            OpaquePart("anthropic", "server_tool_use", Json("{}")),
            ToolCallPart("1", "f", "", cache_control=MARK),
        ),
        user(ToolResultPart("1", cache_control=MARK), ThinkingPart("x")),
    )
    assert call.dropped == (
        "name of a message", "cache_control", "messages[1] server_tool_use", "messages[2] ThinkingPart in this place",
    )  # fmt: skip
    assert body(call)["messages"][1]["content"] == "No."


# --- tools -------------------------------------------------------------------------------------------

TOOLS = (Tool("f", "d", '{"type":"object","properties":{}}'), Tool("g"))


def names(**members: Any) -> tuple[list[str], tuple[str, ...]]:
    call = encode(**members)
    return [tool["function"]["name"] for tool in body(call).get("tools", [])], call.dropped


def test_tools() -> None:
    assert body(encode(tools=TOOLS))["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "offered", "lost"),
    [
        (ToolChoice("auto"), ["f", "g"], ()),
        (ToolChoice("none"), [], ()),
        (ToolChoice("required"), ["f", "g"], ("tool_choice required",)),
        (ToolChoice("named", "g"), ["g"], ("tool_choice named (only this tool is offered)",)),
        (ToolChoice("allowed", allowed=("f",)), ["f"], ()),
        (ToolChoice("allowed", allowed=("f",), required=True), ["f"], ("tool_choice required",)),
    ],
)
def test_tool_choice(choice: ToolChoice, offered: list[str], lost: tuple[str, ...]) -> None:
    assert names(tools=TOOLS, tool_choice=choice) == (offered, lost)


def test_a_choice_of_a_tool_that_is_not_there() -> None:
    with pytest.raises(BadRequest, match="'z'"):
        encode(tools=TOOLS, tool_choice=ToolChoice("named", "z"))


def test_tools_of_other_kinds() -> None:
    opaque = OpaquePart("openai-responses", "web_search", Json("{}"))
    own = OpaquePart("ollama", "web", Json('{"type":"web"}'))
    tools = (
        Tool("web_search", opaque=opaque),
        Tool("web", opaque=own),
        Tool("patch", "Patches.", custom=True, format=Json('{"type":"text"}')),
        Tool("free", custom=True, format=Json('{"type":"text"}')),
        Tool("g", namespace="ns", strict=True, cache_control=MARK, extras=(("defer", Json("1")),)),
        Tool("h", parameters="[1]"),
        Tool("i", parameters="{no"),
    )
    call = encode(tools=tools, parallel_tool_calls=False)
    functions = [tool["function"] for tool in body(call)["tools"][1:]]
    assert body(call)["tools"][0] == {"type": "web"}
    assert functions[0]["parameters"] == json.loads(WRAPPER_SCHEMA)
    assert functions[0]["description"].startswith("Patches.\n\nThe field `input`")
    assert functions[1]["description"].startswith("The field `input`")
    assert [function["name"] for function in functions] == ["patch", "free", "ns__g", "h", "i"]
    assert call.tool_names == {
        "patch": ToolName("patch", "", custom=True),
        "free": ToolName("free", "", custom=True),
        "ns__g": ToolName("g", "ns"),
    }
    assert call.dropped == (
        "tools[0] web_search", "tools[4].strict", "cache_control", "tools[4].defer", "tools[5].parameters (no JSON object)",
        "tools[6].parameters (no JSON object)", "parallel_tool_calls",
    )  # fmt: skip


# --- everything else ---------------------------------------------------------------------------------


def test_limits_and_sampling_become_options() -> None:
    sampling = Sampling(0.5, 0.9, 40, 0.1, 7, 0.3, 0.2, 1.1)
    assert body(encode(max_output_tokens=9, stop=("a",), sampling=sampling))["options"] == {
        "num_predict": 9, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "seed": 7, "repeat_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "stop": ["a"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "format_"),
    [
        (ResponseFormat("json_object"), "json"),
        (ResponseFormat("json_schema", "n", '{"type":"object"}'), {"type": "object"}),
        (ResponseFormat("json_schema"), "json"),
    ],
)
def test_formats(wanted: ResponseFormat, format_: object) -> None:
    assert body(encode(response_format=wanted))["format"] == format_
    call = encode(response_format=wanted, target=Target("up", stream=True, quirks=Quirks(response_format=False)))
    assert "format" not in body(call)
    assert call.dropped == ("response_format",)


@pytest.mark.parametrize(
    ("reasoning", "think"),
    [
        (Reasoning(enabled=True), True),
        (Reasoning(enabled=False), False),
        (Reasoning(effort="none"), False),
        (Reasoning(effort="minimal"), "low"),
        (Reasoning(effort="xhigh"), "high"),
        (Reasoning(enabled=True, effort="max"), "max"),
        (Reasoning(enabled=True, budget_tokens=2000), "low"),
        (Reasoning(enabled=True, budget_tokens=8000), "medium"),
        (Reasoning(enabled=True, budget_tokens=30000), "high"),
        (Reasoning(summary="auto"), None),
    ],
)
def test_think(reasoning: Reasoning, think: object) -> None:
    assert body(encode(reasoning=reasoning)).get("think") == think


def test_an_effort_that_is_no_switch_or_unknown() -> None:
    call = encode(protocol="anthropic", reasoning=Reasoning(effort="high"))
    assert "think" not in body(call)
    assert call.dropped == ("reasoning effort",)
    assert body(encode(protocol="anthropic", reasoning=Reasoning(enabled=True, effort="high")))["think"] == "high"
    call = encode(reasoning=Reasoning(effort="extreme"))
    assert (body(call)["think"], call.dropped) == (True, ("reasoning effort extreme",))
    assert body(encode(protocol="ollama", reasoning=Reasoning(enabled=True, effort="extreme")))["think"] == "extreme"


def test_leftovers_are_named_and_our_own_are_sent() -> None:
    members: dict[str, Any] = {
        "sampling": Sampling(logit_bias=Json("{}"), logprobs=True, top_logprobs=2, n=1),
        "user": "joe",
        "metadata": Json("{}"),
        "verbosity": "low",
        "extras": (("truncate", Json("false")), ("options.num_ctx", Json("4096"))),
        "keep_alive": Json('"5m"'),
    }
    call = encode(**members)
    assert call.dropped == (
        "logit_bias", "logprobs", "top_logprobs", "user", "metadata", "verbosity", "truncate", "options.num_ctx",
    )  # fmt: skip
    assert body(call)["keep_alive"] == "5m"
    own = body(encode(protocol="ollama", **members))
    assert (own["truncate"], own["options"], own["logprobs"], own["top_logprobs"]) == (
        False,
        {"num_ctx": 4096},
        True,
        2,
    )


def test_several_choices_are_refused() -> None:
    with pytest.raises(Unsupported, match="n > 1"):
        encode(sampling=Sampling(n=2))


# --- the relay ---------------------------------------------------------------------------------------


def test_relay_keeps_the_bytes() -> None:
    kept = b'"options":{"num_ctx": 4096.0},"messages":[{"role":"user","content":"h\\u00e9"}],'
    raw = b'{"model":"x",' + kept + b'"think":null,"x":[1 ,2]}'
    call = CODEC.relay_request(raw, CODEC.decode_request(raw), TARGET)
    assert call == UpstreamCall("/api/chat", b'{"model":"up",' + kept + b'"x":[1 ,2],"stream":true}')
    raw = b'{"stream":true,"model":"x","prompt":"p","raw":true,"context":[1]}'
    call = GENERATE_CODEC.relay_request(raw, GENERATE_CODEC.decode_request(raw), Target("up", stream=False))
    assert call == UpstreamCall("/api/generate", b'{"stream":false,"model":"up","prompt":"p","raw":true,"context":[1]}')


def test_relay_of_what_is_no_object() -> None:
    with pytest.raises(BadRequest):
        CODEC.relay_request(b"[]", Request("ollama", "m", ()), TARGET)
