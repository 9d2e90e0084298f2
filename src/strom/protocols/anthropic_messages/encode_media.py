"""Images and documents in Anthropic's words.

An image is base64 or a URL; a document base64 PDF, plain text or a URL. File ids belong to the provider that gave them.
Source: protocol-facts.md section 6.4.
"""

from __future__ import annotations

from base64 import b64decode

from msgspec import Raw

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import DocumentPart, ImagePart, Json
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.decode_blocks import SEARCH_RESULT

PDF = "application/pdf"


def marker(json: Json | None) -> Raw | None:
    return Raw(json.text.encode()) if json is not None else None


def split_data_uri(url: str) -> tuple[str, str]:
    """data:TYPE;base64,DATA → (TYPE, DATA). Raises BadRequest for any other data URI."""
    head, comma, data = url.partition(",")
    media_type, semicolon, encoding = head.removeprefix("data:").partition(";")
    if not comma or not semicolon or not encoding.endswith("base64"):
        raise BadRequest("A data URI must be base64: data:TYPE;base64,…")
    return media_type, data


class MediaEncoder:
    """`native`: the request came in this protocol, so file ids are Anthropic's. `images`: whether the upstream takes any."""

    def __init__(self, dropped: list[str], *, native: bool, images: bool) -> None:
        self._native = native
        self._images = images
        self._dropped = dropped

    def encode(self, part: ImagePart | DocumentPart, where: str) -> schema.BlockOut:
        if not self._images and not (isinstance(part, DocumentPart) and part.text):
            raise Unsupported(f"{where}: this backend takes text only.", param=where)
        return self._image(part, where) if isinstance(part, ImagePart) else self._document(part, where)

    def _image(self, part: ImagePart, where: str) -> schema.BlockOut:
        if part.detail not in ("", "auto"):
            self._dropped.append(f"{where} image detail")
        media_type, data, url = part.media_type, part.data, part.url
        if url.startswith("data:"):
            media_type, data = split_data_uri(url)
        if data:
            source = schema.SourceOut("base64", media_type or "image/png", data)
        elif url:
            source = schema.SourceOut("url", url=url)
        else:
            source = self._file(part.file_id, where)
        return schema.ImageOut(source, marker(part.cache_control))

    def _document(self, part: DocumentPart, where: str) -> schema.BlockOut:
        cached = marker(part.cache_control)
        if part.media_type == SEARCH_RESULT:
            content = (schema.TextOut(part.text),)
            return schema.SearchResultOut(part.context, part.name, content, marker(part.citations), cached)
        source = self._document_source(part, where)
        return schema.DocumentOut(source, part.name, part.context, marker(part.citations), cached)

    def _document_source(self, part: DocumentPart, where: str) -> schema.SourceOut:
        media_type, data, url = part.media_type, part.data, part.url
        if url.startswith("data:"):
            media_type, data = split_data_uri(url)
        elif data.startswith("data:"):
            media_type, data = split_data_uri(data)
        if part.text:
            return schema.SourceOut("text", "text/plain", part.text)
        if data and media_type.startswith("text/"):
            return schema.SourceOut("text", "text/plain", _decoded(data, where))
        if data and media_type in ("", PDF):
            return schema.SourceOut("base64", PDF, data)
        if data:
            raise Unsupported(f"{where}: a document of type {media_type} cannot be sent to this backend.", param=where)
        return schema.SourceOut("url", url=url) if url else self._file(part.file_id, where)

    def _file(self, file_id: str, where: str) -> schema.SourceOut:
        if not self._native or not file_id:
            raise Unsupported(f"{where}: a file id is known to its own provider only; send the data.", param=where)
        return schema.SourceOut("file", file_id=file_id)


def _decoded(data: str, where: str) -> str:
    try:
        return b64decode(data).decode()
    except ValueError:
        raise BadRequest(f"{where}: the document is not base64 text in UTF-8.", param=where) from None
