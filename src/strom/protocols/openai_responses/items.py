"""One output item of an upstream's stream, from its first sign to its end.

What comes in deltas is passed on at once. Servers that send no deltas, or only a part of the events (llama.cpp: no
arguments.done; some gateways: items in item.done or in the terminal response alone), lose nothing: when a part or an
item is closed, whatever of it was never delivered follows. A function call opens when its name is known.
Source: protocol-facts.md section 2.3; recordings xllamacpp_tools/echo_responses_tools, vllm/responses_tools.
"""

from __future__ import annotations

from msgspec import Raw

from strom.core.events import Block
from strom.core.json_scan import JsonScan
from strom.protocols.openai_responses import schema
from strom.protocols.openai_responses.blocks import Board, Lane
from strom.protocols.openai_responses.schema import NAME, ItemIn, PartIn, word

CALLS = {"function_call": False, "custom_tool_call": True}
"""Item types that are tool calls, and whether their input is free text."""


class Item:
    """Base: an item of any type. `kind` is its wire type, `key` its id, `place` its output_index."""

    __slots__ = ("board", "is_done", "key", "kind", "lane", "place")

    def __init__(self, kind: str, key: str, place: int, board: Board) -> None:
        self.is_done = False
        self.kind = kind
        self.key = key
        self.place = place
        self.board = board
        self.lane = Lane(is_call=kind in CALLS)

    def note(self, wire: ItemIn) -> None:
        """Take in what a new view of the item tells."""

    def delta(self, text: str, part: int, kind: str) -> None:
        """A piece of part number `part`; `kind` is text, refusal, thinking, summary or arguments."""

    def whole(self, text: str, part: int, kind: str) -> None:
        """The whole of a part, as its done event tells it."""

    def cite(self, annotation: str, part: int) -> None:
        """An annotation of a text part."""

    def finish(self, wire: ItemIn, raw: Raw) -> None:
        """The item is complete: deliver what is missing and end it."""
        self.is_done = True
        self.board.end(self.lane)


class Message(Item):
    """One text or refusal block for each content part."""

    __slots__ = ("_citations", "_current", "_delivered")

    def __init__(self, kind: str, key: str, place: int, board: Board) -> None:
        super().__init__(kind, key, place, board)
        self._current: tuple[int, str] | None = None
        self._delivered: set[int] = set()
        self._citations: dict[int, int] = {}

    def delta(self, text: str, part: int, kind: str) -> None:
        if not text or self.is_done:
            return
        if self._current != (part, kind):
            self.board.end(self.lane)
            self._current = (part, kind)
            self.board.start(self.lane, Block("refusal" if kind == "refusal" else "text", item_id=self.key))
        self._delivered.add(part)
        self.board.add(self.lane, "text", text)

    def whole(self, text: str, part: int, kind: str) -> None:
        if part not in self._delivered:
            self.delta(text, part, kind)

    def cite(self, annotation: str, part: int) -> None:
        if self._current == (part, "text"):
            self._citations[part] = self._citations.get(part, 0) + 1
            self.board.add(self.lane, "citation", annotation)

    def finish(self, wire: ItemIn, raw: Raw) -> None:
        if self.is_done:
            return
        content = [PartIn("output_text", wire.content)] if isinstance(wire.content, str) else wire.content
        for at, part in enumerate(content or ()):
            self.close_part(part, at)
        super().finish(wire, raw)

    def close_part(self, part: PartIn, at: int) -> None:
        if part.type == "refusal":
            self.whole(part.refusal or part.text or "", at, "refusal")
            return
        self.whole(part.text or "", at, "text")
        for annotation in (part.annotations or [])[self._citations.get(at, 0) :]:
            self.cite(schema.text_of(annotation), at)


