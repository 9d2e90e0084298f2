"""Reads a Chat request.

`max_completion_tokens` wins over `max_tokens`; `functions` and `function_call` are read as tools. Top-level members without a
canonical place go into `extras` as they came, so that nothing is lost on the way to an upstream of the same protocol.
Source: protocol-facts.md section 1.1; requests of openai-python, openai-js, ai-sdk, opencode and pydantic-ai.
"""

from __future__ import annotations

import re

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import Json, OpaquePart, Reasoning, Request, ResponseFormat, Sampling, Tool, ToolChoice
from strom.protocols.openai_chat.request_messages import decode_messages
from strom.protocols.openai_chat.request_schema import (
    ChatRequest,
    ChoiceShape,
    FormatShape,
    FunctionTool,
    JsonSchemaShape,
    TemplateArguments,
    ToolShape,
    is_set,
    json_text,
)
from strom.wire.splice import raw_members

_REQUEST = msgspec.json.Decoder(ChatRequest)
_TOOL = msgspec.json.Decoder(ToolShape)
_TEMPLATE = msgspec.json.Decoder(TemplateArguments)
_KNOWN = frozenset(ChatRequest.__struct_fields__)
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"^Object missing required field `(\w+)`$")


def decode_request(body: bytes) -> Request:
    """Raises BadRequest."""
    try:
        if not body.isascii():
            body.decode()
        members = raw_members(body)
        shape = _REQUEST.decode(body)
        if not shape.messages:
            raise BadRequest("messages must not be empty.", param="messages")
        return _request(shape, members)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is no JSON object: {error}") from None


def bad_request(words: str) -> BadRequest:
    """A validation message as an error that names the member."""
    missing = _MISSING.search(words)
    if missing is not None:
        return BadRequest(f"{missing[1]} is required.", param=missing[1])
    found = _PATH.search(words)
    path = found[1] if found is not None else None
    message = f"{path}: {words[: found.start()]}" if found is not None and path else words
    return BadRequest(message, param=path or None)


def _request(shape: ChatRequest, members: dict[str, msgspec.Raw]) -> Request:
    options = shape.stream_options
    limit = shape.max_completion_tokens if shape.max_completion_tokens is not None else shape.max_tokens
    stop = (shape.stop,) if isinstance(shape.stop, str) else tuple(shape.stop or ())
    return Request(
        protocol="openai-chat",
        model=shape.model,
        messages=decode_messages(shape.messages),
        tools=_tools(shape),
        tool_choice=_tool_choice(shape),
        parallel_tool_calls=shape.parallel_tool_calls,
        max_output_tokens=limit,
        stop=stop,
        sampling=_sampling(shape),
        response_format=_response_format(shape.response_format),
        reasoning=_reasoning(shape, members),
        stream=bool(shape.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        user=shape.user or "",
        metadata=Json(json_text(shape.metadata)) if is_set(shape.metadata) else None,
        verbosity=shape.verbosity or "",
        extras=_extras(members),
    )


def _extras(members: dict[str, msgspec.Raw]) -> tuple[tuple[str, Json], ...]:
    if _KNOWN.issuperset(members):
        return ()
    unknown = [(name, bytes(value)) for name, value in members.items() if name not in _KNOWN]
    return tuple((name, Json(value.decode("utf-8", "replace"))) for name, value in unknown if value != b"null")


def _sampling(shape: ChatRequest) -> Sampling:
    return Sampling(
        temperature=shape.temperature,
        top_p=shape.top_p,
        top_k=shape.top_k,
        min_p=shape.min_p,
        seed=shape.seed,
        frequency_penalty=shape.frequency_penalty,
        presence_penalty=shape.presence_penalty,
        repetition_penalty=shape.repetition_penalty,
        logit_bias=Json(json_text(shape.logit_bias)) if is_set(shape.logit_bias) else None,
        logprobs=shape.logprobs,
        top_logprobs=shape.top_logprobs,
        n=shape.n,
    )


def _reasoning(shape: ChatRequest, members: dict[str, msgspec.Raw]) -> Reasoning | None:
    """`reasoning_effort`, or `chat_template_kwargs.enable_thinking`, which local servers take."""
    if shape.reasoning_effort:
        return Reasoning(enabled=shape.reasoning_effort != "none", effort=shape.reasoning_effort)
    template = members.get("chat_template_kwargs")
    if template is None:
        return None
    try:
        arguments = _TEMPLATE.decode(template)
    except msgspec.ValidationError:
        return None
    return Reasoning(enabled=arguments.enable_thinking) if arguments.enable_thinking is not None else None


def _response_format(shape: FormatShape | None) -> ResponseFormat | None:
    if shape is None or shape.type not in ("json_object", "json_schema"):
        return None
    if shape.type == "json_object" and not is_set(shape.schema):
        return ResponseFormat("json_object")
    schema = shape.json_schema or JsonSchemaShape(schema=shape.schema)
    return ResponseFormat("json_schema", schema.name, json_text(schema.schema), schema.strict, schema.description or "")


def _tools(shape: ChatRequest) -> tuple[Tool, ...]:
    tools = [_tool(raw) for raw in shape.tools or ()]
    return (*tools, *(_function(function) for function in shape.functions or ()))


def _tool(raw: msgspec.Raw) -> Tool:
    shape = _TOOL.decode(raw)
    marker = Json(json_text(shape.cache_control)) if is_set(shape.cache_control) else None
    if shape.type == "function" and shape.function is not None:
        return _function(shape.function, marker)
    if shape.type == "custom" and shape.custom is not None:
        custom = shape.custom
        wanted = Json(json_text(custom.format)) if is_set(custom.format) else None
        return Tool(custom.name, custom.description or "", custom=True, format=wanted, cache_control=marker)
    return Tool(shape.type, opaque=OpaquePart("openai-chat", shape.type, Json(json_text(raw))))


def _function(function: FunctionTool, marker: Json | None = None) -> Tool:
    return Tool(
        function.name,
        function.description or "",
        json_text(function.parameters),
        function.strict,
        cache_control=marker,
    )


def _tool_choice(shape: ChatRequest) -> ToolChoice | None:
    chosen = shape.tool_choice if shape.tool_choice is not None else shape.function_call
    if chosen is None:
        return None
    if isinstance(chosen, ChoiceShape):
        return _chosen(chosen)
    match chosen:
        case "auto" | "none" | "required":
            return ToolChoice(chosen)
        case _:
            raise BadRequest("tool_choice must be none, auto, required, or an object.", param="tool_choice")


def _chosen(chosen: ChoiceShape) -> ToolChoice:
    if chosen.allowed_tools is not None:
        entries = [entry.function or entry.custom for entry in chosen.allowed_tools.tools]
        names = tuple(entry.name for entry in entries if entry is not None)
        return ToolChoice("allowed", allowed=names, required=chosen.allowed_tools.mode == "required")
    named = chosen.function or chosen.custom
    name = named.name if named is not None else chosen.name
    if not name:
        raise BadRequest("tool_choice names no tool.", param="tool_choice")
    return ToolChoice("named", name)
