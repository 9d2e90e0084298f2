"""Wire shapes of Anthropic Messages. No rules here, only what stands where.

`Raw` fields are JSON kept as bytes: empty when the member is absent, `null` when it is null (see `present`).
Source: anthropic-python 2.14.0 types (2026-11), recordings of llama.cpp and vLLM for what they leave out or add.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw

Shape = TypeVar("Shape")
ENCODER = msgspec.json.Encoder()


def present(raw: Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def text_of(raw: Raw) -> str:
    return bytes(raw).decode()


def read(decoder: msgspec.json.Decoder[Shape], data: bytes | Raw) -> Shape:
    """Raises ValueError, whatever is wrong with the JSON. What passes whole can be taken apart without further errors."""
    if isinstance(data, bytes) and not data.isascii():
        data.decode()  # the one thing that msgspec does not check in members that nobody reads
    try:
        return decoder.decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# --- request -------------------------------------------------------------------------------------


class Typed(msgspec.Struct, frozen=True):
    type: str = ""


class MessageIn(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Raw] | None = None


class ToolChoiceIn(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class ThinkingIn(msgspec.Struct, frozen=True):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class FormatIn(msgspec.Struct, frozen=True):
    type: str = ""
    schema: Raw = Raw()


class OutputConfigIn(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: FormatIn | None = None


class MetadataIn(msgspec.Struct, frozen=True):
    user_id: str | None = None


class RequestIn(msgspec.Struct, frozen=True):
    model: str
    messages: list[MessageIn]
    max_tokens: int | None = None
    system: str | list[Raw] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: list[Raw] | None = None
    tool_choice: ToolChoiceIn | None = None
    thinking: ThinkingIn | None = None
    metadata: MetadataIn | None = None
    output_config: OutputConfigIn | None = None
    output_format: FormatIn | None = None


class ToolIn(msgspec.Struct, frozen=True):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = Raw()
    cache_control: Raw = Raw()
    strict: bool | None = None


class TextIn(msgspec.Struct, frozen=True):
    text: str
    cache_control: Raw = Raw()
    citations: Raw = Raw()


class SourceIn(msgspec.Struct, frozen=True):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    content: str | list[Raw] | None = None


class ImageIn(msgspec.Struct, frozen=True):
    source: SourceIn
    cache_control: Raw = Raw()


class DocumentIn(msgspec.Struct, frozen=True):
    source: SourceIn
    title: str | None = None
    context: str | None = None
    citations: Raw = Raw()
    cache_control: Raw = Raw()


class SearchResultIn(msgspec.Struct, frozen=True):
    source: str = ""
    title: str = ""
    content: list[Raw] = []
    citations: Raw = Raw()
    cache_control: Raw = Raw()


class ToolUseIn(msgspec.Struct, frozen=True):
    id: str
    name: str
    input: Raw = Raw()
    cache_control: Raw = Raw()


class ToolResultIn(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: str | list[Raw] | None = None
    is_error: bool | None = None
    cache_control: Raw = Raw()


class ThinkingBlockIn(msgspec.Struct, frozen=True):
    thinking: str = ""
    signature: str | None = None


class RedactedIn(msgspec.Struct, frozen=True):
    data: str


# --- blocks as they go out -----------------------------------------------------------------------


class TextOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    text: str
    cache_control: Raw | None = None
    citations: Raw | None = None


class SourceOut(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""


class ImageOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image"):
    source: SourceOut
    cache_control: Raw | None = None


class DocumentOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="document"):
    source: SourceOut
    title: str = ""
    context: str = ""
    citations: Raw | None = None
    cache_control: Raw | None = None


class SearchResultOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="search_result"):
    source: str
    title: str
    content: tuple[TextOut, ...]
    citations: Raw | None = None
    cache_control: Raw | None = None


class ToolUseOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Raw
    cache_control: Raw | None = None


class ToolResultOut(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | tuple[object, ...] = ()
    is_error: bool | None = None
    cache_control: Raw | None = None


class ThinkingOut(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class RedactedOut(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    data: str


BlockOut = (
    TextOut | ImageOut | DocumentOut | SearchResultOut | ToolUseOut | ToolResultOut | ThinkingOut | RedactedOut | Raw
)


class TurnOut(msgspec.Struct, frozen=True):
    role: str
    content: list[BlockOut]


class ToolOut(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    input_schema: Raw
    description: str = ""
    strict: bool | None = None
    cache_control: Raw | None = None


# --- reply and stream ----------------------------------------------------------------------------


class UsageIn(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: Raw = Raw()


class OutputDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    thinking_tokens: int | None = None


class UsageOut(msgspec.Struct, frozen=True, omit_defaults=True):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class BlockIn(msgspec.Struct, frozen=True):
    """A content block of a reply, or the start of one in a stream. Ids are sometimes numbers."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | int | None = None
    name: str | None = None
    input: Raw = Raw()
    citations: list[Raw] | None = None


class DeltaIn(msgspec.Struct, frozen=True):
    """Of a content_block_delta, or of a message_delta."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Raw = Raw()
    stop_reason: str | int | None = None
    stop_sequence: str | None = None


class StartIn(msgspec.Struct, frozen=True):
    """`message` of message_start."""

    id: str | int | None = None
    type: str | None = None
    role: str | None = None
    model: str | None = None
    content: Raw = Raw()
    stop_reason: Raw = Raw()
    usage: Raw = Raw()


class FrameIn(msgspec.Struct, frozen=True):
    """Any event of a stream."""

    type: str = ""
    index: int | None = None
    delta: DeltaIn | None = None
    content_block: Raw = Raw()
    message: StartIn | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


class ReplyIn(msgspec.Struct, frozen=True):
    id: str | int | None = None
    type: str | None = None
    role: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | int | None = None
    stop_sequence: str | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


class ReplyOut(msgspec.Struct, frozen=True):
    id: str
    model: str
    content: list[BlockOut]
    stop_reason: str
    stop_sequence: str | None
    usage: UsageOut
    type: str = "message"
    role: str = "assistant"
