"""Writes a conversation's messages for a Chat upstream.

Content of text alone is a string: many servers take nothing else. Results are text: an image or file inside of one is sent in
the user message that follows, with a placeholder in its place. Earlier reasoning goes back only within the current tool loop
(templates drop the rest), signatures and encrypted reasoning never. Parts nobody can carry are left out and named.
Source: protocol-facts.md sections 1.1, 6.3 to 6.6.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import Unsupported
from strom.core.ids import MAX_LENGTH, to_legal
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
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat.request_messages import text_of
from strom.protocols.openai_chat.tools_out import ToolNames
from strom.protocols.openai_chat.turns_out import Dropped
from strom.wire.splice import append_member

JSON = msgspec.json.Encoder().encode
_PARSE = msgspec.json.Decoder()
ORIGIN = "openai-chat"
PLACEHOLDERS = {ImagePart: "[image attached below]", DocumentPart: "[document attached below]"}


class _Url(msgspec.Struct, omit_defaults=True):
    url: str
    detail: str = ""


class _Audio(msgspec.Struct):
    data: str
    format: str


class _File(msgspec.Struct, omit_defaults=True):
    filename: str = ""
    file_data: str = ""
    file_id: str = ""


class _Part(msgspec.Struct, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: _Url | None = None
    input_audio: _Audio | None = None
    file: _File | None = None
    cache_control: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Custom(msgspec.Struct):
    name: str
    input: str


class _Call(msgspec.Struct, omit_defaults=True):
    id: str
    type: str
    function: _Function | None = None
    custom: _Custom | None = None


Content = str | list[msgspec.Raw] | None


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | list[msgspec.Raw] | None
    name: str = ""
    tool_call_id: str = ""
    tool_calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET


class MessagesOut:
    """Encodes the messages of one request."""

    def __init__(self, protocol: str, quirks: Quirks, names: ToolNames, dropped: Dropped) -> None:
        self._native = protocol == ORIGIN
        self._own_files = protocol.startswith("openai")  # Chat and Responses share their file ids
        self._quirks = quirks
        self._names = names
        self._dropped = dropped

    def encode(self, turns: list[Message]) -> bytes:
        """Raises Unsupported for what the upstream cannot be sent and the answer would need."""
        loop_start = _last_question(turns)
        out: list[bytes] = []
        for number, message in enumerate(turns):
            match message.role:
                case "system" | "developer":
                    out.append(self._system(message))
                case "user":
                    out.extend(self._user(message))
                case "assistant":
                    out.extend(self._assistant(message, with_reasoning=self._native or number > loop_start))
        return b"[" + b",".join(out) + b"]"

    def _system(self, message: Message) -> bytes:
        role = "developer" if message.role == "developer" and self._quirks.developer_role else "system"
        return JSON(_Message(role, self._content(message.parts), message.name))

    # --- user messages and results -------------------------------------------------------------------

    def _user(self, message: Message) -> list[bytes]:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        attached: list[Part] = []
        out = [self._result(result, attached) for result in results]
        rest = attached + [part for part in message.parts if not isinstance(part, ToolResultPart)]
        content = self._content(tuple(rest)) if rest else None
        if content:
            out.append(JSON(_Message("user", content, message.name)))
        return out

    def _result(self, result: ToolResultPart, attached: list[Part]) -> bytes:
        """One tool message; what is no text goes into `attached`."""
        texts = [self._result_text(part, attached) for part in result.content]
        text = "\n".join(text for text in texts if text)
        if result.is_error and not text.startswith("Error"):
            text = f"Error: {text}"
        content: Content = text
        if self._wants_marker(result.cache_control):
            content = [self._part_json(_Part("text", text), result.cache_control)]
        return JSON(_Message("tool", content, tool_call_id=_legal_id(result.call_id)))

    def _result_text(self, part: TextPart | ImagePart | DocumentPart | OpaquePart, attached: list[Part]) -> str:
        match part:
            case TextPart(text):
                self._wants_marker(part.cache_control)
                return text
            case ImagePart() | DocumentPart():
                document = _document_text(part) if isinstance(part, DocumentPart) else None
                if document is not None:
                    return document
                self._need_attachments("images and documents in tool results")
                attached.append(part)
                return PLACEHOLDERS[type(part)]
            case OpaquePart():
                self._leave_out(part, f"{part.kind} in a tool result")
                return ""

    def _content(self, parts: tuple[Part, ...]) -> Content:
        """A string when there is text only, else a list of parts; empty texts are left out."""
        kept = [part for part in parts if not (isinstance(part, TextPart) and not part.text)]
        marked = any(self._wants_marker(_marker(part)) for part in kept)
        texts = [_plain_text(part) for part in kept]
        if not marked and all(text is not None for text in texts):
            return "\n\n".join(text for text in texts if text)
        encoded = [self._part(part) for part in kept]
        return [part for part in encoded if part is not None]

    def _part(self, part: Part) -> msgspec.Raw | None:
        match part:
            case TextPart() | RefusalPart():
                return self._part_json(_Part("text", part.text), _marker(part))
            case ImagePart():
                return self._part_json(_Part("image_url", image_url=self._image(part)), part.cache_control)
            case DocumentPart():
                return self._document(part)
            case AudioPart(data, form):
                self._need_attachments("audio")
                return self._part_json(_Part("input_audio", input_audio=_Audio(data, form)), None)
            case OpaquePart(protocol, kind, json):
                if protocol == ORIGIN and self._native:
                    if part.is_medium:
                        self._need_attachments(kind)
                    return msgspec.Raw(json.text.encode())
                self._leave_out(part, kind)
                return None
            case ThinkingPart() | ToolCallPart() | ToolResultPart():
                return None  # have no place in content

    def _image(self, part: ImagePart) -> _Url:
        self._need_attachments("images")
        if part.file_id:
            raise Unsupported("An image given by file id cannot be sent to this backend.", param="messages")
        url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data}"
        return _Url(url, part.detail)

    def _document(self, part: DocumentPart) -> msgspec.Raw:
        text = _document_text(part)
        if text is not None:
            return self._part_json(_Part("text", text), part.cache_control)
        self._need_attachments("documents")
        if part.file_id and self._own_files:
            file = _File(part.name, file_id=part.file_id)
        elif part.data:
            file = _File(part.name or "document.pdf", f"data:{part.media_type or 'application/pdf'};base64,{part.data}")
        else:
            raise Unsupported("A document given by URL or file id cannot be sent to this backend.", param="messages")
        return self._part_json(_Part("file", file=file), part.cache_control)

    def _leave_out(self, part: OpaquePart, what: str) -> None:
        if part.is_medium:
            raise Unsupported(f"{what} cannot be sent to this backend.", param="messages")
        self._dropped.add(what)

    def _need_attachments(self, what: str) -> None:
        if not self._quirks.images:
            raise Unsupported(f"The backend takes text only: {what} cannot be sent to it.", param="messages")

    def _part_json(self, part: _Part, marker: Json | None) -> msgspec.Raw:
        if marker is not None and self._wants_marker(marker):
            part.cache_control = msgspec.Raw(marker.text.encode())
        return msgspec.Raw(JSON(part))

    def _wants_marker(self, marker: Json | None) -> bool:
        """Whether this cache marker goes out; if not, that is noted."""
        if marker is None:
            return False
        if not self._quirks.cache_control:
            self._dropped.add("cache_control")
        return self._quirks.cache_control

    # --- the assistant's turns -------------------------------------------------------------------------

    def _assistant(self, message: Message, *, with_reasoning: bool) -> list[bytes]:
        said = tuple(part for part in message.parts if isinstance(part, TextPart | RefusalPart | OpaquePart))
        text = "".join(part.text for part in said if isinstance(part, TextPart | RefusalPart))
        for part in said:
            if isinstance(part, OpaquePart):
                self._leave_out(part, part.kind)
            elif isinstance(part, TextPart):
                self._wants_marker(part.cache_control)
        if any(isinstance(part, ImagePart | DocumentPart | AudioPart) for part in message.parts):
            raise Unsupported("Media in an assistant message cannot be sent to this backend.", param="messages")
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCallPart)]
        if not text and not calls:
            return []
        data = JSON(_Message("assistant", text or None, message.name, tool_calls=calls or msgspec.UNSET))
        thinking = "".join(part.text for part in message.parts if isinstance(part, ThinkingPart))
        if thinking and with_reasoning and self._quirks.reasoning_field:
            data = append_member(data, self._quirks.reasoning_field, JSON(thinking))
        return [data]

    def _call(self, part: ToolCallPart) -> _Call:
        self._wants_marker(part.cache_control)
        name = self._names.outgoing(part.name, part.namespace)
        if part.custom and self._native:
            return _Call(_legal_id(part.call_id), "custom", custom=_Custom(name, part.arguments))
        wrapped = JSON({"input": part.arguments}).decode() if part.custom else _valid_arguments(part.arguments)
        return _Call(_legal_id(part.call_id), "function", _Function(name, wrapped))


def _legal_id(call_id: str) -> str:
    return to_legal(call_id) if len(call_id) > MAX_LENGTH else call_id


def _valid_arguments(arguments: str) -> str:
    """JSON in any case: mlx_lm parses the history, and fails on anything else."""
    if not arguments.strip():
        return "{}"
    try:
        _PARSE.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return JSON({"_raw": arguments}).decode()
    return arguments


def _marker(part: Part) -> Json | None:
    return part.cache_control if isinstance(part, TextPart | ImagePart | DocumentPart) else None


def _plain_text(part: Part) -> str | None:
    """What a part amounts to as text; None when it is more than text."""
    match part:
        case TextPart(text) | RefusalPart(text):
            return text
        case DocumentPart():
            return _document_text(part)
        case _:
            return None


def _document_text(part: DocumentPart) -> str | None:
    """A text document with its name and context; None for any other."""
    text = part.text
    if not text and part.data and part.media_type.startswith("text/"):
        text = text_of(part.data)
    if not text:
        return None
    return "\n".join(piece for piece in (part.name, part.context, text) if piece)


def _last_question(turns: list[Message]) -> int:
    """Number of the last user message that asks something itself: what follows is the current tool loop."""
    for number in range(len(turns) - 1, -1, -1):
        message = turns[number]
        if message.role == "user" and any(not isinstance(part, ToolResultPart) for part in message.parts):
            return number
    return -1
