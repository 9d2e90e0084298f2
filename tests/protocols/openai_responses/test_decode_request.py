"""What a client's request becomes."""

from __future__ import annotations

import json
from pathlib import Path
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
    Part,
    Reasoning,
    RefusalPart,
    ResponseFormat,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
)
from strom.protocols.openai_responses import CODEC
from tests.protocols.openai_responses.frames import request
from tests.recordings import recordings_root


def user(*parts: dict[str, Any]) -> tuple[Part, ...]:
    return request(input=[{"role": "user", "content": list(parts)}]).messages[0].parts


def turns(*items: Any) -> list[tuple[str, list[str]]]:
    """Role and kinds of parts of every message."""
    messages = request(input=list(items)).messages
    return [
        (message.role, [type(part).__name__.removesuffix("Part") for part in message.parts]) for message in messages
    ]


def call(identity: str, **members: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": identity, "name": "f", "arguments": "{}", **members}


def output(identity: str, text: Any = "r") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": identity, "output": text}


OWN = "openai-responses"
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]}


class TestInput:
    def test_a_string_and_instructions(self) -> None:
        assert request(input="hi", instructions="Be brief.").messages == (
            Message("system", (TextPart("Be brief."),)),
            Message("user", (TextPart("hi"),)),
        )
        assert request(input="hi", instructions="").messages == (Message("user", (TextPart("hi"),)),)

    def test_instructions_as_items(self) -> None:
        assert [m.role for m in request(instructions=[{"role": "developer", "content": "x"}]).messages] == [
            "developer",
            "user",
        ]

    def test_messages_stay_where_they_stand(self) -> None:
        roles = ["developer", "user", "system", "assistant", "developer", "user"]
        assert [m.role for m in request(input=[{"role": role, "content": "x"} for role in roles]).messages] == roles

    def test_text_parts_of_every_name(self) -> None:
        kinds = ("input_text", "output_text", "text")
        assert user(*({"type": kind, "text": kind} for kind in kinds)) == tuple(TextPart(kind) for kind in kinds)
        assert request(input=[{"role": "user", "content": ["a"]}]).messages[0].parts == (TextPart("a"),)

    def test_refusals_and_reasoning_in_the_history(self) -> None:
        content = [{"type": "reasoning_text", "text": "t"}, {"type": "refusal", "refusal": "No."}]
        assert request(input=[{"role": "assistant", "content": content}]).messages[0].parts == (
            ThinkingPart("t"),
            RefusalPart("No."),
        )

    def test_images(self) -> None:
        data = "data:image/png;base64,QUJD"
        assert user(
            {"type": "input_image", "image_url": data, "detail": "low"},
            {"type": "input_image", "image_url": "https://x/y.png"},
            {"type": "input_image", "image_url": {"url": "https://x/z.png", "detail": "high"}},
            {"type": "input_image", "file_id": "file_1"},
        ) == (
            ImagePart("image/png", data="QUJD", detail="low"),
            ImagePart(url="https://x/y.png"),
            ImagePart(url="https://x/z.png", detail="high"),
            ImagePart(file_id="file_1"),
        )

    def test_files_and_audio(self) -> None:
        assert user(
            {"type": "input_file", "file_data": "data:text/csv;base64,QQ==", "filename": "a.csv"},
            {"type": "input_file", "file_data": "QQ=="},
            {"type": "input_file", "file_url": "https://x/a.pdf"},
            {"type": "input_file", "file_id": "file_1"},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
            {"type": "input_video", "x": 1},
        ) == (
            DocumentPart("text/csv", data="QQ==", name="a.csv"),
            DocumentPart("application/pdf", data="QQ=="),
            DocumentPart(url="https://x/a.pdf"),
            DocumentPart(file_id="file_1"),
            AudioPart("QQ==", "mp3"),
            OpaquePart("openai-responses", "input_video", Json('{"type": "input_video", "x": 1}')),
        )

    def test_no_input_is_allowed_only_where_something_stands_for_it(self) -> None:
        for name in ("prompt", "previous_response_id", "conversation"):
            assert request(input=None, **{name: "x"}).messages == ()
        with pytest.raises(BadRequest) as raised:
            request(input=None)
        assert raised.value.param == "input"


