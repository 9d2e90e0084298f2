"""Where in a recorded body its frames lie, which of them bear a token, and which one is the terminator.

Structure alone is read, of any of the four protocols: server-sent events or JSON lines. A frame bears a token when it has a
non-empty text or argument fragment; a terminator is `[DONE]`, `message_stop`, `response.completed|incomplete|failed` or an
object with `done: true`. Source: streams.md sections 1 and 7.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from strom.wire.ndjson import NdjsonParser
from strom.wire.sse import SseParser

_TOKEN_MEMBERS = frozenset(
    {
        "content",
        "reasoning_content",
        "reasoning",
        "text",
        "thinking",
        "partial_json",
        "arguments",
        "response",
        "refusal",
    }
)
_TOKEN_EVENTS = (".delta",)
_TERMINAL_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_SUMMARIES = ("response.", "message_start")


class Frame(msgspec.Struct, frozen=True):
    """`start` and `end` are offsets in the body; `end` is behind the frame's own line ends."""

    start: int
    end: int
    bears_token: bool
    is_terminator: bool


def frames(body: bytes, content_type: str) -> list[Frame]:
    """Empty for a body that is no stream."""
    if "ndjson" in content_type:
        return list(_locate((line, line) for line in NdjsonParser(len(body)).feed(body)))
    if "event-stream" not in content_type:
        return []
    return list(_locate((frame.raw, frame.data or b"") for frame in SseParser(len(body)).feed(body)))


def token_offset(found: list[Frame], count: int, size: int) -> int:
    """Behind the `count`-th frame that bears a token; the end of the body when there are fewer."""
    if count == 0:
        return next((frame.start for frame in found if frame.bears_token), size)
    bearing = [frame.end for frame in found if frame.bears_token]
    return bearing[count - 1] if count <= len(bearing) else size


def _locate(parts: Iterator[tuple[bytes, bytes]]) -> Iterator[Frame]:
    at = 0
    for raw, data in parts:
        value = _parse(data)
        yield Frame(at, at + len(raw), _bears_token(value), _is_terminator(data, value))
        at += len(raw)


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_terminator(data: bytes, value: Any) -> bool:
    if data.strip() == b"[DONE]":
        return True
    return isinstance(value, dict) and (value.get("type") in _TERMINAL_TYPES or value.get("done") is True)


def _bears_token(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if isinstance(kind, str) and kind.startswith(_SUMMARIES):
        return kind.endswith(_TOKEN_EVENTS) and bool(value.get("delta"))
    return _holds_text(value)


def _holds_text(value: Any) -> bool:
    """Whether a token member somewhere inside has text in it, or (Ollama's arguments) is an object."""
    if isinstance(value, list):
        return any(_holds_text(item) for item in value)
    if not isinstance(value, dict):
        return False
    return any(
        (name in _TOKEN_MEMBERS and (bool(item) if isinstance(item, str) else name == "arguments" and item is not None))
        or _holds_text(item)
        for name, item in value.items()
        if name not in ("logprobs", "error")
    )
