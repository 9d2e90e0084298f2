"""Canonical parts → content parts of input items. Source: protocol-facts.md sections 2.1, 6.4 and 6.5."""

from __future__ import annotations

from msgspec import Raw

from strom.core.errors import Unsupported
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses.schema import NAME
from strom.protocols.openai_responses.tools_out import Wire

_PDF = "application/pdf"


class PartEncoder:
    """`dropped` collects what could not be carried; what would change the meaning raises Unsupported.

    `own_files`: the request came in one of OpenAI's protocols, which share their file ids.
    """

    def __init__(self, quirks: Quirks, dropped: list[str], *, own_files: bool) -> None:
        self._quirks = quirks
        self._own_files = own_files
        self._dropped = dropped

    def input_part(self, part: Part, where: str) -> Wire | Raw | None:
        """A part of a user, system or developer message, or of a tool's output. None: left out, and named."""
        match part:
            case TextPart(text):
                return {"type": "input_text", "text": text}
            case RefusalPart(text):
                return {"type": "input_text", "text": text}
            case ImagePart():
                return self._image(part)
            case DocumentPart():
                return self._document(part)
            case AudioPart(data, audio_format):
                self._refuse_if_blind("audio")
                return {"type": "input_audio", "input_audio": {"data": data, "format": audio_format}}
            case OpaquePart(protocol, kind, json):
                if protocol == NAME:
                    if part.is_medium:
                        self._refuse_if_blind(kind)
                    return Raw(json.text.encode())
                self.leave_out(part, where)
                return None
            case ThinkingPart() | ToolCallPart() | ToolResultPart():
                self.leave_out(part, where, "out of its place")
                return None

    def leave_out(self, part: Part, where: str, place: str = "") -> None:
        """Names it; raises Unsupported for what the model would have to see or hear."""
        what = part.kind if isinstance(part, OpaquePart) else f"({type(part).__name__} {place})"
        if isinstance(part, ImagePart | DocumentPart | AudioPart) or (isinstance(part, OpaquePart) and part.is_medium):
            raise Unsupported(f"{where}: {what} cannot be sent to a Responses backend.", param="messages")
        self._dropped.append(f"{where} {what}")

    def output_part(self, part: TextPart | RefusalPart) -> Wire:
        """A part of an assistant message: what an output message holds."""
        if isinstance(part, RefusalPart):
            return {"type": "refusal", "refusal": part.text}
        return {"type": "output_text", "text": part.text, "annotations": []}

    def _image(self, part: ImagePart) -> Wire:
        self._refuse_if_blind("images")
        wire: Wire = {"type": "input_image"}
        if part.file_id:
            wire["file_id"] = self._own(part.file_id)
        else:
            wire["image_url"] = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
        wire["detail"] = part.detail or "auto"
        return wire

    def _document(self, part: DocumentPart) -> Wire:
        if part.text:
            head = "".join(f"{piece}\n\n" for piece in (part.name, part.context) if piece)
            return {"type": "input_text", "text": head + part.text}
        self._refuse_if_blind("documents")
        if part.file_id:
            return {"type": "input_file", "file_id": self._own(part.file_id)}
        if part.url:
            return {"type": "input_file", "file_url": part.url}
        media_type = part.media_type or _PDF
        name = part.name or ("document.pdf" if media_type == _PDF else "document")
        return {"type": "input_file", "filename": name, "file_data": f"data:{media_type};base64,{part.data}"}

    def _own(self, file_id: str) -> str:
        if not self._own_files:
            raise Unsupported("A file id is known to its own provider only: send the data.", param="messages")
        return file_id

    def _refuse_if_blind(self, what: str) -> None:
        if not self._quirks.images:
            raise Unsupported(f"The chosen backend takes text only, and the request holds {what}.")