class TestTurns:
    def test_calls_that_no_output_sets_apart_belong_together(self) -> None:
        assert turns({"role": "user", "content": "x"}, call("c1"), call("c2"), output("c1"), output("c2")) == [
            ("user", ["Text"]),
            ("assistant", ["ToolCall", "ToolCall"]),
            ("user", ["ToolResult", "ToolResult"]),
        ]
        assert turns(call("c1"), output("c1"), call("c2"), output("c2"), {"role": "user", "content": "x"}) == [
            ("assistant", ["ToolCall"]),
            ("user", ["ToolResult"]),
            ("assistant", ["ToolCall"]),
            ("user", ["ToolResult"]),
            ("user", ["Text"]),
        ]

    def test_what_the_model_said_in_one_turn(self) -> None:
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]}
        assert turns(REASONING, said, call("c1"), REASONING, call("c2"), said) == [
            ("assistant", ["Thinking", "Text", "ToolCall", "Thinking", "ToolCall", "Text"])
        ]
        assert turns(said, said, REASONING, said) == [
            ("assistant", ["Text"]),
            ("assistant", ["Text"]),
            ("assistant", ["Thinking", "Text"]),
        ]

    def test_outputs(self) -> None:
        parts = [
            {"type": "input_text", "text": "t"},
            {"type": "input_image", "image_url": "data:image/png;base64,QQ=="},
        ]
        messages = request(
            input=[
                call("c1", id="fc_1", namespace="ns", arguments={"a": 1}),
                call("c2", arguments=None, call_id=None, id="fc_2"),
                output("c1", parts),
                output("c2", {"content": "x"}),
                output("c3", None),
                {"type": "custom_tool_call_output", "call_id": "c4", "output": "done"},
            ]
        ).messages
        assert messages[0].parts == (
            ToolCallPart("c1", "f", '{"a": 1}', namespace="ns", item_id="fc_1"),
            ToolCallPart("fc_2", "f", "", item_id="fc_2"),
        )
        assert messages[1].parts == (
            ToolResultPart("c1", (TextPart("t"), ImagePart("image/png", data="QQ=="))),
            ToolResultPart("c2", (TextPart('{"content": "x"}'),)),
            ToolResultPart("c3"),
            ToolResultPart("c4", (TextPart("done"),), custom=True),
        )

    def test_free_text_calls(self) -> None:
        item = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"}
        assert request(input=[item]).messages[0].parts == (ToolCallPart("c", "apply_patch", "*** Begin", custom=True),)

    @pytest.mark.parametrize(
        ("members", "part"),
        [
            ({}, ThinkingPart("s", origin=OWN, item_id="rs_1")),
            ({"content": None, "encrypted_content": "gAAA"}, ThinkingPart("s", "gAAA", "", OWN, "rs_1")),
            ({"content": [{"type": "reasoning_text", "text": "full"}]}, ThinkingPart("full", "", "", OWN, "rs_1")),
            ({"summary": [], "encrypted_content": "gAAA"}, ThinkingPart("", "", "gAAA", OWN, "rs_1")),
            ({"summary": []}, ThinkingPart(origin=OWN, item_id="rs_1")),
            ({"id": "rs_strom_1"}, ThinkingPart("s")),
            ({"encrypted_content": "strom.anthropic.signature.a.b"}, ThinkingPart("s", "a.b", "", "anthropic", "rs_1")),
            (
                {"summary": [], "encrypted_content": "strom.anthropic.redacted.x"},
                ThinkingPart("", "", "x", "anthropic", "rs_1"),
            ),
        ],
    )
    def test_reasoning_goes_back_to_its_maker(self, members: dict[str, Any], part: ThinkingPart) -> None:
        assert request(input=[{**REASONING, **members}]).messages[0].parts == (part,)

    def test_items_only_this_protocol_knows(self) -> None:
        items: list[dict[str, Any]] = [
            {"type": "item_reference", "id": "msg_1"},
            {"type": "local_shell_call", "call_id": "c", "action": {}},
            {"type": "local_shell_call_output", "id": "c", "output": "x"},
            {"type": "compaction", "encrypted_content": "e"},
        ]
        assert turns(*items) == [("assistant", ["Opaque", "Opaque"]), ("user", ["Opaque"]), ("assistant", ["Opaque"])]
        part = request(input=items).messages[0].parts[0]
        assert part == OpaquePart("openai-responses", "item_reference", Json(json.dumps(items[0])))


