"""Frames and contexts from which the tests of this folder are put together."""

from __future__ import annotations

import json
from typing import Any

from strom.core.events import Event
from strom.core.order import OrderChecker
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks, ReplyContext

BLOCK = b'{"complete":true}'


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members}, ensure_ascii=False)}\n\n".encode()


def start(**message: Any) -> bytes:
    base: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    return event("message_start", message={**base, **message})


def block_start(index: int, kind: str = "text", **members: Any) -> bytes:
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"id": f"toolu_{index}", "name": "f", "input": {}},
    }
    return event("content_block_start", index=index, content_block={"type": kind, **empty.get(kind, {}), **members})


def delta(index: int, kind: str, value: Any) -> bytes:
    member = {"json": "partial_json", "citations": "citation"}.get(kind, kind)
    name = "input_json_delta" if kind == "json" else f"{kind}_delta"
    return event("content_block_delta", index=index, delta={"type": name, member: value})


def stop(index: int) -> bytes:
    return event("content_block_stop", index=index)


def end(reason: str | None = "end_turn", stop_sequence: str | None = None, **usage: Any) -> bytes:
    counts = usage or {"output_tokens": 3}
    return event("message_delta", delta={"stop_reason": reason, "stop_sequence": stop_sequence}, usage=counts)


MESSAGE_STOP = event("message_stop")
PING = event("ping")


def text_stream(*texts: str) -> list[bytes]:
    deltas = [delta(0, "text", text) for text in texts]
    return [start(), block_start(0), *deltas, stop(0), end(), MESSAGE_STOP]


def decode(*frames: bytes, quirks: Quirks | None = None) -> list[Event]:
    """All events, the order of which is checked."""
    decoder = CODEC.decoder(quirks or Quirks())
    checker = OrderChecker()
    events = [found for data in frames for found in decoder.feed(data)] + decoder.finish()
    for found in events:
        checker.feed(found)
    assert checker.ended
    return events


def context(**members: Any) -> ReplyContext:
    base: dict[str, Any] = {"input_estimate": 7, "block": lambda: BLOCK}
    return ReplyContext("r1", "trace-1", "client-model", 1_760_000_000, **{**base, **members})
