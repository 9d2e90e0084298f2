"""Requests of any protocol in Anthropic's words."""

from __future__ import annotations

import json
from typing import Any

import msgspec
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
    Role,
    Sampling,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks, Target, ToolName, UpstreamCall

EPHEMERAL = {"type": "ephemeral"}
CACHED = Json('{"type":"ephemeral"}')
SCHEMA = '{"type":"object","properties":{"a":{"type":"string"}}}'


def say(role: Role, *parts: Part | str) -> Message:
    return Message(role, tuple(TextPart(part) if isinstance(part, str) else part for part in parts))


def encode(*messages: Message, quirks: Quirks | None = None, stream: bool = False, **members: Any) -> UpstreamCall:
    request = Request(members.pop("protocol", "openai-chat"), "asked", messages or (say("user", "x"),), **members)
    return CODEC.encode_request(request, Target("up", stream, quirks or Quirks()))


def body(*messages: Message, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(*messages, **members).body)
    return found


def turns(*messages: Message, **members: Any) -> list[tuple[str, Any]]:
    return [(turn["role"], turn["content"]) for turn in body(*messages, **members)["messages"]]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


# --- the call ---


def test_the_smallest_request() -> None:
    call = encode()
    assert (call.path, call.headers) == ("/v1/messages", [(b"anthropic-version", b"2023-06-01")])
    assert json.loads(call.body) == {
        "model": "up",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [text("x")]}],
    }
    assert (call.dropped, call.tool_names) == ((), {})
    assert body(stream=True)["stream"] is True
    assert body(max_output_tokens=8)["max_tokens"] == 8
    assert body(quirks=Quirks(default_max_tokens=99))["max_tokens"] == 99


# --- turns ---


def test_leading_system_text_goes_to_its_field() -> None:
    assert body(say("system", "a"), say("user", "x"))["system"] == "a"
    found = body(say("system", TextPart("a", CACHED), ""), say("developer", "b"), say("user", "x"))
    assert found["system"] == [{**text("a"), "cache_control": {"type": "ephemeral"}}, text("b")]
    call = encode(say("system", RefusalPart("no")), say("user", "x"))
    assert "system" not in json.loads(call.body)
    assert call.dropped == ("messages[0] RefusalPart in a system message",)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_media_out_of_place_are_refused_by_name(role: Role) -> None:
    for leading in ((), (say("user", "q"),)):
        with pytest.raises(Unsupported, match="ImagePart"):
            encode(*leading, say(role, ImagePart(url="http://x")), say("user", "x"))


def test_later_system_text_is_folded_and_never_hoisted() -> None:
    found = turns(say("user", "a"), say("system", "s"), say("user", "b"), say("assistant", "c"), say("developer", "t"))
    assert found == [("user", [text("a"), text("s"), text("b")]), ("assistant", [text("c")]), ("user", [text("t")])]


def test_system_text_never_stands_between_a_call_and_its_result() -> None:
    call = say("assistant", ToolCallPart("t", "f", "{}"))
    result = say("user", ToolResultPart("t", (TextPart("r"),)))
    for protocol in ("openai-chat", "anthropic"):
        found = turns(say("user", "q"), call, say("system", "s"), result, protocol=protocol)
        assert [role for role, _ in found] == ["user", "assistant", "user"]
        assert [block["type"] for block in found[2][1]] == ["tool_result", "text"]


def test_our_own_system_turns_stay_where_the_upstream_takes_them() -> None:
    messages = (say("user", "a"), say("system", "s"))
    assert [role for role, _ in turns(*messages, protocol="anthropic")] == ["user", "system"]
    assert len(turns(*messages, protocol="anthropic", quirks=Quirks(mid_system=False))) == 1


def test_turns_of_one_role_are_merged_and_empty_text_is_dropped() -> None:
    found = turns(say("user", "a"), say("user", "", "b"), say("assistant", ""), say("user", "c"))
    assert found == [("user", [text("a"), text("b"), text("c")])]


def test_the_first_turn_is_the_users() -> None:
    call = encode(say("assistant", "a"), say("user", "b"))
    assert [turn["role"] for turn in json.loads(call.body)["messages"]] == ["user", "assistant", "user"]
    assert call.dropped == ("messages (a user turn was put first)",)
    assert turns(say("system", "only")) == [("user", [text(".")])]