class TestTools:
    def test_functions_free_text_tools_and_hosted_ones(self) -> None:
        tools = request(
            tools=[
                {
                    "type": "function",
                    "name": "f",
                    "description": None,
                    "parameters": {"type": "object"},
                    "strict": True,
                },
                {"type": "function", "name": "g", "parameters": None, "defer_loading": True},
                {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
                {"type": "web_search", "external_web_access": True},
                {"type": "mcp", "name": "m"},
                {"type": "function", "function": {"name": "nested", "description": "d"}},
            ]
        ).tools
        assert [(tool.name, tool.custom, tool.strict) for tool in tools if tool.opaque is None] == [
            ("f", False, True),
            ("g", False, None),
            ("p", True, None),
            ("nested", False, None),
        ]
        assert tools[0].parameters == '{"type": "object"}'
        assert tools[1].extras == (("defer_loading", Json("true")),)
        assert tools[2].format is not None
        assert [(tool.name, tool.opaque.kind) for tool in tools if tool.opaque is not None] == [
            ("web_search", "web_search"),
            ("m", "mcp"),
        ]

    def test_namespaces_and_additional_tools(self) -> None:
        group = {
            "type": "namespace",
            "name": "functions",
            "tools": [{"type": "custom", "name": "exec"}, {"type": "function", "name": "f"}, {"type": "odd"}],
        }
        items = [{"type": "additional_tools", "role": "developer", "tools": [group]}, {"role": "user", "content": "x"}]
        asked = request(input=items, tools=[{"type": "function", "name": "f"}])
        assert [(tool.namespace, tool.name, tool.custom) for tool in asked.tools] == [
            ("", "f", False),
            ("functions", "exec", True),
            ("functions", "f", False),
            ("functions", "odd", False),
        ]
        assert len(asked.messages) == 1

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            ("auto", ToolChoice("auto")),
            ("none", ToolChoice("none")),
            ("required", ToolChoice("required")),
            ({"type": "function", "name": "f"}, ToolChoice("named", "f")),
            ({"type": "custom", "name": "p"}, ToolChoice("named", "p")),
            ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f")),
            (
                {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
                },
                ToolChoice("allowed", allowed=("f", "web_search"), required=True),
            ),
            ({"type": "allowed_tools", "mode": "auto"}, ToolChoice("allowed")),
        ],
    )
    def test_choice(self, choice: Any, wanted: ToolChoice) -> None:
        assert request(tool_choice=choice).tool_choice == wanted

    def test_a_choice_only_this_protocol_has_is_an_extra(self) -> None:
        asked = request(tool_choice={"type": "web_search_preview"})
        assert asked.tool_choice is None
        assert dict(asked.extras)["tool_choice"] == Json('{"type": "web_search_preview"}')


