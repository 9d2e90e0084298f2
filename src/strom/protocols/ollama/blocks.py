"""Which block of the canonical stream a piece of an answer belongs to.

Ollama has no blocks: a line brings thinking, text or whole calls, and the kind of what comes decides. Every change of kind ends
the open block and starts the next; blocks never overlap, since calls come whole. White space after a call is held back
until it is known whether text follows; before another call, or at the end, it is dropped.
Source: streams.md sections 4 and 5; case 067.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from strom.core.events import ArgumentsDelta, Block, BlockEnded, BlockStarted, Event, Noted, TextDelta, ThinkingDelta
from strom.core.think_tags import ThinkTags
from strom.protocols.ollama import schema
from strom.protocols.ollama.arguments import arguments_text, problem

Kind = Literal["text", "thinking"]


class Blocks:
    """`out` collects the events and is taken away by the caller. `call_count`: calls so far."""

    __slots__ = ("_after_call", "_blank", "_ids", "_next_index", "call_count", "open_index", "open_kind", "out", "tags")

    def __init__(self, tags: ThinkTags) -> None:
        self.out: list[Event] = []
        self.tags = tags
        self.open_kind: Kind | None = None
        self.open_index = 0
        self.call_count = 0
        self._next_index = 0
        self._after_call = False
        self._blank: list[str] = []  # white space after a call
        self._ids: set[str] = set()

    def take_thinking(self, text: str) -> None:
        self.flush_tags()
        self.tags.after_reasoning()
        self._say("thinking", text)

    def take_content(self, text: str) -> None:
        for kind, piece in self.tags.feed(text):
            self._say(kind, piece)

    def take_call(self, call: schema.CallIn, seed: str) -> None:
        """`seed`: what an invented id is made of. Raises DecodeError, UnicodeDecodeError for broken arguments."""
        function = call.function
        if function is None or not function.name:
            self.out.append(Noted("a tool call without a name"))
            return
        arguments = arguments_text(function.arguments)
        self.settle()
        self._after_call = True
        index = self._next_index
        self._next_index += 1
        call_id = self._call_id(call.id, f"{seed}\x00{self.call_count}\x00{function.name}\x00{arguments}")
        self.call_count += 1
        self.out.append(BlockStarted(index, Block("tool_call", call_id, function.name)))
        self.out.append(ArgumentsDelta(index, arguments))
        self.out.append(BlockEnded(index, problem(arguments)))

    def flush_tags(self) -> None:
        """What was held back as the beginning of a tag is none: something else follows, or nothing."""
        for kind, piece in self.tags.flush():
            self._say(kind, piece)

    def settle(self) -> None:
        """Nothing of what is open goes on."""
        self.flush_tags()
        self._blank.clear()
        self._close()

    def _say(self, kind: Kind, text: str) -> None:
        if kind != self.open_kind:
            if kind == "text" and self._after_call and text.isspace():
                self._blank.append(text)
                return
            self._begin(kind)
            if kind == "text" and self._blank:
                text = "".join(self._blank) + text
            self._blank.clear()
        delta = TextDelta if kind == "text" else ThinkingDelta
        self.out.append(delta(self.open_index, text))

    def _begin(self, kind: Kind) -> None:
        self._close()
        self._after_call = False
        self.open_kind, self.open_index = kind, self._next_index
        self._next_index += 1
        self.out.append(BlockStarted(self.open_index, Block(kind)))

    def _close(self) -> None:
        if self.open_kind is not None:
            self.out.append(BlockEnded(self.open_index))
            self.open_kind = None

    def _call_id(self, given: str | float | None, seed: str) -> str:
        """The upstream's own id where it has one that is new; else one that other answers are unlikely to have as well."""
        call_id = "" if given is None else str(given)
        if not call_id or call_id in self._ids:
            call_id = "call_" + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self._ids.add(call_id)
        return call_id