def test_a_prefill_does_not_end_in_white_space() -> None:
    assert turns(say("user", "q"), say("assistant", "a "))[1] == ("assistant", [text("a")])
    assert len(turns(say("user", "q"), say("assistant", " "))) == 1
    assert len(turns(say("user", "q"), say("assistant", ToolCallPart("t", "f", "{}"), " "))[1][1]) == 1


def test_results_come_first_in_the_order_of_their_calls() -> None:
    calls = say("assistant", "", ToolCallPart("a", "f", '{"x":"y"}'), ToolCallPart("b", "g", ""))
    found = turns(
        say("user", "q"),
        calls,
        say("user", ToolResultPart("b", (TextPart("2"),), True)),
        say("user", "and", ToolResultPart("zz"), ToolResultPart("a", (TextPart("1"), TextPart("1b")))),
    )
    assert found[1][1] == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "y"}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]
    assert found[2][1] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [text("1"), text("1b")]},
        {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
        {"type": "tool_result", "tool_use_id": "zz"},
        text("and"),
    ]
    orphan = turns(say("user", "x", ToolResultPart("t", (TextPart("", CACHED), TextPart("r", CACHED)))))[0][1]
    assert orphan[0]["content"] == [{**text("r"), "cache_control": {"type": "ephemeral"}}]


def test_ids_are_made_legal_and_pairs_stay() -> None:
    ids = ("functions.Bash:0", "functions_Bash_0", "x" * 90)
    found = turns(
        say("user", "q"),
        say("assistant", *[ToolCallPart(each, "f", "{}") for each in ids]),
        say("user", *[ToolResultPart(each) for each in ids]),
    )
    calls, results = [each["id"] for each in found[1][1]], [each["tool_use_id"] for each in found[2][1]]
    assert calls == results
    assert len(set(calls)) == 3
    assert calls[1] == ids[1]


@pytest.mark.parametrize("arguments", ["{", "[1]", "text", "null"])
def test_broken_arguments_are_kept_as_text(arguments: str) -> None:
    call = encode(say("user", "q"), say("assistant", ToolCallPart("t", "f", arguments)))
    assert json.loads(call.body)["messages"][1]["content"][0]["input"] == {"_raw": arguments}
    assert call.dropped == ("messages[1] arguments of t (no JSON object)",)


def test_only_signed_thinking_of_anthropic_goes_back() -> None:
    own = (ThinkingPart("h", "s", origin="anthropic"), ThinkingPart(encrypted="X", origin="anthropic"))
    foreign = (ThinkingPart("u"), ThinkingPart("v", "s", origin="openai-responses"), ThinkingPart(encrypted="Y"))
    call = encode(say("user", "q"), say("assistant", *own, *foreign, "a"))
    assert json.loads(call.body)["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "h", "signature": "s"},
        {"type": "redacted_thinking", "data": "X"},
        text("a"),
    ]
    assert call.dropped == ("messages[1] thinking",) * 3


def test_other_parts() -> None:
    assert turns(say("user", "q"), say("assistant", RefusalPart("no"), RefusalPart("")))[1][1] == [text("no")]
    own = OpaquePart("anthropic", "server_tool_use", Json('{"type":"server_tool_use"}'))
    call = encode(say("user", "q", own, OpaquePart("openai-responses", "item_reference", Json("{}"))))
    assert json.loads(call.body)["messages"][0]["content"][1] == {"type": "server_tool_use"}
    assert call.dropped == ("messages[0] item_reference",)
    with pytest.raises(Unsupported, match="video_url"):
        encode(say("user", "q", OpaquePart("openai-chat", "video_url", Json("{}"))))
    with pytest.raises(Unsupported):
        encode(say("user", AudioPart("QQ==", "wav")))
    cited = TextPart("a", citations=Json("[]"))
    assert "citations" not in turns(say("user", "q"), say("assistant", cited))[1][1][0]
    assert turns(say("user", "q"), say("assistant", cited), protocol="anthropic")[1][1][0]["citations"] == []


# --- media ---


