"""Frames and contexts from which the tests of this folder are put together."""

from __future__ import annotations

import itertools
import json
from typing import Any

from strom.core.events import Event
from strom.core.messages import Request
from strom.core.order import OrderChecker
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_responses import CODEC

BLOCK = b'{"complete":true}'
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 12,
}


def context(**changes: Any) -> ReplyContext:
    values: dict[str, Any] = {
        "reply_id": "r1",
        "request_id": "trace-1",
        "model": "client-model",
        "created": 1_760_000_000,
        "input_estimate": 7,
        "block": lambda: BLOCK,
    }
    return ReplyContext(**{**values, **changes})


def request(**members: Any) -> Request:
    return CODEC.decode_request(json.dumps({"model": "m", "input": "hi", **members}).encode())


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members}, ensure_ascii=False)}\n\n".encode()


def numbered(*frames: bytes) -> bytes:
    """The frames with sequence numbers 0, 1, 2 … put in."""
    out = []
    for number, frame in zip(itertools.count(), frames, strict=False):
        head, _, data = frame.partition(b"data: ")
        out.append(head + b"data: " + json.dumps({**json.loads(data), "sequence_number": number}).encode() + b"\n\n")
    return b"".join(out)


def response(status: str = "in_progress", **members: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_750_000_000,
        "status": status,
        "model": "gpt-x",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "usage": None,
    }
    return {**base, **members}


def created(**members: Any) -> bytes:
    return event("response.created", response=response(**members))


def ended(status: str = "completed", **members: Any) -> bytes:
    return event(f"response.{status}", response=response(status, **{"usage": USAGE, **members}))


def message(identity: str = "msg_1", *parts: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {"id": identity, "type": "message", "role": "assistant", "status": status, "content": list(parts)}


def text_part(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [], **members}


def call(identity: str = "fc_1", arguments: str = "", name: str = "f", **members: Any) -> dict[str, Any]:
    base = {
        "id": identity,
        "type": "function_call",
        "call_id": f"call_{identity}",
        "name": name,
        "arguments": arguments,
    }
    return {**base, "status": "completed" if arguments else "in_progress", **members}


def added(place: int, item: dict[str, Any]) -> bytes:
    return event("response.output_item.added", output_index=place, item=item)


def done(place: int, item: dict[str, Any]) -> bytes:
    return event("response.output_item.done", output_index=place, item=item)


def part_added(place: int, identity: str = "msg_1", at: int = 0) -> bytes:
    return event(
        "response.content_part.added", output_index=place, item_id=identity, content_index=at, part=text_part("")
    )


def part_done(place: int, text: str, identity: str = "msg_1", at: int = 0) -> bytes:
    return event(
        "response.content_part.done", output_index=place, item_id=identity, content_index=at, part=text_part(text)
    )


def delta(place: int, text: str, identity: str = "msg_1", at: int = 0) -> bytes:
    return event(
        "response.output_text.delta",
        output_index=place,
        item_id=identity,
        content_index=at,
        delta=text,
        logprobs=[],
    )


def arguments(place: int, text: str, identity: str = "fc_1") -> bytes:
    return event("response.function_call_arguments.delta", output_index=place, item_id=identity, delta=text)


def summary(place: int, text: str, identity: str = "rs_1", at: int = 0) -> bytes:
    return event(
        "response.reasoning_summary_text.delta", output_index=place, item_id=identity, summary_index=at, delta=text
    )


def plain(text: str = "Hi there") -> list[bytes]:
    """A whole, legal stream of one message, as frames without numbers."""
    halves = [text[: len(text) // 2], text[len(text) // 2 :]]
    finished = message("msg_1", text_part(text))
    return [
        created(),
        event("response.in_progress", response=response()),
        added(0, message(status="in_progress")),
        part_added(0),
        *(delta(0, half) for half in halves if half),
        event("response.output_text.done", output_index=0, item_id="msg_1", content_index=0, text=text, logprobs=[]),
        part_done(0, text),
        done(0, finished),
        ended(output=[finished]),
    ]


def decode(*pieces: bytes, quirks: Quirks | None = None) -> list[Event]:
    """All events, in canonical order."""
    decoder = CODEC.decoder(quirks or Quirks())
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.finish()
    checker = OrderChecker()
    for one in events:
        checker.feed(one)
    assert checker.ended
    return events
