"""What an ended answer amounts to, and the words for it. Pure. Source: streams.md sections 1 and 3."""

from __future__ import annotations

from typing import Any

import msgspec

from strom.client.events import StreamErrorReason
from strom.client.evidence import ToolCall
from strom.core.errors import (
    ContentPolicy,
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    StromError,
)
from strom.core.messages import Part, RefusalPart, TextPart, ThinkingPart
from strom.core.usage import Usage
from strom.transport.types import Headers

SURPRISES = {
    StreamErrorReason.UNEXPECTED_TOOL_CALLS: "The model calls a tool although none was offered.",
    StreamErrorReason.INVALID_STREAM_EVENT: "The upstream sent more than one choice although one was asked for.",
}
_ENDS = frozenset(("stop", "stop_sequence"))


class Shortfall(msgspec.Struct, frozen=True):
    """Why a proven end is no success."""

    detail: str
    error: StromError | None = None


def judge(reason: str, parts: tuple[Part, ...], calls: tuple[ToolCall, ...]) -> Shortfall | None:
    """None: success, that is `stop`, or calls where tools are in play."""
    if any(isinstance(part, RefusalPart) and part.text for part in parts):
        return Shortfall("The model refused to answer.", ContentPolicy("The model refused to answer."))
    if reason in _ENDS or (reason == "tool_calls" and calls):
        return None
    match reason:
        case "content_filter" | "refusal":
            message = f"The provider held the answer back ({reason})."
            return Shortfall(message, ContentPolicy(message))
        case "length" if not any(isinstance(part, TextPart) for part in parts) and _reasoned(parts):
            return Shortfall("The token limit was reached while the model was still reasoning: raise max_tokens.")
        case "length":
            return Shortfall(
                "The answer is cut off at the token limit (length): raise max_tokens, or continue_from it."
            )
        case "tool_calls":
            return Shortfall("The model says that it calls tools, and calls none.")
        case _:
            return Shortfall(f"The answer is not complete: the model ended with {reason!r}.")


def _reasoned(parts: tuple[Part, ...]) -> bool:
    return any(isinstance(part, ThinkingPart) for part in parts)


def reason_of(error: StromError, *, refused: bool) -> StreamErrorReason:
    """Where in the stream an error stands."""
    if refused:
        return StreamErrorReason.REQUEST_FAILED
    match error:
        case IncompleteStream():
            return StreamErrorReason.INCOMPLETE_STREAM
        case IncompleteCompletion():
            return StreamErrorReason.INCOMPLETE_COMPLETION
        case InvalidStreamEvent():
            return StreamErrorReason.INVALID_STREAM_EVENT
        case _:
            return StreamErrorReason.PROVIDER_ERROR


def repair_request(problem: str) -> str:
    return f"That is not the object that was asked for: {problem}\nAnswer again with the corrected JSON object alone."


_KEPT_HEADERS = (
    b"x-request-id",
    b"request-id",
    b"x-strom-trace-id",
    b"retry-after",
    b"openai-processing-ms",
    b"warning",
)


def provider_metadata(headers: Headers, usage: Usage | None) -> dict[str, Any]:
    """What this provider reports under its own names: ids and rate limits of the head, durations of the usage."""
    found: dict[str, Any] = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name in _KEPT_HEADERS or b"ratelimit" in name
    }
    if usage is not None:
        found.update(usage.durations)
    return found
