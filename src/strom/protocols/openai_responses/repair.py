"""Repairs single frames of a relayed stream that break the protocol's rules; every other member stays as it came.

Rules: the `event:` line names the type; `sequence_number` counts from 0 by one, as does the output_index of items; part
events say which item and part they are for; lifecycle events carry a whole Response object; the terminal one has the output
that was streamed and full usage. llama.cpp leaves out numbers and indices, transformers the event lines. Clients that need
them: openai-python reads output_index, content_index and logprobs of every delta, opencode repeats a request without end
when usage is null.
Source: protocol-facts.md sections 0, 2.2, 2.3; recordings xllamacpp/responses_stream,
transformers_tiny/responses_stream.
"""

from __future__ import annotations

from msgspec import Raw

from strom.protocols.openai_responses.schema import (
    ITEM_ID,
    FrameIn,
    Loose,
    members_of,
    number,
    object_of,
    present,
    read,
    word,
)

_PART_EVENTS = (
    "output_text.delta",
    "output_text.done",
    "content_part.added",
    "content_part.done",
    "refusal.delta",
    "refusal.done",
)
_CONTENT = frozenset(f"response.{name}" for name in (*_PART_EVENTS, "reasoning_text.delta", "reasoning_text.done"))
_SUMMARY = frozenset(
    f"response.reasoning_summary_{name}" for name in ("part.added", "part.done", "text.delta", "text.done")
)
_CALLS = frozenset(
    f"response.{name}.{end}"
    for name in ("function_call_arguments", "custom_tool_call_input")
    for end in ("delta", "done")
)
_ITEMS = frozenset(("response.output_item.added", "response.output_item.done"))
_OF_AN_ITEM = _CONTENT | _SUMMARY | _CALLS | _ITEMS
_WITH_LOGPROBS = frozenset(("response.output_text.delta", "response.output_text.done"))
_DEMANDED = (
    "id",
    "object",
    "created_at",
    "status",
    "model",
    "output",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
)
BEGINNINGS = frozenset(("response.created", "response.queued", "response.in_progress"))


class Places:
    """Which output_index each item has: they count from 0 by one. transformers gives two items one index, and none 0, where a
    tool is called (seen with 5.24); openai-python then looks for an item that is not there. `added`: items told so far."""

    __slots__ = ("_by_id", "added")

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self.added = 0

    def index_for(self, wire: FrameIn) -> int | None:
        """The index the event must have, when it has another one; items without an id are left alone."""
        if wire.type not in _OF_AN_ITEM:
            return None
        identity = word(wire.item_id)
        if wire.type in _ITEMS:
            is_item = bytes(wire.item).startswith(b"{")
            identity = word(read(ITEM_ID, wire.item).id) if is_item else ""
        if wire.type == "response.output_item.added":
            if identity:
                self._by_id[identity] = self.added
            self.added += 1
        place, told = self._by_id.get(identity), number(wire.output_index)
        return place if told is not None and place != told else None


def missing(wire: FrameIn) -> bool:
    """Whether an event lacks a member that its type demands."""
    kind = wire.type
    if kind not in _OF_AN_ITEM:
        return False
    return (
        _lacks(wire.output_index)
        or (kind in _CONTENT and _lacks(wire.content_index))
        or (kind in _SUMMARY and _lacks(wire.summary_index))
        or (kind in _WITH_LOGPROBS and not present(wire.logprobs))
    )


def complete(wire: FrameIn, members: dict[str, Raw], place: int) -> None:
    """Put in what `missing` found. `place`: the output_index of the event's item."""
    kind = wire.type
    if kind not in _OF_AN_ITEM:
        return
    if _lacks(wire.output_index):
        members["output_index"] = Raw(b"%d" % place)
    if kind in _CONTENT and _lacks(wire.content_index):
        members["content_index"] = Raw(b"0")
    if kind in _SUMMARY and _lacks(wire.summary_index):
        members["summary_index"] = Raw(b"0")
    if kind in _WITH_LOGPROBS and not present(wire.logprobs):
        members["logprobs"] = Raw(b"[]")


def _lacks(index: Loose) -> bool:
    return number(index) is None


def lacking(response: Raw) -> list[str]:
    """What a Response object lacks of the members that its type demands."""
    members = _object(response)
    return [name for name in _DEMANDED if not present(members.get(name, Raw()))]


def changed(response: Raw, changes: dict[str, bytes]) -> Raw:
    """The Response object with these members put in."""
    return Raw(object_of({**_object(response), **{name: Raw(value) for name, value in changes.items()}}))


def _object(raw: Raw) -> dict[str, Raw]:
    try:
        return members_of(raw) if present(raw) else {}
    except ValueError:
        return {}


def framed(wire: FrameIn, members: dict[str, Raw]) -> bytes:
    """The frame anew: an event line that names the type, one data line."""
    kind = word(wire.type).encode().split(b"\n")[0].split(b"\r")[0]
    return b"event: %b\ndata: %b\n\n" % (kind, object_of(members))
