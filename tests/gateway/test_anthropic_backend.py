"""A hosted Anthropic model behind: what of its protocol a client of it keeps, and what others are given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.gateway.responses import UPSTREAM_ID
from strom.protocols.codec import Quirks
from tests.gateway.rig import JSON, SSE, Rig

BETA = [(b"anthropic-version", b"2024-01-01"), (b"anthropic-beta", b"files-api-2025-04-14,context-1m")]
LIMITS = [
    (b"request-id", b"req_upstream"),
    (b"anthropic-ratelimit-requests-remaining", b"7"),
    (b"anthropic-ratelimit-tokens-reset", b"2026-01-01T00:00:00Z"),
    (b"retry-after", b"3"),
    (b"set-cookie", b"no"),
]


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    pieces = [event("content_block_start", index=index, content_block=content)]
    pieces += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return b"".join([*pieces, event("content_block_stop", index=index)])


START = event(
    "message_start",
    message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
    },
)  # fmt: skip
CITATION = {"type": "char_location", "cited_text": "c", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u"}],
}
STREAM = b"".join(
    [
        START,
        block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "SIG=="},
        ),
        block(1, SEARCH),
        block(2, FOUND),
        block(
            3,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "It is so."},
            {"type": "citations_delta", "citation": CITATION},
        ),
        event("message_delta", delta={"stop_reason": "pause_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]
)


def sent(rig: Rig) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(rig.upstream().request.body)
    return body


def answered(front: str) -> tuple[Rig, bytes]:
    rig = Rig("anthropic")
    exchange = rig.call(front)
    rig.upstream().response(200, SSE + LIMITS)
    rig.upstream().end(STREAM)
    return rig, exchange.body_out


def test_version_and_beta_are_the_clients_own() -> None:
    rig = Rig("anthropic")
    rig.call("anthropic", headers=BETA)
    headers = rig.upstream().request.headers
    assert [field for field in headers if field[0].startswith(b"anthropic-")] == BETA
    rig = Rig("anthropic", quirks=Quirks(images=False))
    text_file = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    rig.call("anthropic", headers=BETA, messages=[{"role": "user", "content": [text_file]}])
    assert set(BETA) <= set(rig.upstream().request.headers), "also where the request is encoded anew"
    rig = Rig("anthropic")
    rig.call("openai-chat", headers=BETA)
    versions = [field for field in rig.upstream().request.headers if field[0].startswith(b"anthropic-")]
    assert versions == [(b"anthropic-version", b"2023-06-01")], "a client of another protocol has no say in it"


def test_cache_markers_are_relayed_byte_for_byte() -> None:
    system = '[{"type":"text","text":"s","cache_control":{"type":"ephemeral", "ttl":"1h"}}]'
    turns = '[{"role":"user","content":[{"type":"text","text":"\\u00e9","cache_control": {"type":"ephemeral"}}]}]'
    rig = Rig("anthropic")
    rig.call_raw("anthropic", f'{{"model":"m","max_tokens":9,"system":{system},"messages":{turns}}}'.encode())
    body = rig.upstream().request.body
    assert system.encode() in body
    assert turns.encode() in body


def test_cache_markers_of_chat_stand_where_the_client_put_them_and_nowhere_else() -> None:
    marker = {"cache_control": {"type": "ephemeral"}}
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "s", **marker}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", **marker}]},
    ]
    rig = Rig("anthropic")
    rig.call(messages=turns, tools=[tool, {**tool, "function": {**tool["function"], "name": "g"}, **marker}])
    body = sent(rig)
    assert body["system"] == [{"type": "text", "text": "s", **marker}]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b", **marker}]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    rig = Rig("anthropic")
    rig.call()
    assert b"cache_control" not in rig.upstream().request.body


@pytest.mark.parametrize(
    ("front", "asked", "thinking", "effort"),
    [
        ("openai-chat", {"reasoning_effort": "high"}, {"type": "adaptive"}, "high"),
        ("openai-chat", {"reasoning_effort": "none"}, {"type": "disabled"}, None),
        ("openai-responses", {"reasoning": {"effort": "low"}}, {"type": "adaptive"}, "low"),
        ("ollama", {"think": "medium"}, {"type": "adaptive"}, "medium"),
        ("ollama", {"think": False}, {"type": "disabled"}, None),
    ],
)
def test_effort_towards_anthropic(front: str, asked: dict[str, Any], thinking: Any, effort: str | None) -> None:
    rig = Rig("anthropic")
    rig.call(front, **asked)
    assert sent(rig)["thinking"] == thinking
    assert sent(rig).get("output_config", {}).get("effort") == effort


@pytest.mark.parametrize(("budget", "effort"), [(1024, "low"), (8000, "medium"), (20000, "high")])
def test_budgets_from_anthropic(budget: int, effort: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget}
    rig = Rig("openai-chat")
    rig.call("anthropic", thinking=thinking, max_tokens=32000)
    assert sent(rig)["reasoning_effort"] == effort
    rig = Rig("openai-responses")
    rig.call("anthropic", thinking=thinking, max_tokens=32000)
    assert sent(rig)["reasoning"]["effort"] == effort
    rig = Rig("ollama")
    rig.call("anthropic", thinking=thinking, max_tokens=32000)
    assert sent(rig)["think"] == effort


def test_its_own_client_gets_every_byte() -> None:
    rig, out = answered("anthropic")
    before_delta = STREAM[: STREAM.index(b"event: message_delta")]
    assert out.startswith(before_delta), "server tools, results, citations and signatures as they came"
    assert b'"stop_reason": "pause_turn"' in out
    assert rig.record.dropped == []


@pytest.mark.parametrize("front", ["openai-chat", "openai-responses", "ollama"])
def test_others_are_told_what_they_cannot_be_given(front: str) -> None:
    rig, out = answered(front)
    assert b"It is so." in out
    assert rig.record.finish_reason == "pause"
    lost = {"server_tool_use", "web_search_tool_result", "citations"}
    if front != "openai-responses":  # which has a place for it, in which it comes back
        lost.add("thinking signature")
    assert set(rig.record.dropped) == lost
    assert b"srvtoolu_1" not in out


def test_signatures_go_back_to_their_maker_alone() -> None:
    """Through a Responses client: packed on the way out, unpacked for Anthropic, left out for anybody else."""
    _, out = answered("openai-responses")
    frames = [json.loads(line[6:]) for line in out.split(b"\n") if line.startswith(b"data: {")]
    item = next(i for i in frames[-1]["response"]["output"] if i["type"] == "reasoning")
    assert item["encrypted_content"] != "SIG=="
    history = [
        {"role": "user", "content": "q"}, item, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},
    ]  # fmt: skip
    rig = Rig("anthropic")
    rig.call("openai-responses", input=history)
    thinking = sent(rig)["messages"][1]["content"][0]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "SIG=="}
    for behind in ("openai-chat", "openai-responses", "ollama"):
        rig = Rig(behind)
        rig.call("openai-responses", input=history)
        assert b"SIG==" not in rig.upstream().request.body


def test_server_tools_of_earlier_turns_are_relayed_as_they_came() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": [SEARCH, FOUND]}]
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]
    rig = Rig("anthropic")
    rig.call("anthropic", messages=turns, tools=tools, container="c1")
    body = sent(rig)
    assert (body["messages"], body["tools"], body["container"]) == (turns, tools, "c1")


def test_pdf_and_image_blocks() -> None:
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    rig = Rig("anthropic")
    rig.call(messages=[{"role": "user", "content": [pdf, image, linked]}])
    assert sent(rig)["messages"][0]["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            "title": "a.pdf",
        },
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]


def test_schemas_are_fitted_for_a_host_that_takes_a_subset() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "count"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": inner}}
    rig = Rig("anthropic", quirks=Quirks(strict_schemas=True))
    rig.call(response_format=wanted)
    assert sent(rig)["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "count (minimum: 1)"}},
        "additionalProperties": False,
    }
    rig = Rig("anthropic", quirks=Quirks(strict_schemas=True))
    rig.call("anthropic", output_config={"format": {"type": "json_schema", "schema": inner}})
    assert sent(rig)["output_config"]["format"]["schema"] == inner, "its own client has written what it wants"


@pytest.mark.parametrize("behind", ["openai-chat", "openai-responses"])
def test_schemas_that_bind_are_strict_where_they_fit(behind: str) -> None:
    fits = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for front, schema, strict in (
        ("ollama", fits, True),
        ("ollama", {"type": "object", "properties": {"n": {}}}, None),
    ):
        rig = Rig(behind, quirks=Quirks(strict_schemas=True))
        rig.call(front, format=schema)
        body = sent(rig)
        got = body["response_format"]["json_schema"] if behind == "openai-chat" else body["text"]["format"]
        assert got.get("strict") == strict
        assert got["schema"] == ({**schema, "additionalProperties": False} if strict else schema)


@pytest.mark.parametrize("front", ["anthropic", "openai-chat"])
def test_request_ids_and_rate_limits(front: str) -> None:
    rig = Rig("anthropic")
    exchange = rig.call(front)
    rig.upstream().response(200, SSE + LIMITS)
    rig.upstream().end(STREAM)
    own = b"request-id" if front == "anthropic" else b"x-request-id"
    assert exchange.header_out(own) == rig.record.trace_id.encode()
    assert exchange.header_out(UPSTREAM_ID) == b"req_upstream"
    limit = exchange.header_out(b"anthropic-ratelimit-requests-remaining")
    assert limit == (b"7" if front == "anthropic" else None), "limits in the words of another protocol mean nothing"
    assert exchange.header_out(b"set-cookie") is None
    assert exchange.header_out(b"retry-after") == (b"3" if front == "anthropic" else None)


def test_a_refusal_passes_them_on() -> None:
    rig = Rig("anthropic")
    exchange = rig.call("anthropic")
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    rig.upstream().response(429, JSON + LIMITS)
    rig.upstream().end(json.dumps(error).encode())
    assert exchange.status == 429
    assert exchange.header_out(b"retry-after") == b"3"
    assert exchange.header_out(b"anthropic-ratelimit-requests-remaining") == b"7"
    assert [value for name, value in exchange.headers if name == UPSTREAM_ID] == [b"req_upstream"]
