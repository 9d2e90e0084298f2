"""Content blocks of a Messages request → parts.

Blocks that only Anthropic knows stay opaque. Ids that this protocol's encoder made legal are turned back (core/ids.py), so
the upstream sees its own ids again. Source: protocol-facts.md section 3.1 (SDK types).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from strom.core import ids
from strom.core.errors import BadRequest
from strom.core.messages import (
    DocumentPart,
    ImagePart,
    Json,
    OpaquePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.anthropic_messages import carry, schema

NAME = "anthropic"
SEARCH_RESULT = "application/x-search-result"
"""Media type of a text document that came as a search_result block; its `context` is the source."""

TEXT = msgspec.json.Decoder(schema.TextIn)
_TYPED = msgspec.json.Decoder(schema.Typed)
_IMAGE = msgspec.json.Decoder(schema.ImageIn)
_DOCUMENT = msgspec.json.Decoder(schema.DocumentIn)
_SEARCH_RESULT = msgspec.json.Decoder(schema.SearchResultIn)
_TOOL_USE = msgspec.json.Decoder(schema.ToolUseIn)
_TOOL_RESULT = msgspec.json.Decoder(schema.ToolResultIn)
_THINKING = msgspec.json.Decoder(schema.ThinkingBlockIn)
_REDACTED = msgspec.json.Decoder(schema.RedactedIn)


def read_parts(content: str | Sequence[Raw] | None, where: str) -> tuple[Part, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    return tuple(_part(raw, f"{where}[{at}]") for at, raw in enumerate(content))


def _part(raw: Raw, where: str) -> Part:
    kind = read_shape(_TYPED, raw, where).type
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(raw, where)
    if not kind:
        raise BadRequest(f"{where}: a content block needs a type", param=where)
    return OpaquePart(NAME, kind, json_of(raw))


def _read_text(raw: Raw, where: str) -> Part:
    return text_part(read_shape(TEXT, raw, where))


def text_part(text: schema.TextIn) -> TextPart:
    return TextPart(text.text, optional(text.cache_control), optional(text.citations))


def _read_image(raw: Raw, where: str) -> Part:
    image = read_shape(_IMAGE, raw, where)
    source, marker = image.source, optional(image.cache_control)
    match source.type:
        case "base64":
            return ImagePart(source.media_type, data=source.data, cache_control=marker)
        case "url":
            return ImagePart(url=source.url, cache_control=marker)
        case "file":
            return ImagePart(file_id=source.file_id, cache_control=marker)
        case _:
            return OpaquePart(NAME, "image", json_of(raw))


def _read_document(raw: Raw, where: str) -> Part:
    block = read_shape(_DOCUMENT, raw, where)
    source = block.source
    document = DocumentPart(
        source.media_type,
        name=block.title or "",
        context=block.context or "",
        citations=optional(block.citations),
        cache_control=optional(block.cache_control),
    )
    match source.type:
        case "base64":
            return msgspec.structs.replace(document, data=source.data)
        case "text":
            return msgspec.structs.replace(document, text=source.data)
        case "url":
            return msgspec.structs.replace(document, url=source.url)
        case "file":
            return msgspec.structs.replace(document, file_id=source.file_id)
        case "content":
            parts = read_parts(source.content, f"{where}.source.content")
            if all(isinstance(part, TextPart) for part in parts):
                return msgspec.structs.replace(document, text=_joined(parts), media_type="text/plain")
    return OpaquePart(NAME, "document", json_of(raw))


def _read_search_result(raw: Raw, where: str) -> Part:
    result = read_shape(_SEARCH_RESULT, raw, where)
    return DocumentPart(
        SEARCH_RESULT,
        text=_joined(read_parts(result.content, f"{where}.content")),
        name=result.title,
        context=result.source,
        citations=optional(result.citations),
        cache_control=optional(result.cache_control),
    )


def _joined(parts: Sequence[Part]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _read_tool_use(raw: Raw, where: str) -> Part:
    call = read_shape(_TOOL_USE, raw, where)
    arguments = schema.text_of(call.input) if schema.present(call.input) else ""
    return ToolCallPart(ids.from_legal(call.id), call.name, arguments, cache_control=optional(call.cache_control))


def _read_tool_result(raw: Raw, where: str) -> Part:
    result = read_shape(_TOOL_RESULT, raw, where)
    content = tuple(_result_part(part, where) for part in read_parts(result.content, f"{where}.content"))
    call_id = ids.from_legal(result.tool_use_id)
    return ToolResultPart(call_id, content, result.is_error, cache_control=optional(result.cache_control))


def _result_part(part: Part, where: str) -> TextPart | ImagePart | DocumentPart | OpaquePart:
    if isinstance(part, TextPart | ImagePart | DocumentPart | OpaquePart):
        return part
    raise BadRequest(f"{where}: a tool_result holds text, images and documents only", param=where)


def _read_thinking(raw: Raw, where: str) -> Part:
    block = read_shape(_THINKING, raw, where)
    if not block.signature:
        return ThinkingPart(block.thinking)
    maker, item_id, signature = carry.unpack(block.signature)
    return ThinkingPart(block.thinking, signature, origin=maker, item_id=item_id)


def _read_redacted(raw: Raw, where: str) -> Part:
    maker, item_id, data = carry.unpack(read_shape(_REDACTED, raw, where).data)
    return ThinkingPart(encrypted=data, origin=maker, item_id=item_id)


_READERS: dict[str, Callable[[Raw, str], Part]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
    "search_result": _read_search_result,
    "tool_use": _read_tool_use,
    "tool_result": _read_tool_result,
    "thinking": _read_thinking,
    "redacted_thinking": _read_redacted,
}


def read_shape(decoder: msgspec.json.Decoder[schema.Shape], raw: Raw, where: str) -> schema.Shape:
    try:
        return schema.read(decoder, raw)
    except ValueError as error:
        raise BadRequest(f"{where}: {error}", param=where) from None


def json_of(raw: Raw) -> Json:
    return Json(schema.text_of(raw))


def optional(raw: Raw) -> Json | None:
    return json_of(raw) if schema.present(raw) else None
