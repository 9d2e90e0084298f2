"""Pieces of a message: text, images, audio, video, documents; from a path, from bytes, or from a URL.

Each becomes a canonical part. What a provider cannot take is refused with `Unsupported` when the request is built, before
anything is sent.
"""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Self

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import AudioPart, DocumentPart, ImagePart, Json, OpaquePart, Part, TextPart

_DEFAULT_TYPE = "application/octet-stream"
_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


class Text(msgspec.Struct, frozen=True):
    text: str

    def canonical(self) -> Part:
        return TextPart(self.text)


class _Medium(msgspec.Struct, frozen=True):
    """Exactly one of `data` (raw bytes) and `url` is set."""

    data: bytes = b""
    url: str = ""
    media_type: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        """Raises BadRequest: a path or an address is no data."""
        if not isinstance(self.data, bytes):
            kind = type(self).__name__
            raise BadRequest(f"{kind}(data=) takes bytes: see {kind}.from_path and {kind}.from_url.", param="messages")

    @classmethod
    def from_path(cls, path: str | Path, media_type: str = "") -> Self:
        """Reads the file now. Raises BadRequest when it cannot be read."""
        file = Path(path)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise BadRequest(f"{file} cannot be read: {error.strerror}", param="messages") from error
        guessed = media_type or mimetypes.guess_type(file.name)[0] or _DEFAULT_TYPE
        return cls(data, "", guessed, file.name)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, name: str = "") -> Self:
        return cls(data, "", media_type, name)

    @classmethod
    def from_url(cls, url: str, media_type: str = "") -> Self:
        """An address the provider fetches, or a data: URI."""
        if not url.startswith("data:"):
            return cls(b"", url, media_type)
        head, found, body = url[5:].partition(",")
        kind, _, coding = head.partition(";")
        if not found or not coding.endswith("base64"):
            raise BadRequest("a data: URI has to be base64", param="messages")
        try:
            return cls(base64.b64decode(body, validate=True), "", kind or media_type)
        except ValueError:
            raise BadRequest("the data: URI is no valid base64", param="messages") from None

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode("ascii")


class Image(_Medium, frozen=True):
    """A picture.

    >>> Image.from_url("https://example.org/cat.png").url
    'https://example.org/cat.png'
    """

    def canonical(self) -> Part:
        return ImagePart(self.media_type, self.base64 if self.data else "", self.url)


class Document(_Medium, frozen=True):
    """A PDF or a text."""

    def canonical(self) -> Part:
        if self.media_type.startswith("text/"):
            return DocumentPart(self.media_type, text=self.data.decode("utf-8", "replace"), name=self.name)
        return DocumentPart(self.media_type, self.base64 if self.data else "", url=self.url, name=self.name)


class Audio(_Medium, frozen=True):
    """WAV or MP3, as data."""

    def canonical(self) -> Part:
        form = _AUDIO_FORMATS.get(self.media_type)
        if form is None or not self.data:
            raise BadRequest("audio has to be WAV or MP3, given as data and not as a URL", param="messages")
        return AudioPart(self.base64, form)


VIDEO_KIND = "video_url"
"""The part of Chat bodies that carries a video. Source: docs.vllm.ai, "Multimodal Inputs"; openrouter.ai/docs, "Video"."""


class Video(_Medium, frozen=True):
    """For Chat servers that take `video_url` parts."""

    def canonical(self) -> Part:
        url = self.url or f"data:{self.media_type or 'video/mp4'};base64,{self.base64}"
        body = msgspec.json.encode({"type": VIDEO_KIND, VIDEO_KIND: {"url": url}})
        return OpaquePart("openai-chat", VIDEO_KIND, Json(body.decode()))


Medium = Text | Image | Audio | Video | Document
