"""Canonical messages → Ollama's.

Leading system texts become one system message; later ones stay where they stand (or, where the template takes none, go into the
user's or tool's text before them), never between a call and its result. Calls carry no ids: a result names its tool, looked up
in the history, and results stand in the order of their calls. Content is a string, images raw base64 beside it. Earlier
thinking goes back only within the current tool loop (templates drop the rest), unless the request came in Ollama's words.
Source: protocol-facts.md sections 4, 6.3 to 6.6; case 134.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RefusalPart,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.codec import Target
from strom.protocols.ollama.arguments import arguments_object
from strom.protocols.ollama.encode_media import document_text, image_data
from strom.protocols.ollama.losses import Losses
from strom.protocols.ollama.schema import NAME

Name = Callable[[str, str], str]
"""(namespace, name) → the name upstream."""


class FunctionOut(msgspec.Struct):
    name: str
    arguments: Raw


class CallOut(msgspec.Struct):
    function: FunctionOut


class MessageOut(msgspec.Struct, omit_defaults=True):
    role: str
    content: str
    thinking: str = ""
    images: list[str] = []
    tool_calls: list[CallOut] = []
    tool_name: str = ""


class MessagesOut:
    """Encodes the messages of one request. `name` gives tools their names upstream."""

    def __init__(self, request: Request, target: Target, name: Name, losses: Losses) -> None:
        self._request = request
        self._quirks = target.quirks
        self._name = name
        self._losses = losses
        self._out: list[MessageOut] = []
        self._deferred: list[str] = []  # system texts that would stand between a call and its result
        self._called: dict[str, str] = {}  # id of a call → its tool's name upstream, in the order of the calls

    def encode(self) -> list[MessageOut]:
        """Raises Unsupported, BadRequest."""
        messages = self._request.messages
        loop_start = -1 if self._request.protocol == NAME else _last_question(messages)
        for at, message in enumerate(messages):
            if message.name:
                self._losses.add("name of a message")
            match message.role:
                case "system" | "developer":
                    self._system(message, f"messages[{at}]")
                case "user":
                    self._user(message, f"messages[{at}]")
                case "assistant":
                    self._assistant(message, f"messages[{at}]", with_thinking=at > loop_start)
                case _:
                    assert_never(message.role)
        self._place_deferred()
        if not self._out:
            raise BadRequest("messages: there is nothing to say to the model", param="messages")
        return self._out

    # --- system texts ---

    def _system(self, message: Message, where: str) -> None:
        text, images = self._contents(message.parts, where, "\n\n")
        if images:
            raise Unsupported(
                f"{where}: an image in a system message cannot be sent to an Ollama backend.", param="messages"
            )
        if not text:
            return
        last = self._out[-1] if self._out else None
        if last is None:
            self._out.append(MessageOut("system", text))
        elif last.role == "system" and len(self._out) == 1:
            last.content += "\n\n" + text
        elif last.tool_calls:
            self._deferred.append(text)
        else:
            self._place_system(text)

    def _place_system(self, text: str) -> None:
        last = self._out[-1]
        if self._quirks.mid_system:
            self._out.append(MessageOut("system", text))
        elif last.role in ("user", "tool"):
            last.content += "\n\n" + text
        else:
            self._out.append(MessageOut("user", text))

    def _place_deferred(self) -> None:
        for text in self._deferred:
            self._place_system(text)
        self._deferred.clear()

    # --- turns ---

    def _user(self, message: Message, where: str) -> None:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        places = {call_id: place for place, call_id in enumerate(self._called)}
        for result in sorted(results, key=lambda part: places.get(part.call_id, len(places))):
            self._result(result, where)
        text, images = self._contents([part for part in message.parts if part not in results], where, "\n\n")
        if results or text or images:
            self._place_deferred()
        if text or images:
            self._out.append(MessageOut("user", text, images=images))

    def _result(self, part: ToolResultPart, where: str) -> None:
        if part.cache_control is not None:
            self._losses.add("cache_control")
        text, images = self._contents(part.content, where, "\n")
        if part.is_error and not text.startswith("Error"):
            text = f"Error: {text}"
        name = self._called.get(part.call_id) or (self._name("", part.name) if part.name else "")
        self._out.append(MessageOut("tool", text, images=images, tool_name=name))

    def _assistant(self, message: Message, where: str, *, with_thinking: bool) -> None:
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCallPart)]
        thoughts = [part for part in message.parts if isinstance(part, ThinkingPart)]
        said = [part for part in message.parts if not isinstance(part, ToolCallPart | ThinkingPart)]
        if any(part.encrypted for part in thoughts):
            self._losses.add("encrypted thinking")
        thinking = "".join(part.text for part in thoughts) if with_thinking else ""
        text, images = self._contents(said, where, "")
        self._place_deferred()
        if text or thinking or calls or images:
            self._out.append(MessageOut("assistant", text, thinking, images, calls))

    def _call(self, part: ToolCallPart) -> CallOut:
        if part.cache_control is not None:
            self._losses.add("cache_control")
        name = self._called[part.call_id] = self._name(part.namespace, part.name)
        return CallOut(FunctionOut(name, Raw(arguments_object(part.arguments, custom=part.custom))))

    # --- parts ---

    def _contents(self, parts: Sequence[Part], where: str, between: str) -> tuple[str, list[str]]:
        """Text, joined, and images. Raises Unsupported for what the model would have to see and cannot be sent."""
        images: list[str] = []
        texts = [text for part in parts if (text := self._part(part, where, images))]
        return between.join(texts), images

    def _part(self, part: Part, where: str, images: list[str]) -> str:
        if getattr(part, "cache_control", None) is not None:
            self._losses.add("cache_control")
        match part:
            case TextPart(text) | RefusalPart(text):
                return text
            case ImagePart():
                if not self._quirks.images:
                    raise Unsupported(f"{where}: this backend takes text only, no images.", param="messages")
                images.append(image_data(part, where, self._losses))
                return ""
            case DocumentPart():
                return document_text(part, where)
            case AudioPart():
                raise Unsupported(f"{where}: audio cannot be sent to an Ollama backend.", param="messages")
            case OpaquePart(_, kind, _):
                if part.is_medium:
                    raise Unsupported(f"{where}: {kind} cannot be sent to an Ollama backend.", param="messages")
                self._losses.add(f"{where} {kind}")
                return ""
            case ThinkingPart() | ToolCallPart() | ToolResultPart():
                self._losses.add(f"{where} {type(part).__name__} in this place")
                return ""
            case _:
                assert_never(part)


def _last_question(messages: Sequence[Message]) -> int:
    """Place of the last user message that asks something itself: what follows is the current tool loop."""
    asked = [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and any(not isinstance(part, ToolResultPart) for part in message.parts)
    ]
    return asked[-1] if asked else -1