def media(kind: str, media_type: str, data: str, source: str = "base64", **members: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": source, "media_type": media_type, "data": data}, **members}


PDF = media("document", "application/pdf", "QQ==")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            ImagePart("image/png", "QQ==", cache_control=CACHED),
            media("image", "image/png", "QQ==", cache_control=EPHEMERAL),
        ),
        (ImagePart(url="data:image/gif;base64,QQ=="), media("image", "image/gif", "QQ==")),
        (ImagePart(url="http://x"), {"type": "image", "source": {"type": "url", "url": "http://x"}}),
        (DocumentPart("application/pdf", "QQ==", name="a.pdf"), {**PDF, "title": "a.pdf"}),
        (DocumentPart(data="data:application/pdf;base64,QQ=="), PDF),
        (DocumentPart(url="data:application/pdf;base64,QQ=="), PDF),
        (DocumentPart("text/markdown", "aGk="), media("document", "text/plain", "hi", "text")),
        (DocumentPart(text="t", context="c"), media("document", "text/plain", "t", "text", context="c")),
        (DocumentPart(url="http://x"), {"type": "document", "source": {"type": "url", "url": "http://x"}}),
        (
            DocumentPart("application/x-search-result", text="t", name="n", context="http://x"),
            {"type": "search_result", "source": "http://x", "title": "n", "content": [{"type": "text", "text": "t"}]},
        ),
    ],
)
def test_media(part: Part, expected: dict[str, Any]) -> None:
    assert turns(say("user", part))[0][1] == [expected]


def test_media_that_is_refused() -> None:
    refused: list[tuple[Part, type[Exception]]] = [
        (ImagePart(file_id="f"), Unsupported),
        (DocumentPart(file_id="f"), Unsupported),
        (DocumentPart("application/zip", "QQ=="), Unsupported),
        (ImagePart(url="data:image/png,raw"), BadRequest),
        (DocumentPart("text/plain", "/w=="), BadRequest),
    ]
    for part, kind in refused:
        with pytest.raises(kind):
            encode(say("user", part))
    for part in (ImagePart(url="http://x"), DocumentPart(url="http://x")):
        with pytest.raises(Unsupported):
            encode(say("user", part), quirks=Quirks(images=False))
    assert turns(say("user", DocumentPart(text="t")), quirks=Quirks(images=False))
    assert turns(say("user", ImagePart(file_id="f")), protocol="anthropic")[0][1][0]["source"]["file_id"] == "f"
    assert encode(say("user", ImagePart(url="http://x", detail="high"))).dropped == ("messages[0] image detail",)
    assert encode(say("user", ImagePart(url="http://x", detail="auto"))).dropped == ()


# --- tools ---


def test_tools() -> None:
    found = body(tools=(Tool("f", "d", SCHEMA, cache_control=CACHED), Tool("g")))["tools"]
    assert found == [
        {"name": "f", "input_schema": json.loads(SCHEMA), "description": "d", "cache_control": {"type": "ephemeral"}},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("parameters", "expected", "named"),
    [
        ("{}", {"type": "object", "properties": {}}, False),
        ("null", {"type": "object", "properties": {}}, False),
        ('{"type":null,"properties":null}', {"type": "object", "properties": {}}, False),
        ('{"properties":{"a":{}}}', {"properties": {"a": {}}, "type": "object"}, False),
        ('{"type":"object","properties":[]}', {"type": "object", "properties": {}}, False),
        ('{"type":"string"}', {"type": "object", "properties": {}}, True),
        ('["x"]', {"type": "object", "properties": {}}, True),
        ("{", {"type": "object", "properties": {}}, True),
    ],
)
def test_schemas_are_objects(parameters: str, expected: dict[str, Any], named: bool) -> None:
    call = encode(tools=(Tool("f", parameters=parameters),))
    assert json.loads(call.body)["tools"][0]["input_schema"] == expected
    assert bool(call.dropped) == named


