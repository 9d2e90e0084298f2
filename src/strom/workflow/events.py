"""What a run publishes of a model's stream: the engine's events, of plain JSON values so that any runtime may keep them."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from workflows.events import Event, StopEvent

from strom.client.events import (
    StreamCompleted,
    StreamContent,
    StreamError,
    StreamEvent,
    StreamPartial,
    StreamThinking,
    StreamToolCall,
    StreamToolResult,
)
from strom.client.reply import Reply


class TextDelta(Event):
    """A piece of the answer's text, never empty."""

    text: str


class ThinkingDelta(Event):
    """A piece of the model's reasoning, never empty."""

    text: str


class PartialValue(Event):
    """The part of a structured answer that is known so far, not validated yet."""

    value: Any


class ToolCalled(Event):
    """The model calls a tool; its arguments are complete."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolReturned(Event):
    """What the tool gave back. `error` says why it failed, None when it did not."""

    call_id: str
    name: str
    value: Any = None
    error: str | None = None


class Answered(StopEvent):
    """The end of a run: a complete answer, proven. There is none for an incomplete one; its step fails with StreamFailed.

    `value`: the object of `into=` as plain JSON. `usage`, `timing`: the fields of `Usage` and `StreamMetrics`.
    """

    text: str
    thinking: str = ""
    value: Any = None
    finish_reason: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None

    @classmethod
    def of(cls, reply: Reply) -> Self:
        return cls(
            text=reply.text,
            thinking=reply.thinking,
            value=plain(reply.value),
            finish_reason=reply.finish_reason,
            model=reply.model,
            usage=plain(reply.usage),
            timing=plain(reply.timing),
        )


def published(event: StreamEvent) -> Event | None:
    """The workflow's event for one of the library's; None for the end, which is the step's own to say."""
    match event:
        case StreamContent(text):
            return TextDelta(text=text)
        case StreamThinking(text):
            return ThinkingDelta(text=text)
        case StreamPartial(value):
            return PartialValue(value=value)
        case StreamToolCall(call):
            return ToolCalled(call_id=call.id, name=call.name, arguments=call.arguments)
        case StreamToolResult(call_id, result, name, error):
            return ToolReturned(call_id=call_id, name=name, value=plain(result), error=error)
        case StreamCompleted() | StreamError():
            return None


def plain(value: Any) -> Any:
    """As JSON knows it; what JSON has no word for becomes its text."""
    return msgspec.to_builtins(value, enc_hook=_plain_object, str_keys=True)


def _plain_object(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else str(value)
