"""Reads a Chat request's messages.

A run of `tool` messages becomes one user message with their results. Reasoning stands before the text of its turn, calls
after it. Legacy `function_call` and `function` messages are given an id that pairs them. Parts nobody knows stay opaque.
Source: protocol-facts.md sections 1.1 and 6.3.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Json,
    Message,
    OpaquePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.openai_chat.request_schema import (
    ChatMessage,
    ContentPart,
    HistoryCall,
    ImageUrl,
    InputFile,
    is_set,
    json_text,
)
from strom.protocols.openai_chat.schema import arguments_text, id_text

_PART = msgspec.json.Decoder(ContentPart)
ORIGIN = "openai-chat"


def decode_messages(shapes: list[ChatMessage]) -> tuple[Message, ...]:
    """Raises BadRequest, and msgspec.ValidationError for a part of a wrong shape."""
    messages: list[Message] = []
    results: list[Part] = []
    legacy_id = ""
    for number, shape in enumerate(shapes):
        if shape.role in ("tool", "function"):
            call_id = id_text(shape.tool_call_id) or legacy_id
            results.append(_result(shape, call_id))
            continue
        if results:
            messages.append(Message("user", tuple(results)))
            results = []
        if shape.function_call is not None:
            legacy_id = f"call_legacy_{number}"
        messages.append(_message(shape, number, legacy_id))
    if results:
        messages.append(Message("user", tuple(results)))
    return tuple(messages)


def _message(shape: ChatMessage, number: int, legacy_id: str) -> Message:
    match shape.role:
        case "assistant":
            return Message("assistant", tuple(_assistant_parts(shape, legacy_id)), shape.name or "")
        case "system" | "developer" | "user":
            return Message(shape.role, tuple(_content(shape)), shape.name or "")
        case _:
            where = f"messages[{number}].role"
            raise BadRequest(f"{where}: {shape.role!r} is no role.", param=where)


def _content(shape: ChatMessage) -> list[Part]:
    if shape.content is None:
        return []
    if isinstance(shape.content, str):
        marker = Json(json_text(shape.cache_control)) if is_set(shape.cache_control) else None
        return [TextPart(shape.content, marker)]
    return [_part(raw) for raw in shape.content]


def _part(raw: msgspec.Raw) -> Part:
    shape = _PART.decode(raw)
    marker = Json(json_text(shape.cache_control)) if is_set(shape.cache_control) else None
    if shape.type in ("text", "input_text", "output_text") and shape.text is not None:
        return TextPart(shape.text, marker)
    if shape.type == "refusal" and shape.refusal is not None:
        return RefusalPart(shape.refusal)
    if shape.type == "image_url" and shape.image_url is not None:
        return _image(shape.image_url, marker)
    if shape.type == "input_audio" and shape.input_audio is not None:
        return AudioPart(shape.input_audio.data, shape.input_audio.format)
    if shape.type == "file" and shape.file is not None:
        return _file(shape.file, marker)
    return OpaquePart(ORIGIN, shape.type, Json(json_text(raw)))


def _image(shape: ImageUrl | str, marker: Json | None) -> ImagePart:
    url, detail = (shape, "") if isinstance(shape, str) else (shape.url, shape.detail or "")
    data = split_data_url(url)
    if data is None:
        return ImagePart(url=url, detail=detail, cache_control=marker)
    return ImagePart(media_type=data[0], data=data[1], detail=detail, cache_control=marker)


def split_data_url(url: str) -> tuple[str, str] | None:
    """(media type, base64) of a `data:` URL, None for any other."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")].partition(";")[0], data


def _file(shape: InputFile, marker: Json | None) -> DocumentPart:
    name = shape.filename or ""
    if shape.file_data is None:
        return DocumentPart(file_id=shape.file_id or "", name=name, cache_control=marker)
    media_type, data = split_data_url(shape.file_data) or ("application/pdf", shape.file_data)
    if media_type.startswith("text/"):
        return DocumentPart(media_type, text=text_of(data), name=name, cache_control=marker)
    return DocumentPart(media_type, data, name=name, cache_control=marker)


def text_of(data: str) -> str:
    """The text in base64. Raises BadRequest when it is none."""
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise BadRequest("A text document is no valid base64.") from None


def _assistant_parts(shape: ChatMessage, legacy_id: str) -> list[Part]:
    parts: list[Part] = []
    thinking = shape.reasoning_content or shape.reasoning
    if thinking:
        parts.append(ThinkingPart(thinking))
    parts.extend(part for part in _content(shape) if part != TextPart(""))
    if shape.refusal:
        parts.append(RefusalPart(shape.refusal))
    for call in shape.tool_calls or ():
        parts.append(_call(call))
    if shape.function_call is not None and not shape.tool_calls:
        function = shape.function_call
        parts.append(ToolCallPart(legacy_id, function.name, arguments_text(function.arguments)))
    return parts


def _call(shape: HistoryCall) -> ToolCallPart:
    call_id = id_text(shape.id)
    if shape.custom is not None:
        return ToolCallPart(call_id, shape.custom.name, shape.custom.input, custom=True)
    if shape.function is None:
        raise BadRequest("A tool call has neither function nor custom.", param="messages")
    return ToolCallPart(call_id, shape.function.name, arguments_text(shape.function.arguments))


def _result(shape: ChatMessage, call_id: str) -> ToolResultPart:
    return ToolResultPart(call_id, tuple(_result_part(part) for part in _content(shape)), name=shape.name or "")


def _result_part(part: Part) -> TextPart | ImagePart | DocumentPart | OpaquePart:
    match part:
        case TextPart() | ImagePart() | DocumentPart() | OpaquePart():
            return part
        case RefusalPart(text):
            return TextPart(text)
        case _:
            raise BadRequest("A tool message holds text, images and files only.", param="messages")
