"""What a session remembers, and what of it fits into the next request. Does no I/O.

A turn is a prompt and all that answered it: it is added as a whole when the answer is proven complete, and evicted as a
whole, oldest first, so that calls and their results never part. The system prompt is never evicted. The memory itself keeps
everything; the budget only limits what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from strom.client.messages import message_from_json, message_to_json
from strom.client.reply import Reply
from strom.client.services import estimate_message
from strom.core.errors import BadRequest, ContextOverflow
from strom.core.messages import Message, TextPart, ToolResultPart

VERSION = 1
CountTokens = Callable[[Message], int]
Turn = tuple[Message, ...]


class History:
    """`max_context`: tokens of one request, by `count`; None: no limit."""

    def __init__(self, system: str, max_context: int | None, count: CountTokens = estimate_message) -> None:
        self.system = system
        self.max_context = max_context
        self._count = count
        self.turns: list[Turn] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, the system prompt first."""
        return (*self._system(), *(message for turn in self.turns for message in turn))

    def window(self, prompt: Sequence[Message]) -> tuple[Message, ...]:
        """What is sent for the next prompt. Raises ContextOverflow when even the prompt alone does not fit."""
        system = self._system()
        fixed = sum(map(self._count, (*system, *prompt)))
        if self.max_context is None:
            return (*self.messages, *prompt)
        if fixed > self.max_context:
            message = f"The prompt and the system prompt need {fixed} tokens; max_context allows {self.max_context}."
            raise ContextOverflow(message, tokens=fixed, limit=self.max_context)
        kept: list[Turn] = []
        for turn in reversed(self.turns):
            fixed += sum(map(self._count, turn))
            if fixed > self.max_context:
                break
            kept.append(turn)
        return (*system, *(message for turn in reversed(kept) for message in turn), *prompt)

    def add(self, prompt: Sequence[Message], reply: Reply) -> None:
        """A completed turn. An answer that continues an earlier one stands as one answer."""
        added = list(reply.messages)
        if reply.earlier_text and added:
            parts = (TextPart(reply.earlier_text), *added[0].parts)
            added[0] = msgspec.structs.replace(added[0], parts=parts)
        self.turns.append((*prompt, *added))

    def extend(self, messages: Sequence[Message]) -> None:
        """A conversation from elsewhere; a turn begins with every user message that is no result of a tool."""
        for message in messages:
            if message.role in ("system", "developer"):
                self.system = "\n\n".join(filter(None, (self.system, message.text)))
            elif not self.turns or _begins_turn(message):
                self.turns.append((message,))
            else:
                self.turns[-1] = (*self.turns[-1], message)

    def to_json(self) -> bytes:
        turns = [[message_to_json(message) for message in turn] for turn in self.turns]
        data = {"version": VERSION, "system": self.system, "max_context": self.max_context, "turns": turns}
        return msgspec.json.encode(data)

    def load_json(self, data: bytes | str) -> None:
        """Replaces everything. Raises BadRequest when it is no saved session."""
        try:
            saved: dict[str, Any] = msgspec.json.decode(data)
            if saved["version"] != VERSION:
                raise BadRequest(f"The session was saved in version {saved['version']}; {VERSION} can be read.")
            turns = [tuple(message_from_json(message) for message in turn) for turn in saved["turns"]]
            self.system, self.max_context = str(saved["system"]), saved["max_context"]
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise BadRequest(f"This is no saved session: {error}") from None
        self.turns = turns

    def _system(self) -> tuple[Message, ...]:
        return (Message("system", (TextPart(self.system),)),) if self.system else ()


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(part, ToolResultPart) for part in message.parts)
