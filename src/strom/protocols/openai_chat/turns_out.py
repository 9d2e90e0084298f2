"""Puts a conversation into the order a Chat upstream demands, still in canonical form.

- An assistant message with calls is followed by a result for every call, in call order, before anything else.
- Leading system messages are one (but for requests that came in Chat). One that stands later keeps its place, or is folded into
  the user message before it (else after it) where the upstream's template cannot take it there; it is never moved to the top,
  which would spoil the prefix cache, and never between a call and its result.
- Claude Code's first system block, a billing header that varies, is left out.
Source: protocol-facts.md sections 0 (4, 5) and 6.3.
"""

from __future__ import annotations

from strom.core.messages import Message, Part, TextPart, ToolCallPart, ToolResultPart
from strom.protocols.codec import Quirks

BILLING_HEADER = "x-anthropic-billing-header"
NO_RESULT = "[no result]"
_SYSTEM = ("system", "developer")


class Dropped:
    """What could not be carried; each thing is named once, in order."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, what: str) -> None:
        self._names[what] = None

    def names(self) -> tuple[str, ...]:
        return tuple(self._names)


def arrange(messages: tuple[Message, ...], protocol: str, quirks: Quirks, dropped: Dropped) -> list[Message]:
    turns = [message for message in (_without_billing(m, dropped) for m in messages) if message.parts]
    turns = _pair_results(turns)
    if protocol != "openai-chat":
        turns = _join_leading(turns)
    return turns if quirks.mid_system else _fold_system(turns)


def _without_billing(message: Message, dropped: Dropped) -> Message:
    if message.role not in _SYSTEM:
        return message
    kept = tuple(part for part in message.parts if not _is_billing(part))
    if len(kept) == len(message.parts):
        return message
    dropped.add(BILLING_HEADER)
    return Message(message.role, kept, message.name)


def _is_billing(part: Part) -> bool:
    return isinstance(part, TextPart) and part.text.startswith(BILLING_HEADER)


def _pair_results(messages: list[Message]) -> list[Message]:
    """Moves each result behind its call, and invents the ones that are missing."""
    turns: list[Message] = []
    taken: set[int] = set()  # by identity: a result that has moved
    for number, message in enumerate(messages):
        rest = tuple(part for part in message.parts if id(part) not in taken)
        if rest:
            _append(turns, Message(message.role, rest, message.name))
        calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
        if message.role == "assistant" and calls:
            found = _results_until_answer(messages[number + 1 :])
            results = tuple(found.get(call.call_id) or _missing(call) for call in calls)
            taken.update(map(id, results))
            turns.append(Message("user", results))
    return turns


def _append(turns: list[Message], message: Message) -> None:
    """User text joins the results before it: images of results and text are then one message."""
    if message.role == "user" and turns and turns[-1].role == "user" and _is_results(turns[-1]):
        turns[-1] = Message("user", turns[-1].parts + message.parts, message.name)
    else:
        turns.append(message)


def _results_until_answer(messages: list[Message]) -> dict[str, ToolResultPart]:
    found: dict[str, ToolResultPart] = {}
    for message in messages:
        if message.role == "assistant":
            break
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                found.setdefault(part.call_id, part)
    return found


def _missing(call: ToolCallPart) -> ToolResultPart:
    return ToolResultPart(call.call_id, (TextPart(NO_RESULT),), custom=call.custom)


def _is_results(message: Message) -> bool:
    return all(isinstance(part, ToolResultPart) for part in message.parts)


def _join_leading(messages: list[Message]) -> list[Message]:
    count = _count_leading(messages)
    if count < 2:
        return messages
    parts = tuple(part for message in messages[:count] for part in message.parts)
    return [Message(messages[0].role, parts), *messages[count:]]


def _count_leading(messages: list[Message]) -> int:
    return next((n for n, message in enumerate(messages) if message.role not in _SYSTEM), len(messages))


def _fold_system(messages: list[Message]) -> list[Message]:
    leading = _count_leading(messages)
    turns = messages[:leading]
    waiting: tuple[Part, ...] = ()  # system text that waits for the next user message
    for message in messages[leading:]:
        if message.role in _SYSTEM:
            if turns and turns[-1].role == "user":
                turns[-1] = _with_more(turns[-1], message.parts)
            else:
                waiting += message.parts
        elif message.role == "user" and waiting:
            turns.append(Message("user", waiting + message.parts, message.name))
            waiting = ()
        else:
            turns.append(message)
    return [*turns, Message("user", waiting)] if waiting else turns


def _with_more(message: Message, parts: tuple[Part, ...]) -> Message:
    """Appends system text to a user message, or to its last result when it has nothing else."""
    last = message.parts[-1]
    if not isinstance(last, ToolResultPart):
        return Message("user", message.parts + parts, message.name)
    texts = tuple(part for part in parts if isinstance(part, TextPart))
    grown = ToolResultPart(
        last.call_id, last.content + texts, last.is_error, last.name, last.custom, last.cache_control
    )
    return Message("user", (*message.parts[:-1], grown), message.name)
