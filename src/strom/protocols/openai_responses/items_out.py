"""Canonical messages → input items.

Leading system messages become `instructions`; any other system or developer message stays in its place. An assistant
message becomes its reasoning, text and calls in order; a user message's tool results become items of their own,
before its text. Reasoning goes back to its maker only. Items have their full shape: llama.cpp refuses short ones
(recording fewshot_responses_tools).
Source: protocol-facts.md sections 2.1, 6.3 to 6.6; streams.md sections 4 and 5.
"""

from __future__ import annotations

from itertools import takewhile

from msgspec import Raw

from strom.core import ids
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.protocols.codec import Target
from strom.protocols.openai_responses.carry import REASONING_ID
from strom.protocols.openai_responses.parts_out import PartEncoder
from strom.protocols.openai_responses.schema import NAME
from strom.protocols.openai_responses.tool_plan import ToolPlan
from strom.protocols.openai_responses.tools_out import Wire

Item = Wire | Raw
Unspoken = ToolCallPart | ThinkingPart | OpaquePart | ImagePart | DocumentPart | AudioPart | ToolResultPart


def legal_call_id(call_id: str) -> str:
    """OpenAI takes at most 64 characters; of a shorter id every one is left as it is."""
    return call_id if 0 < len(call_id) <= ids.MAX_LENGTH else ids.to_legal(call_id)


class ItemEncoder:
    """`own_files`: the request came in one of OpenAI's protocols, which share their file ids."""

    def __init__(self, target: Target, tools: ToolPlan, dropped: list[str], *, own_files: bool) -> None:
        self._quirks = target.quirks
        self._tools = tools
        self._dropped = dropped
        self._parts = PartEncoder(target.quirks, dropped, own_files=own_files)
        self._thinking_dropped = False

    def encode(self, messages: tuple[Message, ...]) -> tuple[str, list[Item]]:
        """(instructions, input)."""
        leading = list(takewhile(lambda message: message.role == "system", messages))
        for at, message in enumerate(leading):
            for part in message.parts:
                if not isinstance(part, TextPart):
                    self._parts.leave_out(part, f"messages[{at}]", "in a system message")
        items: list[Item] = []
        for at, message in enumerate(messages[len(leading) :], len(leading)):
            items.extend(self._message(message, f"messages[{at}]"))
        return "\n\n".join(text for message in leading if (text := message.text)), items

    def _message(self, message: Message, where: str) -> list[Item]:
        match message.role:
            case "assistant":
                return self._assistant(message, where)
            case "user":
                return self._user(message, where)
            case "system" | "developer":
                return self._instruction(message, where)

    def _instruction(self, message: Message, where: str) -> list[Item]:
        """A system message between turns; where the upstream's template refuses those, the user says it."""
        return self._say("user" if not self._quirks.mid_system else message.role, message.parts, where)

    def _say(self, role: str, parts: tuple[Part, ...], where: str) -> list[Item]:
        encoded = [self._parts.input_part(part, f"{where}[{at}]") for at, part in enumerate(parts)]
        content = [part for part in encoded if part is not None]
        return [{"type": "message", "role": role, "content": content}] if content else []

    # --- what the user said ---

    def _user(self, message: Message, where: str) -> list[Item]:
        items: list[Item] = []
        rest: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                items.append(self._result(part, where))
            elif isinstance(part, OpaquePart) and part.protocol == NAME and not part.kind.startswith(_NO_PARTS):
                items.append(Raw(part.json.text.encode()))
            else:
                rest.append(part)
        return items + self._say("user", tuple(rest), where)

    def _result(self, part: ToolResultPart, where: str) -> Item:
        custom = part.custom and self._tools.keeps_custom
        kind = "custom_tool_call_output" if custom else "function_call_output"
        return {"type": kind, "call_id": legal_call_id(part.call_id), "output": self._output(part, where)}

    def _output(self, part: ToolResultPart, where: str) -> str | list[Wire | Raw]:
        """Text as a string, which every server takes; with anything else in it a list of parts."""
        error = "Error: " if part.is_error else ""
        if all(isinstance(inner, TextPart) for inner in part.content):
            return error + "\n".join(inner.text for inner in part.content if isinstance(inner, TextPart))
        encoded = [self._parts.input_part(inner, where) for inner in part.content]
        head: list[Wire | Raw] = [{"type": "input_text", "text": "Error:"}] if error else []
        return head + [inner for inner in encoded if inner is not None]

    # --- what the model said ---

    def _assistant(self, message: Message, where: str) -> list[Item]:
        items: list[Item] = []
        spoken: list[TextPart | RefusalPart] = []
        for at, part in enumerate(message.parts):
            if isinstance(part, TextPart | RefusalPart):
                if part.text:
                    spoken.append(part)
                continue
            item = self._of_model(part, f"{where}[{at}]")
            if item is not None:
                items.extend(self._spoken(spoken))
                items.append(item)
        return items + self._spoken(spoken)

    def _spoken(self, parts: list[TextPart | RefusalPart]) -> list[Item]:
        content = [self._parts.output_part(part) for part in parts]
        parts.clear()
        return [{"type": "message", "role": "assistant", "content": content}] if content else []

    def _of_model(self, part: Unspoken, where: str) -> Item | None:
        match part:
            case ToolCallPart():
                return self._call(part)
            case ThinkingPart():
                return self._thinking(part)
            case OpaquePart(protocol, _, json):
                if protocol == NAME:
                    return Raw(json.text.encode())
                self._parts.leave_out(part, where)
                return None
            case ImagePart() | DocumentPart() | AudioPart() | ToolResultPart():
                self._parts.leave_out(part, where, "of the assistant")
                return None

    def _call(self, part: ToolCallPart) -> Item:
        call_id, name = legal_call_id(part.call_id), self._tools.name(part.namespace, part.name)
        if part.custom and self._tools.keeps_custom:
            return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": part.arguments}
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": part.arguments or "{}"}

    def _thinking(self, part: ThinkingPart) -> Item | None:
        """Only back to its maker: another's is refused, and one that nobody signed means nothing here."""
        encrypted = part.encrypted or part.signature
        if part.origin != NAME or not (encrypted or part.item_id):
            if not self._thinking_dropped:
                self._thinking_dropped = True
                self._dropped.append("thinking of earlier turns")
            return None
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        wire: Wire = {"type": "reasoning", "id": part.item_id or f"{REASONING_ID}{len(encrypted)}", "summary": summary}
        if encrypted:
            wire["encrypted_content"] = encrypted
        return wire


_NO_PARTS = ("input_", "output_")  # opaque parts of a message, not items
