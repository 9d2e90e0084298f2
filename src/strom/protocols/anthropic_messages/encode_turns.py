"""Canonical messages → Anthropic's turns.

The API wants: the first turn from the user, no two turns of one role in a row, no empty text, every result of a turn's calls at
the head of the next user turn, ids of `[A-Za-z0-9_-]`, thinking only with its signature. System text in front goes to the
`system` field; later system text stays where it stands: folded into the user turn around it, never hoisted (that would
change the head of the prompt each turn and lose the cache), never between a call and its result; requests that came in
this protocol keep their system turns. Source: protocol-facts.md sections 3.1, 6.3, 6.4; anthropic API errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import Raw

from strom.core import ids
from strom.core.errors import Unsupported
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
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.encode_media import MediaEncoder, marker
from strom.protocols.anthropic_messages.encode_tools import NAME, ToolPlan
from strom.protocols.codec import Target

PLACEHOLDER = "."
"""Text of the user turn that has to stand first and does not."""
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


class TurnEncoder:
    """Encodes the messages of one request; names in `dropped` what it leaves out."""

    def __init__(self, request: Request, target: Target, tools: ToolPlan, dropped: list[str]) -> None:
        self._request = request
        self._tools = tools
        self._dropped = dropped
        self._media = MediaEncoder(dropped, native=request.protocol == NAME, images=target.quirks.images)
        self._blind = not target.quirks.images
        self._native_system = request.protocol == NAME and target.quirks.mid_system
        self._turns: list[schema.TurnOut] = []

    def encode(self, messages: Sequence[Message], first: int) -> list[schema.TurnOut]:
        """`messages` without the leading system ones; `first` is the place of the first one in the request."""
        for at, message in enumerate(messages, first):
            role, blocks = self._message(message, f"messages[{at}]")
            self._append(role, blocks)
        turns = self._turns
        if not turns or turns[0].role != "user":
            turns.insert(0, schema.TurnOut("user", [schema.TextOut(PLACEHOLDER)]))
            self._dropped.append("messages (a user turn was put first)")
        for previous, turn in zip([None, *turns[:-1]], turns, strict=True):
            if turn.role == "user":
                _results_first(turn.content, previous)
        _trim_prefill(turns)
        return turns

    def system_blocks(self, messages: Sequence[Message]) -> list[schema.TextOut]:
        blocks: list[schema.TextOut] = []
        for at, message in enumerate(messages):
            for part in message.parts:
                if isinstance(part, TextPart):
                    if part.text:
                        blocks.append(schema.TextOut(part.text, marker(part.cache_control)))
                else:
                    self._leave_out(part, f"messages[{at}]", "in a system message")
        return blocks

    def _append(self, role: str, blocks: list[schema.BlockOut]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1].role == role:
            self._turns[-1].content.extend(blocks)
        else:
            self._turns.append(schema.TurnOut(role, blocks))

    def _message(self, message: Message, where: str) -> tuple[str, list[schema.BlockOut]]:
        match message.role:
            case "user":
                return "user", self._blocks(message.parts, where)
            case "assistant":
                return "assistant", self._blocks(message.parts, where, assistant=True)
            case "system" | "developer":
                for part in message.parts:
                    if not isinstance(part, TextPart):
                        self._leave_out(part, where, "in a system message")
                blocks = self._blocks([part for part in message.parts if isinstance(part, TextPart)], where)
                keep = self._native_system and not (self._turns and _has_calls(self._turns[-1]))
                return "system" if keep else "user", blocks
            case _:
                assert_never(message.role)

    def _blocks(self, parts: Sequence[Part], where: str, *, assistant: bool = False) -> list[schema.BlockOut]:
        blocks: list[schema.BlockOut] = []
        for part in parts:
            block = self._assistant_block(part, where) if assistant else self._block(part, where)
            if block is not None:
                blocks.append(block)
        return blocks

    def _assistant_block(self, part: Part, where: str) -> schema.BlockOut | None:
        if isinstance(part, ImagePart | DocumentPart):
            self._leave_out(part, where, "of the assistant")
            return None
        return self._block(part, where)

    def _leave_out(self, part: Part, where: str, place: str = "") -> None:
        """Names it; raises Unsupported for what the model would have to see or hear."""
        kind = part.kind if isinstance(part, OpaquePart) else type(part).__name__
        what = f"{kind} {place}" if place else kind
        if isinstance(part, ImagePart | DocumentPart | AudioPart) or (isinstance(part, OpaquePart) and part.is_medium):
            raise Unsupported(f"{where}: {what} cannot be sent to an Anthropic backend.", param=where)
        self._dropped.append(f"{where} {what}")

    def _block(self, part: Part, where: str) -> schema.BlockOut | None:
        match part:
            case TextPart():
                return self._text(part)
            case RefusalPart(text):
                return schema.TextOut(text) if text else None
            case ImagePart() | DocumentPart():
                return self._media.encode(part, where)
            case ToolCallPart():
                return self._call(part, where)
            case ToolResultPart():
                return self._result(part, where)
            case ThinkingPart():
                return self._thinking(part, where)
            case OpaquePart(protocol, _, json) if protocol == NAME and not (self._blind and part.is_medium):
                return Raw(json.text.encode())
            case OpaquePart() | AudioPart():
                self._leave_out(part, where)
                return None
            case _:
                assert_never(part)

    def _text(self, part: TextPart) -> schema.TextOut | None:
        if not part.text:
            return None
        citations = marker(part.citations) if self._request.protocol == NAME else None
        return schema.TextOut(part.text, marker(part.cache_control), citations)

    def _call(self, part: ToolCallPart, where: str) -> schema.ToolUseOut:
        name = self._tools.name(part.namespace, part.name)
        arguments = schema.ENCODER.encode({"input": part.arguments}) if part.custom else self._arguments(part, where)
        return schema.ToolUseOut(ids.to_legal(part.call_id), name, Raw(arguments), marker(part.cache_control))

    def _arguments(self, part: ToolCallPart, where: str) -> bytes:
        """The arguments as they came when they are an object; else, named, the text as it is in one field."""
        data = part.arguments.encode("utf-8", "replace")
        if not data.strip():
            return b"{}"
        try:
            schema.read(_OBJECT, data)
        except ValueError:
            self._dropped.append(f"{where} arguments of {part.call_id} (no JSON object)")
            return schema.ENCODER.encode({"_raw": part.arguments})
        return data

    def _result(self, part: ToolResultPart, where: str) -> schema.ToolResultOut:
        blocks = self._blocks(part.content, where)
        plain = len(blocks) == 1 and isinstance(part.content[0], TextPart) and part.content[0].cache_control is None
        content: str | tuple[object, ...] = tuple(blocks)
        if plain and isinstance(blocks[0], schema.TextOut):
            content = blocks[0].text
        return schema.ToolResultOut(ids.to_legal(part.call_id), content, part.is_error, marker(part.cache_control))

    def _thinking(self, part: ThinkingPart, where: str) -> schema.BlockOut | None:
        """Only Anthropic's own, signed thinking may go back: anything else is a 400 "Invalid signature"."""
        if part.origin == NAME and part.encrypted:
            return schema.RedactedOut(part.encrypted)
        if part.origin == NAME and part.signature:
            return schema.ThinkingOut(part.text, part.signature)
        self._dropped.append(f"{where} thinking")
        return None


def _has_calls(turn: schema.TurnOut) -> bool:
    return turn.role == "assistant" and any(isinstance(block, schema.ToolUseOut) for block in turn.content)


def _results_first(blocks: list[schema.BlockOut], previous: schema.TurnOut | None) -> None:
    """Results in the order of their calls, then the rest in its own order."""
    if not any(isinstance(block, schema.ToolResultOut) for block in blocks):
        return
    calls = [block.id for block in previous.content if isinstance(block, schema.ToolUseOut)] if previous else []
    places = {call_id: at for at, call_id in enumerate(calls)}

    def place(block: schema.BlockOut) -> int:
        if isinstance(block, schema.ToolResultOut):
            return places.get(block.tool_use_id, len(places))
        return len(places) + 1

    blocks.sort(key=place)


def _trim_prefill(turns: list[schema.TurnOut]) -> None:
    """A trailing assistant turn (a prefill) must not end in white space."""
    last = turns[-1]
    if last.role != "assistant" or not isinstance(last.content[-1], schema.TextOut):
        return
    text = last.content[-1].text.rstrip()
    if text:
        last.content[-1] = msgspec.structs.replace(last.content[-1], text=text)
    else:
        last.content.pop()
    if not last.content:
        turns.pop()
