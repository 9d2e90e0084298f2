"""Shapes of a Responses request. No rules here, only what stands where; what is not listed is kept by name in `extras`.

Source: openai-python 3.57.0 types/responses/response_create_params.py, response_input_param.py; clients/requests of
Codex, opencode, the SDKs and pydantic-ai; protocol-facts.md section 2.1.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw


class Typed(msgspec.Struct, frozen=True):
    """Any input item or part: messages may leave their type out."""

    type: str | None = None
    role: str | None = None


class FormatIn(msgspec.Struct, frozen=True):
    type: str = "text"
    name: str | None = None
    schema: Raw = Raw()
    strict: bool | None = None
    description: str | None = None


class TextIn(msgspec.Struct, frozen=True):
    format: FormatIn | None = None
    verbosity: str | None = None


class ReasoningIn(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class NamedTool(msgspec.Struct, frozen=True):
    type: str = ""
    name: str | None = None


class ChoiceIn(msgspec.Struct, frozen=True):
    """`function`: Chat's nesting, which some clients keep."""

    type: str = ""
    name: str | None = None
    mode: str | None = None
    tools: list[NamedTool] | None = None
    function: NamedTool | None = None


class RequestIn(msgspec.Struct, frozen=True):
    model: str | None = None
    input: str | list[Raw] | None = None
    instructions: str | list[Raw] | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    tools: list[Raw] | None = None
    tool_choice: str | ChoiceIn | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningIn | None = None
    text: TextIn | None = None
    metadata: Raw = Raw()
    user: str | None = None


REQUEST = msgspec.json.Decoder(RequestIn)
TYPED = msgspec.json.Decoder(Typed)


# --- tools ---------------------------------------------------------------------------------------


class ToolIn(msgspec.Struct, frozen=True):
    """function, custom, namespace; any other type is opaque."""

    type: str = "function"
    name: str | None = None
    description: str | None = None
    parameters: Raw = Raw()
    strict: bool | None = None
    format: Raw = Raw()
    tools: list[Raw] | None = None
    function: Raw = Raw()
    """Chat's nesting."""


TOOL = msgspec.json.Decoder(ToolIn)


# --- input items ---------------------------------------------------------------------------------


class MessageIn(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Raw] | None = None


class PartIn(msgspec.Struct, frozen=True):
    """A content part of any known type. `image_url` may be Chat's object."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: Raw = Raw()
    file_id: str | None = None
    detail: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: Raw = Raw()


class UrlIn(msgspec.Struct, frozen=True):
    url: str
    detail: str | None = None


class AudioIn(msgspec.Struct, frozen=True):
    data: str
    format: str = "wav"


class CallIn(msgspec.Struct, frozen=True):
    """function_call and custom_tool_call."""

    name: str
    call_id: str | None = None
    id: str | None = None
    arguments: Raw = Raw()
    input: str | None = None
    namespace: str | None = None


class OutputIn(msgspec.Struct, frozen=True):
    """function_call_output and custom_tool_call_output."""

    call_id: str
    output: Raw = Raw()


class PieceIn(msgspec.Struct, frozen=True):
    text: str = ""


class ReasoningItemIn(msgspec.Struct, frozen=True):
    """Codex sends content null."""

    id: str | None = None
    summary: list[PieceIn] | None = None
    content: list[PieceIn] | None = None
    encrypted_content: str | None = None


class AdditionalToolsIn(msgspec.Struct, frozen=True):
    tools: list[Raw] = []


PART = msgspec.json.Decoder(PartIn)
URL = msgspec.json.Decoder(UrlIn)
AUDIO = msgspec.json.Decoder(AudioIn)
TEXT = msgspec.json.Decoder(str)
RAWS = msgspec.json.Decoder(list[Raw])
MESSAGE = msgspec.json.Decoder(MessageIn)
CALL = msgspec.json.Decoder(CallIn)
OUTPUT = msgspec.json.Decoder(OutputIn)
REASONING = msgspec.json.Decoder(ReasoningItemIn)
ADDITIONAL_TOOLS = msgspec.json.Decoder(AdditionalToolsIn)