class Reasoning(Item):
    """One thinking block; its parts are set apart by an empty line. Of summary and full text the first that comes is shown.

    `encrypted_content` becomes the block's signature, or a redacted block where there is no text.
    """

    __slots__ = ("_delivered", "_encrypted", "_kind", "_part")

    def __init__(self, kind: str, key: str, place: int, board: Board) -> None:
        super().__init__(kind, key, place, board)
        self._kind = ""
        self._part = 0
        self._delivered: set[tuple[str, int]] = set()
        self._encrypted = ""

    @property
    def skipped(self) -> bool:
        """Both a summary and the full text came; one of them was left out."""
        return len({kind for kind, _ in self._delivered}) > 1

    def note(self, wire: ItemIn) -> None:
        self._encrypted = wire.encrypted_content or self._encrypted

    def delta(self, text: str, part: int, kind: str) -> None:
        if not text or self.is_done:
            return
        self._delivered.add((kind, part))
        if not self._kind:
            self._kind, self._part = kind, part
            self.board.start(self.lane, Block("thinking", item_id=self.key))
        if kind != self._kind:
            return
        if part != self._part:
            self._part = part
            self.board.add(self.lane, "thinking", "\n\n")
        self.board.add(self.lane, "thinking", text)

    def whole(self, text: str, part: int, kind: str) -> None:
        if (kind, part) not in self._delivered:
            self.delta(text, part, kind)

    def finish(self, wire: ItemIn, raw: Raw) -> None:
        if self.is_done:
            return
        content = wire.content if isinstance(wire.content, list) else []
        for at, part in enumerate(content):
            self.whole(part.text or "", at, "thinking")
        for at, part in enumerate(wire.summary or ()):
            self.whole(part.text or "", at, "summary")
        self.note(wire)
        if self._encrypted:
            self._seal()
        super().finish(wire, raw)

    def _seal(self) -> None:
        if self._kind:
            self.board.add(self.lane, "signature", self._encrypted)
        else:
            self.board.start(
                self.lane, Block("redacted_thinking", data=self._encrypted, protocol=NAME, item_id=self.key)
            )


class Call(Item):
    """A function call or a free-text call. Arguments that come before the name wait for it."""

    __slots__ = ("_call_id", "_custom", "_delivered", "_given", "_held", "_name", "_namespace", "_scan", "started")

    def __init__(self, kind: str, key: str, place: int, board: Board) -> None:
        super().__init__(kind, key, place, board)
        self._custom = CALLS[kind]
        self._call_id = self._name = self._namespace = ""
        self._given = ""  # all arguments, as an event told that is not a delta
        self._held: list[str] = []
        self._scan = JsonScan()
        self._delivered = False
        self.started = False

    def note(self, wire: ItemIn) -> None:
        self._call_id = self._call_id or word(wire.call_id)
        self._name = self._name or word(wire.name)
        self._namespace = self._namespace or word(wire.namespace)
        self._given = word(wire.input if self._custom else wire.arguments) or self._given
        if self._name and not self.is_done:
            self._start()

    def delta(self, text: str, part: int, kind: str) -> None:
        if self.is_done:
            return
        clean = text if self._custom else self._scan.feed(text)
        if not clean:
            return
        self._delivered = True
        if self.started:
            self.board.add(self.lane, "arguments", clean)
        else:
            self._held.append(clean)

    def whole(self, text: str, part: int, kind: str) -> None:
        self._given = text or self._given

    def finish(self, wire: ItemIn, raw: Raw) -> None:
        if self.is_done:
            return
        self.note(wire)
        if not self._delivered and self._given:
            self.delta(self._given, 0, "arguments")
        self.is_done = True
        if self.started:
            self.board.end(self.lane, "" if self._custom else self._scan.problem())

    def _start(self) -> None:
        if self.started:
            return
        self.started = True
        call_id = self._call_id or self.key or f"call_{self.place}"
        block = Block("tool_call", call_id, self._name, self._custom, item_id=self.key, namespace=self._namespace)
        self.board.start(self.lane, block)
        for text in self._held:
            self.board.add(self.lane, "arguments", text)


class Opaque(Item):
    """An item only this protocol knows (web_search_call, mcp_call, compaction …): passed on whole, when it is complete."""

    __slots__ = ("_raw",)

    def __init__(self, kind: str, key: str, place: int, board: Board) -> None:
        super().__init__(kind, key, place, board)
        self._raw = Raw()

    def remember(self, raw: Raw) -> None:
        """What the item was at its start: all that there is if it is never finished."""
        self._raw = raw

    def finish(self, wire: ItemIn, raw: Raw) -> None:
        if not self.is_done:
            data = schema.text_of(raw if schema.present(raw) else self._raw)
            self.board.start(self.lane, Block("opaque", name=self.kind, data=data, protocol=NAME, item_id=self.key))
        super().finish(wire, raw)


def new_item(kind: str, key: str, place: int, board: Board) -> Item:
    if kind in CALLS:
        return Call(kind, key, place, board)
    if kind == "message":
        return Message(kind, key, place, board)
    if kind == "reasoning":
        return Reasoning(kind, key, place, board)
    return Opaque(kind, key, place, board)