def test_names_namespaces_and_custom_tools() -> None:
    tools = (
        Tool("run", namespace="agents", parameters=SCHEMA),
        Tool("a.b", parameters=SCHEMA),
        Tool("patch", "Edit.", custom=True, format=Json('{"type":"grammar"}')),
        Tool("free", custom=True, format=Json("{}")),
        Tool("ls"),
    )
    history = (
        say("user", "q"),
        say(
            "assistant",
            ToolCallPart("1", "run", "{}", namespace="agents"),
            ToolCallPart("2", "patch", "+hi", custom=True),
        ),
    )
    call = encode(*history, tools=tools, tool_choice=ToolChoice("named", "run"))
    found = json.loads(call.body)
    names = [tool["name"] for tool in found["tools"]]
    assert (names[0], names[2:]) == ("agents__run", ["patch", "free", "ls"])
    assert call.tool_names == {
        "agents__run": ToolName("run", "agents"),
        names[1]: ToolName("a.b"),
        "patch": ToolName("patch", custom=True),
        "free": ToolName("free", custom=True),
    }
    assert found["tools"][2]["input_schema"]["required"] == ["input"]
    assert found["tools"][2]["description"].startswith("Edit.\n\nThe field `input`")
    assert [block["name"] for block in found["messages"][1]["content"]] == ["agents__run", "patch"]
    assert found["messages"][1]["content"][1]["input"] == {"input": "+hi"}
    assert found["tool_choice"] == {"type": "tool", "name": "agents__run"}


def test_tools_only_others_can_run() -> None:
    own = OpaquePart("anthropic", "web_search_20250305", Json('{"type":"web_search_20250305","name":"web_search"}'))
    other = OpaquePart("openai-responses", "web_search", Json("{}"))
    call = encode(tools=(Tool("", opaque=other), Tool("web_search", opaque=own)), tool_choice=ToolChoice("auto"))
    assert json.loads(call.body)["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]
    assert call.dropped == ("tools[0] web_search",)
    assert call.tool_names == {}


def test_what_tools_of_others_lose() -> None:
    tool = Tool("f", parameters=SCHEMA, strict=True, extras=(("defer_loading", Json("true")),))
    assert encode(tools=(tool,)).dropped == ("tools[0].strict", "tools[0].defer_loading")
    own = body(tools=(tool,), protocol="anthropic")["tools"][0]
    assert (own["strict"], own["defer_loading"]) == (True, True)


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (None, True, None),
        (ToolChoice("auto"), None, {"type": "auto"}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("required"), False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("named", "f"), None, {"type": "tool", "name": "f"}),
        (ToolChoice("allowed", allowed=("f",)), None, {"type": "auto"}),
        (ToolChoice("allowed", allowed=("f",), required=True), None, {"type": "any"}),
    ],
)
def test_tool_choice(choice: ToolChoice | None, parallel: bool | None, expected: object) -> None:
    found = body(tools=(Tool("f"), Tool("g")), tool_choice=choice, parallel_tool_calls=parallel)
    assert found.get("tool_choice") == expected
    assert len(found["tools"]) == (1 if choice and choice.mode == "allowed" else 2)


def test_tool_choice_without_tools() -> None:
    assert encode(tool_choice=ToolChoice("auto"), parallel_tool_calls=False).dropped == ()
    assert encode(tool_choice=ToolChoice("required")).dropped == ("tool_choice (no tools)",)


# --- sampling, format, thinking ---


def test_sampling() -> None:
    found = body(sampling=Sampling(temperature=0.5, top_k=4), stop=("a",))
    assert (found["temperature"], found["top_k"], found["stop_sequences"]) == (0.5, 4, ["a"])
    call = encode(sampling=Sampling(temperature=1.7, top_p=0.5, seed=1, logprobs=True, n=1), stop=(" ", "a"))
    found = json.loads(call.body)
    assert (found["temperature"], found["stop_sequences"]) == (1, ["a"])
    assert "top_p" not in found
    assert call.dropped == (
        "stop (white space only)",
        "temperature (above 1)",
        "top_p (beside temperature)",
        "seed",
        "logprobs",
    )
    assert encode(sampling=Sampling(temperature=0.5, top_p=1.0)).dropped == ()
    assert "stop_sequences" not in body(stop=("\n",))
    own = body(sampling=Sampling(temperature=1.7, top_p=0.5), stop=("\n",), protocol="anthropic")
    assert (own["temperature"], own["top_p"], own["stop_sequences"]) == (1.7, 0.5, ["\n"])
    with pytest.raises(Unsupported):
        encode(sampling=Sampling(n=2))


