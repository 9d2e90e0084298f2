"""What a stream gives its reader: any number of pieces, then exactly one terminal event, then nothing.

Terminal are `StreamCompleted` (the end is proven, and it is a success) and `StreamError` (anything else; what came before is
evidence, never a result). Product reference: product.md section 6; rules: streams.md section 1.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import msgspec

from strom.client.evidence import CompletionMetadata, ToolCall
from strom.core.errors import StromError


class StreamErrorReason(enum.StrEnum):
    """Why a stream is no success."""

    INCOMPLETE_COMPLETION = "incomplete_completion"
    """The stream is whole, the answer is not: `length`, `content_filter`, no reason at all, or not the object asked for."""
    INCOMPLETE_STREAM = "incomplete_stream"
    """The bytes ended without the protocol's terminator."""
    PROVIDER_ERROR = "provider_error"
    """The upstream reported an error inside its stream."""
    UNEXPECTED_TOOL_CALLS = "unexpected_tool_calls"
    """The model calls tools that nobody offered (any more)."""
    INVALID_STREAM_EVENT = "invalid_stream_event"
    """A frame that is no frame of its protocol."""
    REQUEST_FAILED = "request_failed"
    """Refused, unreachable, or timed out."""
    STREAM_EVENTS_UNSUPPORTED = "stream_events_unsupported"
    """This upstream cannot stream. Nothing was sent."""
    CANCELLED = "cancelled"
    """`cancel()`. What the remote side does after its connection closed is unknown."""


class StreamContent(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer's text, never empty."""

    type: ClassVar[str] = "content"
    text: str


class StreamThinking(msgspec.Struct, frozen=True, gc=False):
    """A piece of the model's reasoning, never empty."""

    type: ClassVar[str] = "thinking"
    text: str


class StreamToolCall(msgspec.Struct, frozen=True):
    """A complete tool call, its arguments parsed."""

    type: ClassVar[str] = "tool_call"
    call: ToolCall


class StreamToolResult(msgspec.Struct, frozen=True):
    """What a tool gave back. `error` says why it failed, None when it did not; then `result` is None."""

    type: ClassVar[str] = "tool_result"
    call_id: str
    result: Any
    name: str = ""
    error: str | None = None


class StreamPartial(msgspec.Struct, frozen=True):
    """The part of a structured answer that is known so far, as plain lists and dicts. Not validated yet."""

    type: ClassVar[str] = "partial"
    value: Any


class StreamCompleted(msgspec.Struct, frozen=True):
    """Terminal: success, proven. `value`: the validated object of `into=`, or what an exit tool returned; else None."""

    type: ClassVar[str] = "completed"
    metadata: CompletionMetadata
    value: Any = None


class StreamError(msgspec.Struct, frozen=True):
    """Terminal: no success. `error`: the typed error behind it, where there is one."""

    type: ClassVar[str] = "error"
    reason: StreamErrorReason
    detail: str
    metadata: CompletionMetadata
    error: StromError | None = None


StreamEvent = (
    StreamContent | StreamThinking | StreamToolCall | StreamToolResult | StreamPartial | StreamCompleted | StreamError
)


class StreamChunk(msgspec.Struct, frozen=True, gc=False):
    """A piece in the view of `Stream.chunks`: exactly one of both is set."""

    text: str = ""
    thinking: str = ""


class StreamDone(msgspec.Struct, frozen=True):
    """The end in the view of `Stream.chunks`, exactly once and only after success."""

    finish_reason: str | None
    metadata: CompletionMetadata
