"""Folds a canonical stream into a whole reply, and takes a reply apart again. A whole reply is a folded stream.

The fold of an unproven stream raises the error that ended it; `evidence` tells what had come until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strom.core.errors import IncompleteStream
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.messages import Json, OpaquePart, Part, RefusalPart, Reply, TextPart, ThinkingPart, ToolCallPart
from strom.core.usage import Usage


class _OpenBlock:
    """The pieces of one block so far; joined once, at the end, so that long texts cost linear time."""

    __slots__ = ("block", "citations", "origin", "pieces", "signature")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pieces: list[str] = []
        self.citations: list[str] = []
        self.signature = ""
        self.origin = ""

    def part(self) -> Part:
        block, text = self.block, "".join(self.pieces)
        match block.kind:
            case "text":
                citations = Json(f"[{','.join(self.citations)}]") if self.citations else None
                return TextPart(text, citations=citations)
            case "thinking":
                return ThinkingPart(text, signature=self.signature, origin=self.origin, item_id=block.item_id)
            case "redacted_thinking":
                return ThinkingPart(encrypted=block.data, origin=block.protocol, item_id=block.item_id)
            case "refusal":
                return RefusalPart(text)
            case "tool_call":
                return ToolCallPart(block.call_id, block.name, text, block.custom, block.namespace, block.item_id)
            case "opaque":
                return OpaquePart(block.protocol, block.name, Json(block.data))


class Fold:
    """Feed it events in order; then `reply()`."""

    __slots__ = ("_blocks", "completed", "error", "finished", "notes", "started", "usage")

    def __init__(self) -> None:
        self._blocks: dict[int, _OpenBlock] = {}
        self.started = Started()
        self.finished: Finished | None = None
        self.usage: Usage | None = None
        self.notes: list[str] = []
        self.completed = False
        self.error: Exception | None = None

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self._feed(event)

    def _feed(self, event: Event) -> None:  # noqa: C901 - one arm per event type, and the match is checked to be complete
        match event:
            case TextDelta(index, text) | ThinkingDelta(index, text) | ArgumentsDelta(index, text):
                self._blocks[index].pieces.append(text)
            case BlockStarted(index, block):
                self._blocks[index] = _OpenBlock(block)
            case SignatureDelta(index, signature, protocol):
                self._blocks[index].signature += signature
                self._blocks[index].origin = protocol
            case CitationDelta(index, _, data):
                self._blocks[index].citations.append(data)
            case Started():
                self.started = event
            case UsageReported(usage):
                self.usage = usage if self.usage is None else self.usage.updated(usage)
            case Finished():
                self.finished = event
            case Noted(what):
                self.notes.append(what)
            case Completed():
                self.completed = True
            case Failed(error):
                self.error = error
            case BlockEnded():
                pass

    def parts(self) -> tuple[Part, ...]:
        """What has come so far: evidence, and a reply's content only once the stream is completed."""
        return tuple(self._blocks[index].part() for index in sorted(self._blocks))

    def reply(self) -> Reply:
        """The reply. Raises the stream's own error, or IncompleteStream, when its end is not proven."""
        if self.error is not None:
            raise self.error
        if not self.completed or self.finished is None:
            raise IncompleteStream("The upstream's answer ended without proof that it is complete.")
        return Reply(
            self.started.response_id,
            self.started.model,
            self.started.created,
            self.parts(),
            self.finished.reason,
            self.finished.stop_sequence,
            self.finished.raw,
            self.finished.assumed,
            self.usage,
            tuple(self.notes),
        )


def fold(events: Iterable[Event]) -> Reply:
    """The reply a complete stream amounts to. Raises what `Fold.reply` raises."""
    folded = Fold()
    folded.feed(events)
    return folded.reply()


def unfold(reply: Reply) -> Iterator[Event]:
    """The shortest stream that folds to `reply`."""
    yield Started(reply.response_id, reply.model, reply.created)
    for index, part in enumerate(reply.parts):
        yield from _unfold_part(index, part)
    for note in reply.notes:
        yield Noted(note)
    if reply.usage is not None:
        yield UsageReported(reply.usage)
    yield Finished(reply.finish_reason, reply.stop_sequence, reply.finish_raw, reply.finish_assumed)
    yield Completed()


def _unfold_part(index: int, part: Part) -> Iterator[Event]:
    match part:
        case TextPart(text):
            yield BlockStarted(index, Block("text"))
            if text:
                yield TextDelta(index, text)
        case RefusalPart(text):
            yield BlockStarted(index, Block("refusal"))
            if text:
                yield TextDelta(index, text)
        case ThinkingPart():
            yield from _unfold_thinking(index, part)
        case ToolCallPart():
            block = Block(
                "tool_call", part.call_id, part.name, part.custom, item_id=part.item_id, namespace=part.namespace
            )
            yield BlockStarted(index, block)
            if part.arguments:
                yield ArgumentsDelta(index, part.arguments)
        case OpaquePart(protocol, kind, json):
            yield BlockStarted(index, Block("opaque", name=kind, data=json.text, protocol=protocol))
        case _:
            raise ValueError(f"a reply cannot hold a {type(part).__name__}")
    yield BlockEnded(index)


def _unfold_thinking(index: int, part: ThinkingPart) -> Iterator[Event]:
    if part.encrypted:
        yield BlockStarted(
            index, Block("redacted_thinking", data=part.encrypted, protocol=part.origin, item_id=part.item_id)
        )
        return
    yield BlockStarted(index, Block("thinking", item_id=part.item_id))
    if part.text:
        yield ThinkingDelta(index, part.text)
    if part.signature:
        yield SignatureDelta(index, part.signature, part.origin)
