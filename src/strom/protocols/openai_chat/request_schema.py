"""The shapes of a Chat request's members, as typed structs. What is not listed is kept by name in `extras`.

Null means absent everywhere. Parts of content are read one by one, so that a part nobody knows is kept as it is.
Source: openai-python types/chat/completion_create_params.py (3.57.0); protocol-facts.md section 1.1.
"""

from __future__ import annotations

import msgspec

ABSENT = msgspec.Raw()


class ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class InputAudio(msgspec.Struct):
    data: str
    format: str = "wav"


class InputFile(msgspec.Struct):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class ContentPart(msgspec.Struct):
    """One part of a message's content; `type` says which member counts."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None
    input_audio: InputAudio | None = None
    file: InputFile | None = None
    cache_control: msgspec.Raw = ABSENT


class FunctionCall(msgspec.Struct):
    """`arguments` is a string; some clients send the object."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CustomCall(msgspec.Struct):
    name: str
    input: str = ""


class HistoryCall(msgspec.Struct):
    id: str | int | None = None
    type: str | None = None
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class ChatMessage(msgspec.Struct):
    """Any message; `role` says which members count. `reasoning` is mlx_lm's and vLLM's word for `reasoning_content`."""

    role: str
    content: str | list[msgspec.Raw] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[HistoryCall] | None = None
    function_call: FunctionCall | None = None
    tool_call_id: str | int | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    cache_control: msgspec.Raw = ABSENT


class FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT
    strict: bool | None = None


class CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: msgspec.Raw = ABSENT


class ToolShape(msgspec.Struct):
    type: str = "function"
    function: FunctionTool | None = None
    custom: CustomTool | None = None
    cache_control: msgspec.Raw = ABSENT


class NamedTool(msgspec.Struct):
    name: str


class AllowedEntry(msgspec.Struct):
    type: str = "function"
    function: NamedTool | None = None
    custom: NamedTool | None = None


class AllowedTools(msgspec.Struct):
    mode: str = "auto"
    tools: list[AllowedEntry] = []


class ChoiceShape(msgspec.Struct):
    """`tool_choice` or `function_call` as an object."""

    type: str = "function"
    name: str | None = None
    function: NamedTool | None = None
    custom: NamedTool | None = None
    allowed_tools: AllowedTools | None = None


class JsonSchemaShape(msgspec.Struct):
    name: str = "response"
    schema: msgspec.Raw = ABSENT
    strict: bool | None = None
    description: str | None = None


class FormatShape(msgspec.Struct):
    """`schema` beside json_object is llama.cpp's."""

    type: str
    json_schema: JsonSchemaShape | None = None
    schema: msgspec.Raw = ABSENT


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class TemplateArguments(msgspec.Struct):
    """`chat_template_kwargs` of local servers."""

    enable_thinking: bool | None = None


class ChatRequest(msgspec.Struct):
    """The members with a canonical place."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: msgspec.Raw = ABSENT
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: ChoiceShape | str | None = None
    functions: list[FunctionTool] | None = None
    function_call: ChoiceShape | str | None = None
    parallel_tool_calls: bool | None = None
    response_format: FormatShape | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    user: str | None = None
    metadata: msgspec.Raw = ABSENT


def is_set(raw: msgspec.Raw) -> bool:
    data = bytes(raw)
    return bool(data) and data != b"null"


def json_text(raw: msgspec.Raw) -> str:
    """The JSON as text; "" when absent or null."""
    return bytes(raw).decode("utf-8", "replace") if is_set(raw) else ""
