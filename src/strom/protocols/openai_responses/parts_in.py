"""Content parts of input messages and tool outputs → canonical parts. Source: protocol-facts.md sections 2.1 and 6.4."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Json,
    OpaquePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
)
from strom.protocols.openai_responses import request_schema as shapes
from strom.protocols.openai_responses.request_schema import PartIn
from strom.protocols.openai_responses.schema import NAME, Shape, present, read, text_of

_DATA_URI = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,", re.IGNORECASE)


def read_at(decoder: msgspec.json.Decoder[Shape], raw: Raw, where: str) -> Shape:
    """Raises BadRequest that names the place."""
    try:
        return read(decoder, raw)
    except ValueError as error:
        raise BadRequest(f"{where}: {error}", param=where) from None


def content_parts(content: str | list[Raw] | None, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    return tuple(_part(raw, f"{where}[{at}]") for at, raw in enumerate(content or ()))


def output_parts(raw: Raw, where: str) -> tuple[TextPart | ImagePart | DocumentPart | OpaquePart, ...]:
    """A tool's output: a string, parts, or (older Codex) an object, whose JSON is the text."""
    data = bytes(raw)
    if not present(raw):
        return ()
    if data.startswith(b'"'):
        return (TextPart(read_at(shapes.TEXT, raw, where)),)
    if not data.startswith(b"["):
        return (TextPart(text_of(raw)),)
    parts = content_parts(read_at(shapes.RAWS, raw, where), where)
    return tuple(_of_output(part, where) for part in parts)


def _of_output(part: Part, where: str) -> TextPart | ImagePart | DocumentPart | OpaquePart:
    if isinstance(part, TextPart | ImagePart | DocumentPart | OpaquePart):
        return part
    raise BadRequest(f"{where}: a tool's output holds text, images and files only", param=where)


def _part(raw: Raw, where: str) -> Part:
    if bytes(raw).startswith(b'"'):
        return TextPart(read_at(shapes.TEXT, raw, where))
    part = read_at(shapes.PART, raw, where)
    reader = _READERS.get(part.type)
    if reader is not None:
        return reader(part, raw, where)
    if not part.type:
        raise BadRequest(f"{where}: a content part needs a type", param=where)
    return OpaquePart(NAME, part.type, Json(text_of(raw)))


def _text(part: PartIn, raw: Raw, where: str) -> Part:
    if part.text is None:
        raise BadRequest(f"{where}.text: is missing", param=f"{where}.text")
    return TextPart(part.text)


def _refusal(part: PartIn, raw: Raw, where: str) -> Part:
    return RefusalPart(part.refusal or part.text or "")


def _thinking(part: PartIn, raw: Raw, where: str) -> Part:
    return ThinkingPart(part.text or "")


def _image(part: PartIn, raw: Raw, where: str) -> Part:
    detail = part.detail or ""
    if part.file_id:
        return ImagePart(file_id=part.file_id, detail=detail)
    if not present(part.image_url):
        raise BadRequest(f"{where}: an image needs image_url or file_id", param=where)
    if bytes(part.image_url).startswith(b"{"):
        shape = read_at(shapes.URL, part.image_url, f"{where}.image_url")
        url, detail = shape.url, detail or shape.detail or ""
    else:
        url = read_at(shapes.TEXT, part.image_url, f"{where}.image_url")
    media_type, data = split_data_uri(url)
    if data:
        return ImagePart(media_type, data=data, detail=detail)
    return ImagePart(url=url, detail=detail)


def _file(part: PartIn, raw: Raw, where: str) -> Part:
    name = part.filename or ""
    if part.file_data:
        media_type, data = split_data_uri(part.file_data)
        return DocumentPart(media_type or "application/pdf", data=data or part.file_data, name=name)
    if part.file_url:
        return DocumentPart(url=part.file_url, name=name)
    if part.file_id:
        return DocumentPart(file_id=part.file_id, name=name)
    raise BadRequest(f"{where}: a file needs file_data, file_url or file_id", param=where)


def _audio(part: PartIn, raw: Raw, where: str) -> Part:
    audio = read_at(shapes.AUDIO, part.input_audio, f"{where}.input_audio")
    return AudioPart(audio.data, audio.format)


def split_data_uri(text: str) -> tuple[str, str]:
    """(media type, base64 data) of a base64 data: URI; two empty strings for anything else."""
    found = _DATA_URI.match(text)
    return (found[1], text[found.end() :]) if found is not None else ("", "")


_READERS: dict[str, Callable[[PartIn, Raw, str], Part]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "refusal": _refusal,
    "summary_text": _thinking,
    "reasoning_text": _thinking,
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
