"""Lines as an Ollama server writes them, and what the tests do with streams.

No recordings of a real Ollama exist: the shapes are those of protocol-facts.md section 4 and of ollama-python 0.6.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from strom.core.events import Event, TextDelta, ThinkingDelta
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.ollama import CODEC

STRICT = Quirks()
BLOCK = b'{"trace_id":"t1"}'
DONE: dict[str, Any] = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 900,
    "load_duration": 77,
    "prompt_eval_count": 9,
    "prompt_eval_duration": 5,
    "eval_count": 3,
    "eval_duration": 6,
}


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def line(content: str = "", *, at: str = "2026-01-05T10:00:01.123456789Z", **members: Any) -> bytes:
    """A line of /api/chat. `thinking` and `tool_calls` go into the message, everything else beside it."""
    inside: dict[str, Any] = {name: members.pop(name) for name in ("thinking", "tool_calls") if name in members}
    message: dict[str, Any] = {"role": "assistant", "content": content, **inside}
    return dump({"model": "qwen3", "created_at": at, "message": message, "done": False, **members})


def done(**members: Any) -> bytes:
    return line("", **{**DONE, **members})


def part(response: str = "", **members: Any) -> bytes:
    """A line of /api/generate."""
    value = {"model": "qwen3", "created_at": "2026-01-05T10:00:01Z", "response": response, "done": False}
    return dump({**value, **members})


def call(name: str, arguments: object, **members: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **members}


def context(**changes: Any) -> ReplyContext:
    values: dict[str, Any] = {
        "reply_id": "r1",
        "request_id": "t1",
        "model": "asked-for",
        "created": 1_767_607_200,
        "created_at": "2026-01-05T10:00:00Z",
        "block": lambda: BLOCK,
    }
    return ReplyContext(**{**values, **changes})


def decode(chunks: Iterable[bytes], quirks: Quirks = STRICT) -> list[Event]:
    """All events, their order checked."""
    decoder = CODEC.decoder(quirks)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.finish()
    checked(events)
    assert decoder.feed(line("late")) == []
    assert decoder.finish() == []
    return events


def checked(events: Sequence[Event]) -> None:
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    assert checker.ended


def merged(events: Iterable[Event]) -> list[Event]:
    """Deltas that follow each other in one block joined, so that cuts of the input do not show."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, TextDelta | ThinkingDelta) and type(last) is type(event) and last.index == event.index:
            out[-1] = type(event)(event.index, last.text + event.text)
        else:
            out.append(event)
    return out