class TestFields:
    def test_all_that_have_a_place(self) -> None:
        asked = request(
            stream=True,
            max_output_tokens=9,
            temperature=0.5,
            top_p=1,
            top_logprobs=2,
            parallel_tool_calls=False,
            user="u",
            metadata={"a": "b"},
            text={
                "verbosity": "low",
                "format": {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True},
            },
            reasoning={"effort": "low", "summary": "auto"},
        )
        assert (asked.protocol, asked.model, asked.stream, asked.max_output_tokens) == (
            "openai-responses",
            "m",
            True,
            9,
        )
        assert (asked.sampling.temperature, asked.sampling.top_p, asked.sampling.top_logprobs) == (0.5, 1.0, 2)
        assert (asked.parallel_tool_calls, asked.user, asked.verbosity) == (False, "u", "low")
        assert asked.metadata == Json('{"a": "b"}')
        assert asked.response_format == ResponseFormat("json_schema", "n", '{"a": 1}', True)
        assert asked.reasoning == Reasoning(enabled=True, effort="low", summary="auto")
        assert asked.extras == ()

    def test_the_rest_is_kept_by_name(self) -> None:
        members = {
            "store": False,
            "previous_response_id": "resp_1",
            "background": True,
            "conversation": "conv_1",
            "include": ["reasoning.encrypted_content"],
            "x_custom": {"a": [1, 2]},
            "text": {"format": {"type": "text"}, "odd": 1},
            "reasoning": {"effort": "low", "context": "all"},
            "seed": 7,
        }
        kept = {name: json.loads(value.text) for name, value in request(**members, truncation=None).extras}
        assert kept == members

    def test_formats_and_reasoning(self) -> None:
        assert request(text={"format": {"type": "json_object"}}).response_format == ResponseFormat("json_object")
        assert request(text={"format": {"type": "text"}}).response_format is None
        assert request(text=None, reasoning={"effort": None}).reasoning is None
        assert request(reasoning={"effort": "none"}).reasoning == Reasoning(enabled=False, effort="none")

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            (b"", None),
            (b"[]", None),
            (b"{", None),
            (b"\xff", None),
            (b'{"model":"m","input":"\xff"}', None),
            (b'{"input":"x"}', "model"),
            (b'{"model":"m","input":"x","temperature":"hot"}', "temperature"),
            (b'{"model":"m","input":7}', "input"),
            (b'{"model":"m","input":[7]}', "input[0]"),
            (b'{"model":"m","input":[{}]}', "input[0]"),
            (b'{"model":"m","input":[{"role":"tool","content":"x"}]}', "input[0].role"),
            (b'{"model":"m","input":[{"role":"user","content":[{}]}]}', "input[0].content[0]"),
            (b'{"model":"m","input":[{"role":"user","content":[{"type":"input_text"}]}]}', "input[0].content[0].text"),
            (b'{"model":"m","input":[{"role":"user","content":[{"type":"input_image"}]}]}', "input[0].content[0]"),
            (b'{"model":"m","input":[{"role":"user","content":[{"type":"input_file"}]}]}', "input[0].content[0]"),
            (b'{"model":"m","input":[{"type":"function_call","call_id":"c"}]}', "input[0]"),
            (b'{"model":"m","input":[{"type":"function_call_output","output":"c"}]}', "input[0]"),
            (
                b'{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"refusal"}]}]}',
                "input[0].output",
            ),
            (b'{"model":"m","input":"x","tools":[{"type":"function"}]}', "tools[0].name"),
            (b'{"model":"m","input":"x","tool_choice":"maybe"}', "tool_choice"),
            (b'{"model":"m","input":"x","tool_choice":{"type":"function"}}', "tool_choice.name"),
            (b'{"model":"m","input":' + b"[" * 100_000, None),
        ],
    )
    def test_a_bad_request_names_its_place(self, body: bytes, param: str | None) -> None:
        with pytest.raises(BadRequest) as raised:
            CODEC.decode_request(body)
        assert raised.value.param == param
        assert raised.value.message


def test_requests_of_real_clients() -> None:
    folder = recordings_root().parent / "clients" / "requests"
    paths: list[Path] = sorted(folder.glob("*.json"))
    asked = {}
    for path in paths:
        exchange = json.loads(path.read_text())
        if exchange["path"] == "/v1/responses":
            asked[path.stem] = CODEC.decode_request(json.dumps(exchange["body"]).encode())
    assert len(asked) >= 13
    codex = asked["codex.tool_turn"]
    assert [m.role for m in codex.messages] == ["developer", "developer", "user", "user", "assistant", "user"]
    assert {tool.namespace for tool in codex.tools} == {"", "multi_agent_v1"}
    assert [tool.opaque.kind for tool in codex.tools if tool.opaque is not None] == ["web_search"]
    assert {"store", "include", "prompt_cache_key", "client_metadata"} <= dict(codex.extras).keys()
    for name, one in asked.items():
        if name.endswith("tool_turn"):
            assert isinstance(one.messages[-1].parts[0], ToolResultPart)
