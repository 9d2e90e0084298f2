"""Input items → canonical messages.

Messages stay where they stand, developer and system messages too. What the model said in one turn (reasoning, text,
calls) becomes one assistant message: calls that are not set apart by their outputs belong together, for Chat and
Anthropic take all results of a turn at once. Outputs in a row become one user message. Items only this protocol knows
stay opaque, in the message of the side that wrote them. Source: protocol-facts.md sections 2.1 and 6.3;
clients/requests/codex.*.json.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import (
    Json,
    Message,
    OpaquePart,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.openai_responses import carry
from strom.protocols.openai_responses import request_schema as shapes
from strom.protocols.openai_responses.parts_in import content_parts, output_parts, read_at
from strom.protocols.openai_responses.schema import NAME, present, text_of

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}


class Conversation:
    """Takes items in order; `messages` is what they amount to. `tools`: those that came as items."""

    def __init__(self) -> None:
        self.tools: list[Raw] = []
        self._messages: list[Message] = []
        self._turn: list[Part] = []  # what the model said since anybody else did
        self._results: list[Part] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self._messages)

    def take(self, raw: Raw, where: str) -> None:
        """Raises BadRequest."""
        head = read_at(shapes.TYPED, raw, where)
        kind = head.type or ("message" if head.role is not None else "")
        if not kind:
            raise BadRequest(f"{where}: an input item needs a type or a role", param=where)
        reader = _READERS.get(kind)
        if reader is not None:
            reader(self, raw, where)
        else:
            self._opaque(kind, raw)

    def add(self, message: Message) -> None:
        self._end_turn()
        self._messages.append(message)

    # --- one reader per item type ---

    def _message(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.MESSAGE, raw, where)
        role = _ROLES.get(item.role)
        if role is None:
            raise BadRequest(f"{where}.role: must be user, assistant, system or developer", param=f"{where}.role")
        parts = content_parts(item.content, f"{where}.content")
        if role == "assistant":
            self._say(parts, opens=True)
        else:
            self.add(Message(role, parts))

    def _call(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.CALL, raw, where)
        self._say((self._call_part(item, _arguments(item.arguments, where), custom=False),))

    def _custom_call(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.CALL, raw, where)
        self._say((self._call_part(item, item.input or "", custom=True),))

    @staticmethod
    def _call_part(item: shapes.CallIn, arguments: str, *, custom: bool) -> ToolCallPart:
        call_id = item.call_id or item.id or ""
        return ToolCallPart(call_id, item.name, arguments, custom, item.namespace or "", item.id or "")

    def _output(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.OUTPUT, raw, where)
        self._answer(ToolResultPart(item.call_id, output_parts(item.output, f"{where}.output")))

    def _custom_output(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.OUTPUT, raw, where)
        self._answer(ToolResultPart(item.call_id, output_parts(item.output, f"{where}.output"), custom=True))

    def _reasoning(self, raw: Raw, where: str) -> None:
        item = read_at(shapes.REASONING, raw, where)
        identity, encrypted = item.id or "", item.encrypted_content or ""
        text = "".join(piece.text for piece in item.content or ())
        text = text or "\n\n".join(piece.text for piece in item.summary or ())
        maker, kind, data = carry.unpack(encrypted)
        if not encrypted and carry.is_foreign(None, identity):
            part = ThinkingPart(text)
        elif kind == carry.REDACTED or (maker == NAME and not text):
            part = ThinkingPart(encrypted=data, origin=maker, item_id=identity)
        else:
            part = ThinkingPart(text, data, origin=maker, item_id=identity)
        self._say((part,), opens=True)

    def _additional_tools(self, raw: Raw, where: str) -> None:
        self.tools.extend(read_at(shapes.ADDITIONAL_TOOLS, raw, where).tools)

    def _opaque(self, kind: str, raw: Raw) -> None:
        part = OpaquePart(NAME, kind, Json(text_of(raw)))
        if kind.endswith("_output") or kind == "mcp_approval_response":
            self._answer(part)
        else:
            self._say((part,))

    # --- turns ---

    def _say(self, parts: tuple[Part, ...], *, opens: bool = False) -> None:
        """`opens`: a new message of the model's, unless calls or reasoning alone stand before it."""
        self._end_results()
        spoken = any(isinstance(part, TextPart) for part in self._turn)
        if opens and spoken and not any(isinstance(part, ToolCallPart) for part in self._turn):
            self._end_turn()
        self._turn.extend(parts)

    def _answer(self, part: Part) -> None:
        if self._turn:
            self._end_turn()
        self._results.append(part)

    def _end_results(self) -> None:
        if self._results:
            self._messages.append(Message("user", tuple(self._results)))
            self._results = []

    def _end_turn(self) -> None:
        self._end_results()
        if self._turn:
            self._messages.append(Message("assistant", tuple(self._turn)))
            self._turn = []


def _arguments(raw: Raw, where: str) -> str:
    """A JSON string's content; an object's JSON, as some clients send it."""
    if not present(raw):
        return ""
    if bytes(raw).startswith(b'"'):
        return read_at(shapes.TEXT, raw, f"{where}.arguments")
    return text_of(raw)


_READERS: dict[str, Callable[[Conversation, Raw, str], None]] = {
    "message": Conversation._message,
    "function_call": Conversation._call,
    "custom_tool_call": Conversation._custom_call,
    "function_call_output": Conversation._output,
    "custom_tool_call_output": Conversation._custom_output,
    "reasoning": Conversation._reasoning,
    "additional_tools": Conversation._additional_tools,
}
