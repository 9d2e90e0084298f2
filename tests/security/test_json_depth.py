"""JSON that is nested beyond reason is the client's mistake, told in its own protocol, whatever holds it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.transport.memory import MemoryExchange, Script
from tests.server.rig import ServerRig, answer, json_script, provider

DEEP = 100_000
DEPTHS = (100, 300, 450, 600, 900, 980)
"""Below, at and above what decoding takes by itself: what is decoded may still be too deep for what works on it."""
TURN = {"role": "user", "content": "hi"}
FRONTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": [TURN]},
    "/v1/responses": {"model": "m", "input": "hi", "store": False},
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [TURN]},
    "/v1/messages/count_tokens": {"model": "m", "messages": [TURN]},
    "/api/chat": {"model": "m", "stream": False, "messages": [TURN]},
    "/api/generate": {"model": "m", "stream": False, "prompt": "hi"},
    "/api/show": {"model": "m"},
    "/v1/embeddings": {"model": "m", "input": "hi"},
    "/api/embed": {"model": "m", "input": "hi"},
}
CALLS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")
PARTS = ("unknown", "content", "tool", "metadata", "format")
BACKENDS = ("openai-chat", "openai-responses", "anthropic", "ollama")


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


def request_with(path: str, part: str, deep: str) -> bytes:
    """A request whose named part holds the text `deep`."""
    body = dict(FRONTS[path])
    mark: Any = "@DEEP@"
    schema = {"type": "object", "properties": {"x": mark}}
    if part == "unknown":
        body["unknown"] = mark
    elif part == "content":
        key = "input" if path == "/v1/responses" else "messages"
        body[key] = [{"role": "user", "content": [{"type": "text", "text": "hi", "more": mark}]}]
    elif part == "tool":
        flat = {"name": "f", "description": "d"}
        if path == "/v1/messages":
            body["tools"] = [{**flat, "input_schema": schema}]
        elif path == "/v1/responses":
            body["tools"] = [{"type": "function", **flat, "parameters": schema}]
        else:
            body["tools"] = [{"type": "function", "function": {**flat, "parameters": schema}}]
    elif part == "metadata":
        body["metadata"] = {"x": mark}
    else:
        shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        body["format" if path.startswith("/api") else "response_format"] = schema if path.startswith("/api") else shape
        if path == "/v1/responses":
            body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    return json.dumps(body).replace('"@DEEP@"', deep).encode()


def is_worded_for(path: str, exchange: MemoryExchange) -> bool:
    told = answer(exchange)
    if path.startswith("/v1/messages"):
        return bool(told["type"] == "error" and told["error"]["type"] == "invalid_request_error")
    if path.startswith("/api/"):
        return isinstance(told["error"], str)
    return bool(told["error"]["type"] == "invalid_request_error" and told["error"]["message"])


@pytest.mark.parametrize("shape", ["objects", "lists", "open objects", "open lists"])
@pytest.mark.parametrize("path", FRONTS)
async def test_a_hundred_thousand_levels_are_a_bad_request(path: str, shape: str) -> None:
    opening, closing = ('{"a":', "}") if "objects" in shape else ("[", "]")
    deep = nested(DEEP, opening, "" if "open" in shape else closing)
    for body in (deep.encode(), request_with(path, "unknown", deep)):
        rig = ServerRig()
        exchange = await rig.ask("POST", path, body)
        assert exchange.status == 400, exchange.body_out
        assert is_worded_for(path, exchange)
        assert rig.client.sent == []


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("path", CALLS)
async def test_no_depth_is_our_failure(path: str, part: str) -> None:
    for backend in BACKENDS:
        for depth in DEPTHS:
            refused: Script = json_script({"error": {"message": "no"}}, 422)
            rig = ServerRig(*[refused] * 3, providers=(provider("p", protocol=backend),))
            exchange = await rig.ask("POST", path, request_with(path, part, nested(depth)))
            assert exchange.status in (400, 422), (backend, depth, exchange.status, exchange.body_out)