def test_response_format() -> None:
    schema = ResponseFormat("json_schema", "n", SCHEMA, True)
    wanted = {"type": "json_schema", "schema": json.loads(SCHEMA)}
    assert body(response_format=schema)["output_config"] == {"format": wanted}
    call = encode(say("system", "s"), say("user", "x"), response_format=ResponseFormat("json_object"))
    assert [block["text"][:7] for block in json.loads(call.body)["system"]] == ["s", "Respond"]
    assert call.dropped == ("response_format json_object (as an instruction)",)
    call = encode(response_format=schema, quirks=Quirks(response_format=False))
    assert json.loads(call.body)["system"].endswith(SCHEMA)
    assert "output_config" not in json.loads(call.body)


@pytest.mark.parametrize(
    ("reasoning", "thinking", "effort"),
    [
        (Reasoning(effort="minimal"), {"type": "adaptive"}, "low"),
        (Reasoning(effort="xhigh"), {"type": "adaptive"}, "xhigh"),
        (Reasoning(effort="none"), {"type": "disabled"}, None),
        (Reasoning(False), {"type": "disabled"}, None),
        (Reasoning(True), {"type": "adaptive"}, None),
        (Reasoning(True, budget_tokens=2000), {"type": "enabled", "budget_tokens": 2000}, None),
        (Reasoning(True, display="omitted"), {"type": "adaptive", "display": "omitted"}, None),
        (Reasoning(effort="silly"), {"type": "adaptive"}, None),
    ],
)
def test_reasoning(reasoning: Reasoning, thinking: object, effort: str | None) -> None:
    found = body(reasoning=reasoning)
    assert found["thinking"] == thinking
    assert found.get("output_config", {}).get("effort") == effort


def test_thinking_excludes_sampling_and_forced_calls() -> None:
    call = encode(reasoning=Reasoning(effort="high"), sampling=Sampling(temperature=0.2, top_p=1))
    assert "temperature" not in json.loads(call.body)
    assert call.dropped == ("temperature",)
    for choice in (
        ToolChoice("required"),
        ToolChoice("named", "f"),
        ToolChoice("allowed", allowed=("f",), required=True),
    ):
        call = encode(reasoning=Reasoning(effort="high"), tools=(Tool("f"),), tool_choice=choice)
        assert "thinking" not in json.loads(call.body)
        assert call.dropped == ("reasoning (a tool is forced)",)
    assert encode(reasoning=Reasoning(effort="silly")).dropped == ("reasoning effort silly",)


def test_what_is_not_carried_is_named() -> None:
    call = encode(
        metadata=Json("{}"),
        verbosity="low",
        keep_alive=Json('"5m"'),
        user="u",
        extras=(("logit_processor", Json("1")),),
    )
    assert json.loads(call.body)["metadata"] == {"user_id": "u"}
    assert call.dropped == ("metadata", "verbosity", "keep_alive", "logit_processor")


# --- our own protocol and back ---


def test_round_trip() -> None:
    wire = {
        "model": "up",
        "max_tokens": 5,
        "system": [
            text("x-anthropic-billing-header: a"),
            {**text("s"), "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [text("q"), {"type": "image", "source": {"type": "url", "url": "http://x"}}]},
            {"role": "system", "content": [text("mid")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "h ", "signature": "s"},
                    {"type": "redacted_thinking", "data": "X"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"z": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": "ok", "is_error": False},
                    {"type": "search_result", "source": "u", "title": "t", "content": [text("c")]},
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "eager_input_streaming": True}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
        "stop_sequences": ["a"],
        "temperature": 0.5,
        "thinking": {"type": "between_tools"},
        "output_config": {"effort": "high", "task_budget": 3, "format": {"type": "json_schema", "schema": {}}},
        "metadata": {"user_id": "u", "x": 1},
        "context_management": {"edits": []},
        "stream": True,
    }
    request = CODEC.decode_request(msgspec.json.encode(wire))
    call = CODEC.encode_request(request, Target("up", True))
    assert json.loads(call.body) == wire
    assert call.dropped == ()
    again = CODEC.decode_request(call.body)
    assert dict(again.extras) == dict(request.extras)
    assert msgspec.structs.replace(again, extras=request.extras) == request


def test_effort_without_thinking_stays_alone() -> None:
    found = body(reasoning=Reasoning(effort="turbo"), protocol="anthropic")
    assert (found["output_config"], "thinking" in found) == ({"effort": "turbo"}, False)
