"""A Messages request in canonical form."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import BadRequest
from strom.core.ids import to_legal
from strom.core.messages import (
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    Reasoning,
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
from strom.protocols.anthropic_messages import CODEC

CACHE = {"type": "ephemeral"}
CACHED = Json('{"type": "ephemeral"}')
CLIENTS = (
    Path(os.environ.get("STROM_SHARED") or Path(__file__).resolve().parents[4] / "shared") / "clients" / "requests"
)


def decode(**members: Any) -> Request:
    base = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    return CODEC.decode_request(json.dumps({**base, **members}).encode())


def part(block: dict[str, Any], role: str = "user") -> Part:
    (only,) = decode(messages=[{"role": role, "content": [block]}]).messages[0].parts
    return only


def test_the_plain_fields() -> None:
    request = decode(
        stream=True,
        stop_sequences=["a", "b"],
        temperature=1,
        top_p=0.5,
        top_k=3,
        system="Be brief.",
        metadata={"user_id": "u"},
        service_tier=None,
        container={"id": "c"},
    )
    assert request == Request(
        "anthropic",
        "m",
        (Message("system", (TextPart("Be brief."),)), Message("user", (TextPart("x"),))),
        max_output_tokens=5,
        stop=("a", "b"),
        sampling=Sampling(temperature=1.0, top_p=0.5, top_k=3),
        stream=True,
        user="u",
        extras=(("container", Json('{"id": "c"}')),),
    )
    assert decode(system=None, stream=None, metadata={"user_id": None}) == decode()


def test_system_blocks_and_claude_codes_billing_block() -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1;"}
    blocks = [billing, {"type": "text", "text": "a", "cache_control": CACHE}, {"type": "text", "text": "b"}]
    request = decode(system=blocks)
    assert request.messages[0] == Message("system", (TextPart("a", CACHED), TextPart("b")))
    assert [name for name, _ in request.extras] == ["system[billing]"]
    assert decode(system=blocks[:1]).messages[0].role == "user"


def test_system_messages_stay_where_they_are() -> None:
    messages = [{"role": role, "content": role} for role in ("user", "system", "assistant", "system", "user")]
    assert [message.role for message in decode(messages=messages).messages] == [each["role"] for each in messages]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "a", "cache_control": CACHE}, TextPart("a", CACHED)),
        ({"type": "text", "text": "a", "cache_control": None, "citations": []}, TextPart("a", None, Json("[]"))),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}},
            ImagePart("image/png", "QQ=="),
        ),
        ({"type": "image", "source": {"type": "url", "url": "http://x"}}, ImagePart(url="http://x")),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, ImagePart(file_id="f")),
        (
            {"type": "image", "source": {"type": "new"}},
            OpaquePart("anthropic", "image", Json('{"type": "image", "source": {"type": "new"}}')),
        ),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
                "title": "a.pdf",
                "context": "c",
                "citations": {"enabled": True},
                "cache_control": CACHE,
            },
            DocumentPart(
                "application/pdf",
                "QQ==",
                name="a.pdf",
                context="c",
                citations=Json('{"enabled": true}'),
                cache_control=CACHED,
            ),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "t"}, "title": None},
            DocumentPart("text/plain", text="t"),
        ),
        ({"type": "document", "source": {"type": "url", "url": "http://x"}}, DocumentPart(url="http://x")),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, DocumentPart(file_id="f")),
        ({"type": "document", "source": {"type": "content", "content": "t"}}, DocumentPart("text/plain", text="t")),
        (
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
            },
            DocumentPart("text/plain", text="a\nb"),
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "x"}]}},
            OpaquePart(
                "anthropic",
                "document",
                Json('{"type": "document", "source": {"type": "content", "content": [{"type": "x"}]}}'),
            ),
        ),
        (
            {"type": "document", "source": {"type": "new"}},
            OpaquePart("anthropic", "document", Json('{"type": "document", "source": {"type": "new"}}')),
        ),
        (
            {"type": "search_result", "source": "http://x", "title": "t", "content": [{"type": "text", "text": "a"}]},
            DocumentPart("application/x-search-result", text="a", name="t", context="http://x"),
        ),
        (
            {"type": "tool_result", "tool_use_id": "t", "content": "r", "is_error": True, "cache_control": CACHE},
            ToolResultPart("t", (TextPart("r"),), True, cache_control=CACHED),
        ),
        ({"type": "tool_result", "tool_use_id": "t"}, ToolResultPart("t")),
        (
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "x"}]},
            ToolResultPart(
                "t", (OpaquePart("anthropic", "tool_reference", Json('{"type": "tool_reference", "tool_name": "x"}')),)
            ),
        ),
        (
            {"type": "container_upload", "file_id": "f"},
            OpaquePart("anthropic", "container_upload", Json('{"type": "container_upload", "file_id": "f"}')),
        ),
    ],
)
def test_blocks_of_the_user(block: dict[str, Any], expected: Part) -> None:
    assert part(block) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "tool_use", "id": "t", "name": "f", "input": {"z": 1, "a": []}},
            ToolCallPart("t", "f", '{"z": 1, "a": []}'),
        ),
        ({"type": "tool_use", "id": "t", "name": "f"}, ToolCallPart("t", "f", "")),
        ({"type": "tool_use", "id": to_legal("a.b"), "name": "f", "input": {}}, ToolCallPart("a.b", "f", "{}")),
        ({"type": "thinking", "thinking": "h", "signature": "s"}, ThinkingPart("h", "s", origin="anthropic")),
        ({"type": "thinking", "thinking": "h", "signature": ""}, ThinkingPart("h")),
        ({"type": "redacted_thinking", "data": "X"}, ThinkingPart(encrypted="X", origin="anthropic")),
        (
            {"type": "server_tool_use", "id": "s"},
            OpaquePart("anthropic", "server_tool_use", Json('{"type": "server_tool_use", "id": "s"}')),
        ),
    ],
)
def test_blocks_of_the_assistant(block: dict[str, Any], expected: Part) -> None:
    assert part(block, "assistant") == expected


def test_ids_of_results_come_back_too() -> None:
    assert part({"type": "tool_result", "tool_use_id": to_legal("a.b")}) == ToolResultPart("a.b")


def test_content_may_be_empty() -> None:
    contents: list[Any] = ["", None, []]
    messages = [{"role": "user", "content": content} for content in contents]
    assert [message.parts for message in decode(messages=messages).messages] == [(), (), ()]


def test_tools() -> None:
    request = decode(
        tools=[
            {
                "name": "f",
                "description": "d",
                "input_schema": {"type": "object"},
                "cache_control": CACHE,
                "strict": True,
            },
            {"name": "g", "type": "custom", "input_schema": None, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        ]
    )
    assert request.tools == (
        Tool("f", "d", '{"type": "object"}', True, cache_control=CACHED),
        Tool("g", extras=(("defer_loading", Json("true")),)),
        Tool(
            "web_search",
            opaque=OpaquePart(
                "anthropic",
                "web_search_20250305",
                Json('{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}'),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("wire", "choice", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "none", "disable_parallel_tool_use": False}, ToolChoice("none"), True),
        ({"type": "tool", "name": "f"}, ToolChoice("named", "f"), None),
        (None, None, None),
    ],
)
def test_tool_choice(wire: object, choice: ToolChoice | None, parallel: bool | None) -> None:
    request = decode(tool_choice=wire)
    assert (request.tool_choice, request.parallel_tool_calls, request.extras) == (choice, parallel, ())


@pytest.mark.parametrize(
    ("members", "expected", "extras"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, Reasoning(True, budget_tokens=2000), []),
        ({"thinking": {"type": "disabled"}}, Reasoning(False), []),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}},
            Reasoning(True, "high", adaptive=True, display="omitted"),
            [],
        ),
        ({"output_config": {"effort": "low", "task_budget": 5}}, Reasoning(effort="low"), ["output_config"]),
        ({"thinking": {"type": "between_tools"}}, None, ["thinking"]),
        ({"thinking": {"type": "enabled", "x": 1}}, Reasoning(True), ["thinking"]),
    ],
)
def test_reasoning(members: dict[str, Any], expected: Reasoning | None, extras: list[str]) -> None:
    request = decode(**members)
    assert request.reasoning == expected
    assert [name for name, _ in request.extras] == extras


def test_response_format_and_metadata() -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    expected = ResponseFormat("json_schema", schema='{"type": "object"}')
    assert decode(output_config={"format": wanted}).response_format == expected
    assert decode(output_format=wanted).response_format == expected
    assert decode(output_config={"format": {"type": "text"}}).response_format is None
    assert [name for name, _ in decode(metadata={"user_id": "u", "x": 1}).extras] == ["metadata"]


@pytest.mark.parametrize(
    "members",
    [
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "thinking"}]}],
                }
            ]
        },
        {"model": None},
        {"max_tokens": "many"},
        {"tool_choice": {"type": "tool"}},
        {"tool_choice": {"type": "some"}},
        {"tools": [{"description": "nameless"}]},
        {"system": [{"type": "image"}]},
    ],
)
def test_malformed_requests(members: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as raised:
        decode(**members)
    assert raised.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"model":"m","messages":[{"role":"user","content":"\xff"}],"x":"\xff"}',
        b"[" * 9999,
    ],
)
def test_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(BadRequest):
        CODEC.decode_request(body)


@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.booleans(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["type", "text", "content", "role", "source", "name", "id"]), inner)
        ),
        max_leaves=12,
    )
)
def test_garbage_raises_only_bad_request(value: object) -> None:
    for members in (
        {"messages": [value]},
        {"messages": [{"role": "user", "content": [value]}]},
        {"tools": [value]},
        {"system": value},
    ):
        with contextlib.suppress(BadRequest):
            decode(**members)


@pytest.mark.skipif(
    not CLIENTS.is_dir() and not os.environ.get("CI"), reason="the requests of real clients are missing"
)
def test_requests_of_real_clients() -> None:
    names = [
        path
        for path in sorted(CLIENTS.glob("*.json"))
        if json.loads(path.read_bytes())["path"].startswith("/v1/messages")
    ]
    assert len(names) >= 10
    for path in names:
        request = CODEC.decode_request(json.dumps(json.loads(path.read_bytes())["body"]).encode())
        assert request.messages[-1].parts
    claude = json.loads((CLIENTS / "claude_code.tool_turn.json").read_bytes())["body"]
    request = CODEC.decode_request(json.dumps(claude).encode())
    assert [message.role for message in request.messages] == ["system", "user", "system", "assistant", "user"]
    assert [name for name, _ in request.extras] == ["context_management", "system[billing]"]
