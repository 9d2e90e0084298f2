"""Requests of Ollama clients → canonical requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import BadRequest
from strom.core.messages import (
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.ollama import CODEC, GENERATE_CODEC
from strom.protocols.ollama.load import is_load, is_unload
from tests.protocols.ollama.lines import call

PNG = "iVBORw0KGgoAAAANSUhEUg=="
CALLS = [call("w", {"c": "X"}), call("w", {"c": "Y"}), call("v", "{}")]
BROKEN_ARGUMENTS = b'[{"function":{"name":"f","arguments":"\xff"}}]'


def chat(*messages: dict[str, Any], **members: Any) -> Request:
    return CODEC.decode_request(json.dumps({"model": "m", "messages": list(messages), **members}).encode())


def generate(**members: Any) -> Request:
    return GENERATE_CODEC.decode_request(json.dumps({"model": "m", **members}).encode())


def test_streaming_is_the_default() -> None:
    assert chat({"role": "user", "content": "hi"}) == Request(
        "ollama", "m", (Message("user", (TextPart("hi"),)),), stream=True
    )
    assert chat(stream=None).stream
    assert not chat(stream=False).stream


def test_a_round_of_tools_as_the_python_client_sends_it() -> None:
    request = chat(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "thinking": "Hm", "content": "I look.", "tool_calls": CALLS},
        {"role": "tool", "content": "sunny", "tool_name": "v"},
        {"role": "tool", "content": "wet", "tool_name": "w"},
        {"role": "tool", "content": "dry", "name": "w"},
        {"role": "user", "content": "and?"},
        tools=[
            {"function": {"name": "w", "description": "d", "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "v"}},
        ],
    )  # fmt: skip
    assert request.messages == (
        Message("system", (TextPart("Be brief."),)),
        Message("user", (TextPart("weather?"),)),
        Message(
            "assistant",
            (
                ThinkingPart("Hm"),
                TextPart("I look."),
                ToolCallPart("call_2_0", "w", '{"c": "X"}'),
                ToolCallPart("call_2_1", "w", '{"c": "Y"}'),
                ToolCallPart("call_2_2", "v", "{}"),
            ),
        ),
        Message(
            "user",
            (
                ToolResultPart("call_2_2", (TextPart("sunny"),), name="v"),
                ToolResultPart("call_2_0", (TextPart("wet"),), name="w"),
                ToolResultPart("call_2_1", (TextPart("dry"),), name="w"),
            ),
        ),
        Message("user", (TextPart("and?"),)),
    )
    assert request.tools == (Tool("w", "d", '{"type": "object"}'), Tool("v"))


def results(*messages: dict[str, Any]) -> list[tuple[str, str]]:
    calls = [call("f", {}, id="a"), call("g", {}, id="b"), call("f", {}, id="a")]
    request = chat({"role": "assistant", "tool_calls": calls}, *messages)
    parts = [part for message in request.messages for part in message.parts]
    return [(part.call_id, part.name) for part in parts if isinstance(part, ToolResultPart)]


def test_results_find_their_calls() -> None:
    assert results({"role": "tool", "tool_call_id": "b"}, {"role": "tool"}, {"role": "tool", "tool_name": "other"}) == [
        ("b", "g"),
        ("a", "f"),
        ("call_0_2", "other"),
    ]
    assert results({"role": "tool", "tool_call_id": "z", "tool_name": "n"}) == [("z", "n")]
    assert results(*[{"role": "tool", "tool_name": "g"}] * 4)[3] == ("call_4_0", "g")


def test_ids_of_calls_are_text_and_unique() -> None:
    request = chat({"role": "assistant", "tool_calls": [call("f", {}, id=7), call("f", None, id=7)]})
    assert request.messages[0].parts == (ToolCallPart("7", "f", "{}"), ToolCallPart("call_0_1", "f", "{}"))


def test_images() -> None:
    values = [
        PNG,
        "/9j/4AAQ",
        "R0lGODlh",
        "UklGRgAA",
        "AAAA",
        f"data:image/webp;base64,{PNG}",
        "https://x/y.png",
        "data:x",
    ]
    request = chat({"role": "user", "content": "what?", "images": values})
    assert request.messages[0].parts == (
        TextPart("what?"),
        ImagePart("image/png", PNG),
        ImagePart("image/jpeg", "/9j/4AAQ"),
        ImagePart("image/gif", "R0lGODlh"),
        ImagePart("image/webp", "UklGRgAA"),
        ImagePart("", "AAAA"),
        ImagePart("image/webp", PNG),
        ImagePart(url="https://x/y.png"),
        ImagePart("", "data:x"),
    )
    result = chat({"role": "tool", "images": [PNG]}).messages[0].parts[0]
    assert result == ToolResultPart("call_0_0", (ImagePart("image/png", PNG),))


def test_options_and_what_stands_beside_them() -> None:
    options = {
        "num_predict": 5.0, "temperature": 1, "top_k": 40.0, "top_p": 0.5, "min_p": 0.1, "seed": 7, "stop": ["a", "b"],
        "repeat_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3, "num_ctx": 4096, "mirostat": None,
    }  # fmt: skip
    request = chat(options=options, think=True, keep_alive="5m", logprobs=True, top_logprobs=2, truncate=False, x=None)
    assert request.max_output_tokens == 5
    assert request.stop == ("a", "b")
    assert request.sampling == Sampling(1.0, 0.5, 40, 0.1, 7, 0.3, 0.2, 1.1, logprobs=True, top_logprobs=2)
    assert request.reasoning == Reasoning(enabled=True)
    assert request.keep_alive == Json('"5m"')
    assert request.extras == (("truncate", Json("false")), ("options.num_ctx", Json("4096")))


def test_one_stop_text_and_no_limits() -> None:
    assert chat(options={"stop": "x", "num_predict": -1}).stop == ("x",)
    assert chat(options={"num_predict": -1}).extras == ()
    fill = chat(options={"num_predict": -2})
    assert (fill.max_output_tokens, fill.extras) == (None, (("options.num_predict", Json("-2")),))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("json", ResponseFormat("json_object")),
        ({"type": "object"}, ResponseFormat("json_schema", schema='{"type": "object"}')),
        ("", None),
        (None, None),
    ],
)
def test_format(given: object, wanted: ResponseFormat | None) -> None:
    assert chat(format=given).response_format == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(False, Reasoning(enabled=False)), ("high", Reasoning(enabled=True, effort="high")), (None, None)],
)
def test_think(given: object, wanted: Reasoning | None) -> None:
    assert chat(think=given).reasoning == wanted


def test_a_tool_of_another_kind_stays_opaque() -> None:
    tool = chat(tools=[{"type": "web", "x": 1}]).tools[0]
    assert tool.opaque == OpaquePart("ollama", "web", Json('{"type": "web", "x": 1}'))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"nope", "not valid"),
        (b"[]", "not valid"),
        (b"\xff", "not valid"),
        (b'{"messages":[]}', "model is required"),
        (b'{"model":"m","messages":[{"role":"robot","content":""}]}', "messages\\[0\\].role"),
        (b'{"model":"m","messages":[{"role":"user","content":[]}]}', "not valid"),
        (b'{"model":"m","messages":[{"role":"assistant","tool_calls":[{}]}]}', "tool_calls\\[0\\]"),
        (b'{"model":"m","messages":[{"role":"assistant","tool_calls":' + BROKEN_ARGUMENTS + b"}]}", "arguments"),
        (b'{"model":"m","format":"xml"}', "format must be"),
        (b'{"model":"m","options":[]}', "not valid"),
        (b'{"model":"m","tools":[{"type":"function"}]}', "tools\\[0\\] has no"),
        (b'{"model":"m","tools":[5]}', "tools\\[0\\] is not valid"),
    ],
)  # fmt: skip
def test_bad_requests(body: bytes, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        CODEC.decode_request(body)


@given(st.binary(max_size=60))
def test_garbage_raises_only_our_errors(body: bytes) -> None:
    for codec in (CODEC, GENERATE_CODEC):
        with pytest.raises(BadRequest):
            codec.decode_request(body)


# --- generate and load -------------------------------------------------------------------------------


def test_generate_is_a_conversation() -> None:
    request = generate(
        prompt="hi", system="s", images=[PNG], suffix="", raw=False, context=[], template="t", stream=False
    )
    assert request == Request(
        "ollama",
        "m",
        (Message("system", (TextPart("s"),)), Message("user", (TextPart("hi"), ImagePart("image/png", PNG)))),
        extras=(("template", Json('"t"')),),
    )
    extras = generate(prompt="hi", suffix="end", raw=True, context=[1], options={"num_ctx": 1}).extras
    assert [name for name, _ in extras] == ["suffix", "raw", "context", "options.num_ctx"]


def test_no_messages_and_no_prompt_mean_load() -> None:
    assert is_load(chat())
    assert is_load(generate(prompt="", system="s"))
    assert not is_load(generate(prompt="x"))
    assert not is_load(generate(images=[PNG]))
    assert not is_load(generate(suffix="x"))


@pytest.mark.parametrize(
    ("given", "unload"),
    [(0, True), ("0", True), ("0s", True), (0.0, True), ("5m", False), (-1, False), (None, False)],
)
def test_keep_alive_zero_means_unload(given: object, unload: bool) -> None:
    assert is_unload(chat(keep_alive=given)) is unload
    assert not is_unload(chat({"role": "user", "content": "x"}, keep_alive=given))
