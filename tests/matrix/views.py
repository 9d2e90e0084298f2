"""What a client makes of an answer, in the same words for streams and whole replies of all four protocols.

Streams are read by the independent checkers of order in tests/grammar, whole replies here; neither knows the codecs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tests.grammar import anthropic, ollama, openai_chat, openai_responses

Calls = list[tuple[str | None, str, Any]]
"""Id, name and parsed arguments; where they are no JSON (cut by a limit), they stand under `_raw`, as in whole Messages."""
_VARYING = ("trace_id", "timing", "attempts")
"""Members of the routing block that differ between two calls."""
_ONLY_WHOLE = "choices other than the first"
"""A relayed Chat stream passes them all on; a whole reply folded from a stream has one, and says so."""


class Answer(NamedTuple):
    """What a client of the protocol `front` got; `streamed`: it had asked for a stream."""

    front: str
    streamed: bool
    status: int
    body: bytes


class View(msgspec.Struct):
    text: str
    reasoning: str
    calls: Calls
    finish: Any
    usage: dict[str, int]
    """Every count the protocol demands, and those of details that are there."""
    block: dict[str, Any]


def view(answer: Answer, *, strict: bool) -> View:
    """Raises AssertionError where the answer breaks its protocol. `strict`: every frame of it was written by us."""
    if answer.streamed:
        return _STREAMED[answer.front](answer.body, strict)
    return _WHOLE[answer.front](json.loads(answer.body))


def assert_alike(streamed: View, whole: View) -> None:
    """Both forms say the same. Estimates are made from lengths, a relay's from those on the wire: near, not equal."""
    if streamed.block["usage_source"] == "estimated":
        for name, count in streamed.usage.items():
            assert abs(count - whole.usage[name]) <= 1 + count // 4, (name, streamed.usage, whole.usage)
        block = {**whole.block, "cost_estimate": streamed.block["cost_estimate"]}
        whole = msgspec.structs.replace(whole, usage=streamed.usage, block=block)
    assert streamed == whole


def parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return {"_raw": arguments}


def block_keys(block: Any) -> dict[str, Any]:
    assert isinstance(block, dict), "no routing block"
    kept = {name: None if name in _VARYING else value for name, value in block.items()}
    return kept | {"dropped": [what for what in block["dropped"] if what != _ONLY_WHOLE]}


def counts(usage: dict[str, Any]) -> dict[str, int]:
    """The integers in it. One level down only what was counted: a relay keeps the upstream's own details."""
    flat: dict[str, int] = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": number for key, number in value.items() if type(number) is int and number}
        elif type(value) is int:
            flat[name] = value
    return flat


def data_of(body: bytes) -> list[dict[str, Any]]:
    lines = [line.partition(b":")[2].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


# --- streams -----------------------------------------------------------------------------------


def _chat_stream(body: bytes, strict: bool) -> View:
    seen = openai_chat.read(body, asked=True, strict=strict)
    assert seen.broken == []
    calls = [(call["id"], call["name"], parsed(call["arguments"])) for call in seen.calls]
    block = block_keys(seen.chunks[-1].get("strom"))
    return View(seen.text, seen.reasoning, calls, seen.finish, counts(seen.usage), block)


def _anthropic_stream(body: bytes, strict: bool) -> View:
    seen = anthropic.read(body, strict=strict)
    (block,) = [frame["strom"] for frame in data_of(body) if frame["type"] == "message_delta"]
    parts = [part for part in seen.blocks if part["type"] == "tool_use"]
    calls = [(part["id"], part["name"], parsed(part["payload"] or "{}")) for part in parts]
    return View(seen.text, seen.thinking, calls, seen.finish, counts(seen.usage), block_keys(block))


def _responses_stream(body: bytes, strict: bool) -> View:
    seen = openai_responses.read(body, strict=strict)
    whole = _responses_whole(seen.response)
    assert whole.text == seen.text("output_text"), "the text of the deltas is not that of the response"
    assert [call[1] for call in whole.calls] == [call[1] for call in seen.calls]
    return whole


def _ollama_stream(body: bytes, strict: bool) -> View:
    seen = ollama.read(body, strict=strict)
    block = block_keys(seen.last.get("strom"))
    return View(seen.text, seen.thinking, list(seen.calls), seen.finish, _ollama_counts(seen.last), block)


# --- whole replies -----------------------------------------------------------------------------


def _chat_whole(reply: dict[str, Any]) -> View:
    assert reply["object"] == "chat.completion"
    assert isinstance(reply["id"], str)
    choice = reply["choices"][0]
    message = choice["message"]
    assert message["role"] == "assistant"
    calls = [
        (call["id"], call["function"]["name"], parsed(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
    text, block = message["content"] or "", block_keys(reply["strom"])
    return View(text, thoughts, calls, choice["finish_reason"], counts(reply["usage"]), block)


def _anthropic_whole(reply: dict[str, Any]) -> View:
    assert (reply["type"], reply["role"]) == ("message", "assistant")
    assert isinstance(reply["id"], str)
    content = reply["content"]
    calls = [(part["id"], part["name"], part["input"]) for part in content if part["type"] == "tool_use"]
    text = "".join(part["text"] for part in content if part["type"] == "text")
    thoughts = "".join(part["thinking"] for part in content if part["type"] == "thinking")
    return View(text, thoughts, calls, reply["stop_reason"], counts(reply["usage"]), block_keys(reply["strom"]))


def _responses_whole(reply: dict[str, Any]) -> View:
    assert reply["object"] == "response"
    view = View("", "", [], (reply["status"], reply.get("incomplete_details")), counts(reply["usage"]), {})
    for item in reply["output"]:
        match item["type"]:
            case "message":
                view.text += "".join(part.get("text", "") for part in item["content"])
            case "reasoning":
                view.reasoning += "".join(part["text"] for part in item.get("content") or item["summary"])
            case "function_call":
                view.calls.append((item["call_id"], item["name"], parsed(item["arguments"])))
    view.block = block_keys(reply["strom"])
    return view


def _ollama_whole(reply: dict[str, Any]) -> View:
    assert reply["done"] is True
    message = reply["message"]
    functions = [(call.get("id"), call["function"]) for call in message.get("tool_calls") or ()]
    calls = [(id_, function["name"], function["arguments"]) for id_, function in functions]
    text, thoughts = message["content"], message.get("thinking") or ""
    return View(text, thoughts, calls, reply["done_reason"], _ollama_counts(reply), block_keys(reply["strom"]))


def _ollama_counts(last: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in last.items() if name.endswith("_count") and value is not None}


_STREAMED: dict[str, Callable[[bytes, bool], View]] = {
    "openai-chat": _chat_stream,
    "anthropic": _anthropic_stream,
    "openai-responses": _responses_stream,
    "ollama": _ollama_stream,
}
_WHOLE: dict[str, Callable[[dict[str, Any]], View]] = {
    "openai-chat": _chat_whole,
    "anthropic": _anthropic_whole,
    "openai-responses": _responses_whole,
    "ollama": _ollama_whole,
}
