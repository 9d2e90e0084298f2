"""A request in canonical form for a Responses upstream, and the client's own bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import Unsupported
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
from strom.protocols.codec import Quirks, Target, ToolName
from strom.protocols.openai_responses import CODEC
from tests.protocols.openai_responses.frames import request

HI = Message("user", (TextPart("hi"),))


def encode(
    *messages: Message, quirks: Quirks | None = None, protocol: str = "openai-chat", **members: Any
) -> dict[str, Any]:
    """The body; its `dropped` names stand in the member of that name."""
    asked = Request(protocol, "client-model", messages or (HI,), **members)
    call = CODEC.encode_request(asked, Target("up-model", stream=True, quirks=quirks or Quirks()))
    assert call.path == "/v1/responses"
    return {**json.loads(call.body), "dropped": list(call.dropped), "names": call.tool_names}


def items(*messages: Message, **members: Any) -> Any:
    return encode(*messages, **members)["input"]


def said(*parts: Part) -> Message:
    return Message("assistant", parts)


class TestFields:
    def test_the_least(self) -> None:
        body = encode()
        assert body == {
            "model": "up-model",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
            "store": False,
            "stream": True,
            "dropped": [],
            "names": {},
        }

    def test_everything_that_is_carried(self) -> None:
        body = encode(
            max_output_tokens=5,
            sampling=Sampling(temperature=0.5, top_p=0.25, top_logprobs=2, n=1),
            response_format=ResponseFormat("json_schema", "", '{"a":1}', True, "d"),
            reasoning=Reasoning(enabled=True, effort="high"),
            user="u",
            metadata=Json('{"a":"b"}'),
            verbosity="low",
        )
        assert (body["max_output_tokens"], body["temperature"], body["top_p"], body["top_logprobs"]) == (
            5,
            0.5,
            0.25,
            2,
        )
        schema = {"type": "json_schema", "name": "response", "description": "d", "schema": {"a": 1}, "strict": True}
        assert body["text"] == {"format": schema, "verbosity": "low"}
        assert (body["user"], body["metadata"], body["reasoning"]) == ("u", {"a": "b"}, {"effort": "high"})
        assert body["dropped"] == []

    def test_formats(self) -> None:
        assert encode(response_format=ResponseFormat("json_object"))["text"] == {"format": {"type": "json_object"}}
        bare = encode(response_format=ResponseFormat("json_schema", "n"))["text"]["format"]
        assert bare == {"type": "json_schema", "name": "n", "schema": {}}

    def test_everything_that_is_not_is_named(self) -> None:
        body = encode(
            stop=("x",),
            sampling=Sampling(
                top_k=1,
                min_p=0.1,
                seed=1,
                frequency_penalty=1,
                presence_penalty=1,
                repetition_penalty=1,
                logit_bias=Json("{}"),
                logprobs=True,
            ),
            keep_alive=Json("5"),
            extras=(("service_tier", Json('"auto"')),),
        )
        assert set(body["dropped"]) == {
            "service_tier",
            "stop",
            "top_k",
            "min_p",
            "seed",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "logit_bias",
            "logprobs",
            "keep_alive",
        }
        assert set(body) == {"model", "input", "store", "stream", "dropped", "names"}

    def test_several_choices_are_refused(self) -> None:
        with pytest.raises(Unsupported):
            encode(sampling=Sampling(n=2))

    @pytest.mark.parametrize(
        ("protocol", "reasoning", "wanted"),
        [
            ("anthropic", Reasoning(enabled=True, budget_tokens=1024), {"effort": "low", "summary": "auto"}),
            ("anthropic", Reasoning(enabled=True, budget_tokens=8000), {"effort": "medium", "summary": "auto"}),
            ("anthropic", Reasoning(enabled=True, budget_tokens=20_000), {"effort": "high", "summary": "auto"}),
            ("anthropic", Reasoning(enabled=True, budget_tokens=60_000), {"effort": "xhigh", "summary": "auto"}),
            ("anthropic", Reasoning(enabled=True, adaptive=True, effort="max", display="omitted"), {"effort": "max"}),
            ("anthropic", Reasoning(enabled=False), {"effort": "none"}),
            ("openai-chat", Reasoning(enabled=True, effort="low"), {"effort": "low"}),
            ("openai-chat", Reasoning(enabled=True), None),
            ("openai-responses", Reasoning(summary="auto"), {"summary": "auto"}),
        ],
    )
    def test_reasoning(self, protocol: str, reasoning: Reasoning, wanted: Any) -> None:
        assert encode(protocol=protocol, reasoning=reasoning).get("reasoning") == wanted

    def test_quirks(self) -> None:
        body = encode(
            quirks=Quirks(tool_choice=False, response_format=False),
            tools=(Tool("f"),),
            tool_choice=ToolChoice("required"),
            response_format=ResponseFormat("json_object"),
        )
        assert body["dropped"] == ["tool_choice", "response_format"]
        assert "text" not in body
        for part in (ImagePart(url="x"), DocumentPart(data="x"), AudioPart("x", "wav")):
            with pytest.raises(Unsupported):
                encode(Message("user", (part,)), quirks=Quirks(images=False))
        assert items(HI, Message("system", (TextPart("s"),)), quirks=Quirks(mid_system=False))[1]["role"] == "user"


class TestMessages:
    def test_leading_system_messages_are_the_instructions(self) -> None:
        first, second = Message("system", (TextPart("a"),)), Message("system", (TextPart("b"),))
        developer = Message("developer", (TextPart("c"),))
        body = encode(first, second, developer, HI, first)
        assert body["instructions"] == "a\n\nb"
        assert [item["role"] for item in body["input"]] == ["developer", "user", "system"]

    def test_parts_of_the_user(self) -> None:
        parts: tuple[Part, ...] = (
            TextPart("t"),
            ImagePart("image/png", data="QQ==", detail="low"),
            ImagePart(url="https://x"),
            ImagePart(file_id="file_1"),
            DocumentPart(data="QQ==", name="a.pdf"),
            DocumentPart("text/csv", data="QQ=="),
            DocumentPart(url="https://y"),
            DocumentPart(file_id="file_2"),
            DocumentPart(text="words", name="title"),
            AudioPart("QQ==", "mp3"),
            RefusalPart("no"),
            OpaquePart("openai-responses", "input_video", Json('{"type":"input_video"}')),
            OpaquePart("anthropic", "fallback", Json("{}")),
            ThinkingPart("x"),
        )
        body = encode(Message("user", parts))
        assert body["input"][0]["content"] == [
            {"type": "input_text", "text": "t"},
            {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "low"},
            {"type": "input_image", "image_url": "https://x", "detail": "auto"},
            {"type": "input_image", "file_id": "file_1", "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            {"type": "input_file", "filename": "document", "file_data": "data:text/csv;base64,QQ=="},
            {"type": "input_file", "file_url": "https://y"},
            {"type": "input_file", "file_id": "file_2"},
            {"type": "input_text", "text": "title\n\nwords"},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
            {"type": "input_text", "text": "no"},
            {"type": "input_video"},
        ]
        assert body["dropped"] == [
            "messages[0][12] fallback",
            "messages[0][13] (ThinkingPart out of its place)",
        ]

    def test_a_turn_of_the_model(self) -> None:
        message = said(
            TextPart("a"),
            RefusalPart("b"),
            ToolCallPart("c1", "f", ""),
            TextPart(""),
            ToolCallPart("c2", "p", "raw", custom=True),
            OpaquePart("openai-responses", "web_search_call", Json('{"type":"web_search_call"}')),
            OpaquePart("anthropic", "server_tool_use", Json("{}")),
            TextPart("z"),
        )
        body = encode(message)
        assert body["input"] == [
            {
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": []},
                    {"type": "refusal", "refusal": "b"},
                ],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "raw"},
            {"type": "web_search_call"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "z", "annotations": []}],
            },
        ]
        assert body["dropped"] == ["messages[0][6] server_tool_use"]
        assert items(said(TextPart(""))) == []

    def test_results(self) -> None:
        shell = OpaquePart("openai-responses", "local_shell_call_output", Json('{"type":"local_shell_call_output"}'))
        message = Message(
            "user",
            (
                ToolResultPart("c1", (TextPart("a"), TextPart("b"))),
                ToolResultPart("c2", (TextPart("bad"),), is_error=True),
                ToolResultPart("c3", (TextPart("t"), ImagePart(url="https://x")), is_error=True),
                ToolResultPart("c4", (TextPart("ok"),), custom=True),
                ToolResultPart("c5"),
                TextPart("and now?"),
                shell,
            ),
        )
        outputs = items(message)
        assert [item.get("output") for item in outputs[:5]] == [
            "a\nb",
            "Error: bad",
            [
                {"type": "input_text", "text": "Error:"},
                {"type": "input_text", "text": "t"},
                {"type": "input_image", "image_url": "https://x", "detail": "auto"},
            ],
            "ok",
            "",
        ]
        assert [item["type"] for item in outputs] == [
            *["function_call_output"] * 3,
            "custom_tool_call_output",
            "function_call_output",
            "local_shell_call_output",
            "message",
        ]

    def test_thinking_goes_back_to_its_maker_only(self) -> None:
        own = ThinkingPart("t", "gAAA", origin="openai-responses", item_id="rs_1")
        hidden = ThinkingPart(encrypted="gBBB", origin="openai-responses", item_id="rs_2")
        bare = ThinkingPart(origin="openai-responses", item_id="rs_3")
        body = encode(said(own, hidden, bare, ThinkingPart("x", "sig", origin="anthropic"), ThinkingPart("y")))
        assert body["input"] == [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "t"}],
                "encrypted_content": "gAAA",
            },
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBBB"},
            {"type": "reasoning", "id": "rs_3", "summary": []},
        ]
        assert body["dropped"] == ["thinking of earlier turns"]

    def test_long_call_ids_are_mapped_in_pairs(self) -> None:
        long = "call_" + "a" * 100
        result = Message("user", (ToolResultPart(long, (TextPart("r"),)), ToolResultPart("", (TextPart("s"),))))
        first, second, third = items(said(ToolCallPart(long, "f", "{}")), result)
        assert first["call_id"] == second["call_id"] != long
        assert len(first["call_id"]) <= 64
        assert third["call_id"]


class TestTools:
    def test_kinds(self) -> None:
        tools = (
            Tool("f", "d", '{"type":"object"}', strict=True),
            Tool("g", extras=(("odd", Json("1")),), cache_control=Json("{}")),
            Tool("p", "e", custom=True, format=Json('{"type":"text"}')),
            Tool("q", custom=True),
            Tool("web_search", opaque=OpaquePart("openai-responses", "web_search", Json('{"type":"web_search"}'))),
            Tool("bash", opaque=OpaquePart("anthropic", "bash_20250124", Json("{}")), cache_control=Json("{}")),
            Tool("h", cache_control=Json("{}")),
        )
        body = encode(tools=tools, parallel_tool_calls=False)
        empty = {"type": "object", "properties": {}}
        assert body["tools"] == [
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
            {"type": "function", "name": "g", "parameters": empty, "strict": False},
            {"type": "custom", "name": "p", "description": "e", "format": {"type": "text"}},
            {"type": "custom", "name": "q"},
            {"type": "web_search"},
            {"type": "function", "name": "h", "parameters": empty, "strict": False},
        ]
        assert body["dropped"] == ["tools[1].odd", "cache_control", "tools[5] bash_20250124"]
        assert body["parallel_tool_calls"] is False

    def test_own_tools_keep_what_they_say(self) -> None:
        body = encode(protocol="openai-responses", tools=(Tool("f", extras=(("defer_loading", Json("true")),)),))
        assert body["tools"][0] == {
            "type": "function",
            "name": "f",
            "parameters": {"type": "object", "properties": {}},
            "defer_loading": True,
        }

    def test_names_and_the_way_back(self) -> None:
        tools = (Tool("a.b"), Tool("f", namespace="ns"), Tool("ok"))
        history = said(ToolCallPart("c", "f", "{}", namespace="ns"), ToolCallPart("d", "gone.x", "{}"))
        body = encode(history, tools=tools, tool_choice=ToolChoice("named", "f"))
        names = [tool["name"] for tool in body["tools"]]
        assert names[1:] == ["ns__f", "ok"]
        assert body["names"] == {names[0]: ToolName("a.b"), "ns__f": ToolName("f", "ns")}
        assert body["input"][0]["name"] == "ns__f"
        assert body["input"][1]["name"].startswith("gone_x")
        assert body["tool_choice"] == {"type": "function", "name": "ns__f"}

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            (ToolChoice("auto"), "auto"),
            (ToolChoice("none"), "none"),
            (ToolChoice("required"), "required"),
            (ToolChoice("named", "p"), {"type": "custom", "name": "p"}),
            (
                ToolChoice("allowed", allowed=("f", "p"), required=True),
                {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}],
                },
            ),
            (
                ToolChoice("allowed", allowed=("f",)),
                {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ),
        ],
    )
    def test_choice(self, choice: ToolChoice, wanted: Any) -> None:
        assert encode(tools=(Tool("f"), Tool("p", custom=True)), tool_choice=choice)["tool_choice"] == wanted

    def test_a_choice_without_tools(self) -> None:
        assert encode(tool_choice=ToolChoice("auto"))["dropped"] == []
        assert encode(tool_choice=ToolChoice("required"))["dropped"] == ["tool_choice (no tools)"]


class TestOwnProtocol:
    def test_extras_come_back(self) -> None:
        asked = request(
            store=True,
            include=["x"],
            text={"verbosity": "low", "odd": 1},
            reasoning={"effort": "low", "context": "all"},
            x_custom=1,
        )
        body = json.loads(CODEC.encode_request(asked, Target("up", stream=False)).body)
        assert body["store"] is True
        assert (body["include"], body["x_custom"], body["stream"]) == (["x"], 1, False)
        assert body["text"] == {"verbosity": "low", "odd": 1}
        assert body["reasoning"] == {"effort": "low", "context": "all"}


class TestRelay:
    def send(self, body: bytes, *, stream: bool = True) -> bytes:
        call = CODEC.relay_request(body, CODEC.decode_request(body), Target("up", stream=stream))
        assert (call.path, call.dropped, call.tool_names) == ("/v1/responses", (), {})
        return call.body

    def test_bytes_stay_but_for_model_and_nulls(self) -> None:
        items = b'[ {"role":"user","content":"\\u00e9"} ]'
        body = b'{"model":"m", "input" : ' + items + b',"x_custom":{"a" : 1},"user":null,"stream":true}'
        assert self.send(body) == b'{"model":"up","input":' + items + b',"x_custom":{"a" : 1},"stream":true}'

    def test_stream_is_as_the_upstream_shall_do_it(self) -> None:
        assert json.loads(self.send(b'{"model":"m","input":"x"}'))["stream"] is True
        whole = self.send(
            b'{"model":"m","input":"x","stream":true,"stream_options":{"include_obfuscation":false}}', stream=False
        )
        assert json.loads(whole) == {"model": "up", "input": "x", "stream": False}
        assert "stream" not in json.loads(self.send(b'{"model":"m","input":"x"}', stream=False))

    def test_long_call_ids_are_mapped(self) -> None:
        long = "call_" + "a" * 100
        call = {"type": "function_call", "call_id": long, "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": long, "output": "1"}
        short = {**call, "call_id": "c"}
        body = json.dumps({"model": "m", "input": [call, output, short]}).encode()
        sent = json.loads(self.send(body))["input"]
        assert sent[0]["call_id"] == sent[1]["call_id"]
        assert len(sent[0]["call_id"]) <= 64
        assert sent[2] == short

    def test_legal_call_ids_leave_the_input_alone(self) -> None:
        items = b'[ {"type":"function_call", "call_id":"c","name":"f","arguments":"{}"} ]'
        assert items in self.send(b'{"model":"m","input":' + items + b"}")

    def test_reasoning_that_was_packed_for_another_is_left_out(self) -> None:
        packed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "strom.anthropic.redacted.x"}
        ours = {"type": "reasoning", "id": "rs_strom_1", "summary": []}
        theirs = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAA"}
        body = json.dumps(
            {"model": "m", "input": [packed, ours, theirs, {"role": "user", "content": "strom."}]}
        ).encode()
        assert json.loads(self.send(body))["input"] == [theirs, {"role": "user", "content": "strom."}]

    def test_an_odd_item_is_the_upstreams_matter(self) -> None:
        asked = CODEC.decode_request(b'{"model":"m","input":"x"}')
        body = b'{"model":"m","input":[7,"call_id",{"call_id":5,"type":"x"}]}'
        assert CODEC.relay_request(body, asked, Target("up", stream=True)).body == (
            b'{"model":"up","input":[7,"call_id",{"call_id":5,"type":"x"}],"stream":true}'
        )
