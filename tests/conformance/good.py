"""An endpoint that keeps every rule, in all four protocols: what the checks must let pass, and what tests then break."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from strom.transport.types import Headers, OutgoingRequest
from tests.conformance.stage import Reply
from tests.conformance.writers import ERRORS, WHOLES, WRITERS

Object = dict[str, Any]
MODEL = "good-1"
TEXT = (
    "Once upon a time there was a river that ran from the mountain through seven valleys down into an old harbour "
    "where fishermen mended their nets and children threw flat stones while evening fell slowly over every roof"
)
WORDS = TEXT.split()
PROTOCOLS = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
    "/api/generate": "generate",
}
JSON: Headers = [(b"content-type", b"application/json")]
SSE: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
NDJSON: Headers = [(b"content-type", b"application/x-ndjson")]


class Plan(msgspec.Struct, frozen=True):
    """What is to be said. `finish`: stop, stop_sequence, length or tool_calls."""

    model: str
    tokens: tuple[str, ...]
    finish: str
    thinking: str = ""
    usage_asked: bool = False

    @property
    def called(self) -> bool:
        return self.finish == "tool_calls"


def answer(request: OutgoingRequest) -> Reply:
    path = request.target
    if request.method == "GET":
        return _page(path)
    body = _parse(request.body)
    if path in ("/api/show", "/v1/messages/count_tokens", "/v1/responses/input_tokens"):
        return _small(path)
    protocol = PROTOCOLS.get(path)
    if protocol is None:
        return reply(404, {"error": {"message": f"no {path}", "type": "not_found"}})
    flaw = _flaw(protocol, body)
    if flaw is not None:
        return reply(flaw[0], ERRORS[protocol](*flaw))
    plan = make_plan(protocol, body or {})
    streamed = (body or {}).get("stream", protocol in ("ollama", "generate"))
    if not streamed:
        made_s = 0.02 * len(plan.tokens)
        return msgspec.structs.replace(reply(200, WHOLES[protocol](plan)), wait_s=0.05 + made_s)
    headers = NDJSON if protocol in ("ollama", "generate") else SSE
    return Reply(200, headers, tuple(WRITERS[protocol](plan)))


def reply(status: int, body: Object) -> Reply:
    return Reply(status, JSON, (json.dumps(body).encode(),))


def make_plan(protocol: str, body: Object, thinking: str = "") -> Plan:
    options = body.get("options", {})
    limit = body.get("max_tokens") or body.get("max_output_tokens") or options.get("num_predict", 100)
    stops = body.get("stop") or body.get("stop_sequences") or options.get("stop") or [None]
    text = json.dumps(body)
    if body.get("tools") and "tool_result" not in text and "18 degrees" not in text:
        return Plan(body["model"], (), "tool_calls", thinking, "stream_options" in body)
    words = WORDS[:3] if "Say ok" in text else WORDS
    kept = words[: words.index(stops[0])] if stops[0] in words else words
    finish = "length" if len(kept) > limit else "stop" if len(kept) == len(words) else "stop_sequence"
    tokens = tuple(word if at == 0 else f" {word}" for at, word in enumerate(kept[:limit]))
    return Plan(body["model"], tokens, finish, thinking, "stream_options" in body)


def _flaw(protocol: str, body: Object | None) -> tuple[int, str] | None:
    if body is None:
        return 400, "the body is no JSON"
    needed = {"openai-responses": "input", "generate": "prompt"}.get(protocol, "messages")
    for name in ("model", needed):
        if name not in body:
            return 400, f"{name} is missing"
    if not isinstance(body[needed], str | list):
        return 400, f"{needed} has the wrong type"
    return None if body["model"] == MODEL else (404, f"model {body['model']!r} not found")


def _page(path: str) -> Reply:
    if path == "/v1/models":
        return reply(200, {"object": "list", "data": [{"id": "embed-1"}, {"id": MODEL, "object": "model"}]})
    if path == "/api/tags":
        return reply(200, {"models": [{"name": MODEL}]})
    return reply(200, {"version": "0.1"}) if path == "/api/version" else reply(404, {"error": "no such page"})


def _small(path: str) -> Reply:
    if path == "/api/show":
        return reply(200, {"details": {}, "model_info": {"general.architecture": "llama"}})
    return reply(200, {"input_tokens": 12})


def _parse(data: bytes) -> Object | None:
    try:
        found: Object = json.loads(data)
    except ValueError:
        return None
    return found
