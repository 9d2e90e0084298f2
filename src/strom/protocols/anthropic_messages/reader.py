"""The meaning of a Messages stream: its events, without their framing → canonical events.

Proof of completeness: `message_delta` with a stop_reason, then `message_stop`. `event:` lines are not needed where the type
stands in the data; blocks and deltas without a type are what their members say. Unknown event and delta types are ignored, as
the API's versioning rules ask; blocks of an unknown type become opaque and are passed on when they end, with the input their
deltas brought. A block that was not closed is closed when the next one starts (tool calls excepted: broken servers interleave
them) or at the end; one that was not opened is opened by its first delta.
Source: protocol-facts.md section 3.3; streams.md sections 1, 3, 10; recordings of llama.cpp and vLLM.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from strom.core.errors import (
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    ProviderError,
    StromError,
)
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockKind,
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
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.errors import decode_stream_error
from strom.protocols.anthropic_messages.meanings import REASONS, UsageMerger
from strom.protocols.codec import Quirks
from strom.wire.sse import Frame

NAME = "anthropic"
FRAME = msgspec.json.Decoder(schema.FrameIn)
_BLOCK = msgspec.json.Decoder(schema.BlockIn)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_BLOCK_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted_thinking",
    "tool_use": "tool_call",
}


class OpenBlock:
    """A block upstream opened. `index` is ours, None while an opaque block waits for its end. `pieces`: its input so far."""

    __slots__ = ("has_deltas", "index", "kind", "name", "pieces", "raw")

    def __init__(self, kind: BlockKind, index: int | None) -> None:
        self.kind = kind
        self.index = index
        self.name = ""
        self.raw = b""
        self.pieces: list[str] = []
        self.has_deltas = False


class StreamReader:
    """Frames → events: the meaning of the stream without its framing. Shared by the decoder and the relay."""

    __slots__ = ("_invented", "_quirks", "_usage", "blocks", "ended", "finished", "next_index", "started")

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._usage = UsageMerger()
        self._invented = 0
        self.blocks: dict[int, OpenBlock] = {}  # by upstream's index, in the order of their start
        self.next_index = 0
        self.started = False
        self.finished = False
        self.ended = False

    # --- frames ---

    def parse(self, frame: Frame) -> schema.FrameIn:
        """The event; its type is "" where only the event line names it. Raises StromError: InvalidStreamEvent, or what an
        error event that is no JSON says.
        """
        data = frame.data or b""
        try:
            wire = schema.read(FRAME, data)
        except ValueError as error:
            if frame.event == b"error":
                text = data.decode("utf-8", "replace").strip()
                raise ProviderError(text[:2000] or "The upstream reported an error.") from None
            shown = data[:200].decode("utf-8", "replace")
            raise InvalidStreamEvent(
                "The upstream sent an event that is none of its protocol.", detail=f"{error}: {shown}"
            ) from None
        return wire

    def read(self, wire: schema.FrameIn) -> list[Event]:
        """Raises StromError for an error event and for what cannot be understood."""
        if self.ended:
            return []
        if schema.present(wire.error):
            raise decode_stream_error(wire.error)
        handler = _HANDLERS.get(wire.type)
        return handler(self, wire) if handler is not None else []

    def fail(self, error: StromError) -> list[Event]:
        self.ended = True
        return [Failed(error)]

    def finish(self) -> list[Event]:
        """The body ended: proof by quirk, or the failure that this is."""
        if self.ended:
            return []
        if not self._quirks.done_required and (self.finished or not self._quirks.finish_reason_required):
            return self._complete()
        return self.fail(IncompleteStream("The upstream's answer ended before it was complete."))

    # --- one handler per event type ---

    def _error(self, wire: schema.FrameIn) -> list[Event]:
        raise ProviderError("The upstream reported an error without saying which.")

    def _message_start(self, wire: schema.FrameIn) -> list[Event]:
        message = wire.message or schema.StartIn()
        events: list[Event] = []
        if not self.started:
            self.started = True
            identity = "" if message.id is None else str(message.id)
            events.append(Started(identity, message.model or ""))
        events.extend(self._report(message.usage, start=True))
        return events

    def _block_start(self, wire: schema.FrameIn) -> list[Event]:
        wire_block = self._read_block(wire.content_block)
        events = self._ensure_started()
        kind = _BLOCK_KINDS.get(wire_block.type, "opaque")
        overlaps = kind == "tool_call" and all(block.kind == "tool_call" for block in self.blocks.values())
        place = self.next_index if wire.index is None else wire.index
        if not overlaps:
            self._close_all(events)
        elif place in self.blocks:
            self._close(place, events)
        self._open(place, kind, wire_block, wire.content_block, events)
        return events

    def _block_delta(self, wire: schema.FrameIn) -> list[Event]:
        delta = typed_delta(wire.delta)
        if delta is None:
            return []
        handler = _DELTAS.get(delta.type)
        if handler is None:
            return [Noted(f"stream delta {delta.type}")]
        return handler(self, wire, delta)

    def _block_stop(self, wire: schema.FrameIn) -> list[Event]:
        events: list[Event] = []
        place = wire.index if wire.index is not None else next(reversed(self.blocks), -1)
        if place in self.blocks:
            self._close(place, events)
        return events

    def _message_delta(self, wire: schema.FrameIn) -> list[Event]:
        events = self._ensure_started()
        delta = wire.delta
        if delta is not None and delta.stop_reason not in (None, ""):
            self._close_all(events)
            self.finished = True
            word = str(delta.stop_reason)
            events.append(Finished(REASONS.get(word, word), delta.stop_sequence or "", word))
        events.extend(self._report(wire.usage))
        return events

    def _message_stop(self, wire: schema.FrameIn) -> list[Event]:
        if not self.finished and self._quirks.finish_reason_required:
            return self.fail(IncompleteCompletion("The upstream ended its answer without a stop reason."))
        return self._complete()

    # --- deltas ---

    def _text_delta(self, wire: schema.FrameIn, delta: schema.DeltaIn) -> list[Event]:
        if not delta.text:
            return []
        index, events = self._block_for(wire.index, "text")
        events.append(TextDelta(index, delta.text))
        return events

    def _thinking_delta(self, wire: schema.FrameIn, delta: schema.DeltaIn) -> list[Event]:
        if not delta.thinking:
            return []
        index, events = self._block_for(wire.index, "thinking")
        events.append(ThinkingDelta(index, delta.thinking))
        return events

    def _signature_delta(self, wire: schema.FrameIn, delta: schema.DeltaIn) -> list[Event]:
        if not delta.signature:
            return []
        index, events = self._block_for(wire.index, "thinking")
        events.append(SignatureDelta(index, delta.signature))
        return events

    def _citations_delta(self, wire: schema.FrameIn, delta: schema.DeltaIn) -> list[Event]:
        if not schema.present(delta.citation):
            return []
        index, events = self._block_for(wire.index, "text")
        events.append(CitationDelta(index, NAME, schema.text_of(delta.citation)))
        return events

    def _json_delta(self, wire: schema.FrameIn, delta: schema.DeltaIn) -> list[Event]:
        if not delta.partial_json:
            return []
        block = self.blocks.get(self._place(wire.index))
        if block is None or block.kind not in ("tool_call", "opaque"):
            raise InvalidStreamEvent("The upstream sent arguments outside a tool call.")
        block.has_deltas = True
        if block.index is None:
            block.pieces.append(delta.partial_json)
            return []
        return [ArgumentsDelta(block.index, delta.partial_json)]

    # --- blocks ---

    def _place(self, index: int | None) -> int:
        """Upstream's index of the block a delta is for; a missing one means the block that was opened last."""
        return index if index is not None else next(reversed(self.blocks), self.next_index)

    def _block_for(self, index: int | None, kind: BlockKind) -> tuple[int, list[Event]]:
        """Our index of the open block of this kind; one that upstream did not open is opened here."""
        place = self._place(index)
        block = self.blocks.get(place)
        if block is not None and block.kind == kind and block.index is not None:
            return block.index, []
        events = self._ensure_started()
        self._close_all(events)
        self._open(place, kind, schema.BlockIn(kind), Raw(), events)
        return self.next_index - 1, events

    def _open(self, place: int, kind: BlockKind, wire: schema.BlockIn, raw: Raw, events: list[Event]) -> None:
        if kind == "opaque":
            block = self.blocks[place] = OpenBlock(kind, None)
            block.name, block.raw = wire.type, bytes(raw)
            return
        index = self.next_index
        self.next_index += 1
        block = self.blocks[place] = OpenBlock(kind, index)
        events.append(BlockStarted(index, self._block(kind, wire)))
        if kind == "tool_call":
            if schema.present(wire.input) and bytes(wire.input).strip() != b"{}":
                block.pieces.append(schema.text_of(wire.input))
            return
        if wire.text and kind == "text":
            events.append(TextDelta(index, wire.text))
        if wire.thinking and kind == "thinking":
            events.append(ThinkingDelta(index, wire.thinking))
        if wire.signature and kind == "thinking":
            events.append(SignatureDelta(index, wire.signature))
        events.extend(CitationDelta(index, NAME, schema.text_of(citation)) for citation in wire.citations or ())

    def _block(self, kind: BlockKind, wire: schema.BlockIn) -> Block:
        match kind:
            case "tool_call":
                call_id = "" if wire.id is None else str(wire.id)
                if not call_id:
                    self._invented += 1
                    call_id = f"toolu_{self.next_index}_{self._invented}"
                if not wire.name:
                    raise InvalidStreamEvent("The upstream started a tool call without a name.")
                return Block(kind, call_id, wire.name)
            case "redacted_thinking":
                return Block(kind, data=wire.data or "", protocol=NAME)
            case _:
                return Block(kind)

    def _close(self, place: int, events: list[Event]) -> None:
        block = self.blocks.pop(place)
        if block.index is None:
            index = self.next_index
            self.next_index += 1
            data = _with_input(block)
            events.append(BlockStarted(index, Block("opaque", name=block.name, data=data, protocol=NAME)))
            events.append(BlockEnded(index))
            return
        if block.kind == "tool_call" and block.pieces and not block.has_deltas:
            events.append(ArgumentsDelta(block.index, block.pieces[0]))  # all of it came with the start
        events.append(BlockEnded(block.index))

    def _close_all(self, events: list[Event]) -> None:
        for place in list(self.blocks):
            self._close(place, events)

    def _complete(self) -> list[Event]:
        events = self._ensure_started()
        self._close_all(events)
        if not self.finished:
            events.append(Finished("stop", assumed=True))
        self.ended = True
        events.append(Completed())
        return events

    def _ensure_started(self) -> list[Event]:
        if self.started:
            return []
        self.started = True
        return [Started()]

    def _report(self, raw: Raw, *, start: bool = False) -> list[Event]:
        usage = self._usage.merge(raw, start=start)
        return [] if usage is None else [UsageReported(usage)]

    def _read_block(self, raw: Raw) -> schema.BlockIn:
        try:
            return typed_block(schema.read(_BLOCK, raw))
        except ValueError as error:
            raise InvalidStreamEvent("The upstream started a block that is none.", detail=str(error)) from None


def named(wire: schema.FrameIn, frame: Frame) -> schema.FrameIn:
    """The event with its type, which may stand in the event line alone."""
    return wire if wire.type else msgspec.structs.replace(wire, type=frame.event.decode("utf-8", "replace"))


def typed_block(block: schema.BlockIn) -> schema.BlockIn:
    """A block without a type is what its members say; one that says nothing begins a text."""
    if block.type:
        return block
    called = block.name is not None or schema.present(block.input)
    thought = block.thinking is not None or block.signature is not None
    kind = "tool_use" if called else "thinking" if thought else "text" if block.data is None else "redacted_thinking"
    return msgspec.structs.replace(block, type=kind)


def typed_delta(delta: schema.DeltaIn | None) -> schema.DeltaIn | None:
    """A delta without a type is the first of those whose member it has."""
    if delta is None or delta.type:
        return delta
    found = [kind for kind, member in _MEMBERS.items() if getattr(delta, member) is not None]
    if not found and schema.present(delta.citation):
        found = ["citations_delta"]
    return msgspec.structs.replace(delta, type=found[0]) if found else delta


def _with_input(block: OpenBlock) -> str:
    """An opaque block's JSON with the input that came in deltas put into it."""
    if not block.pieces:
        return block.raw.decode("utf-8", "replace")
    text = "".join(block.pieces).encode()
    try:
        members = schema.read(_OBJECT, block.raw)
        schema.read(_OBJECT, text)
    except ValueError:
        return block.raw.decode("utf-8", "replace")
    return schema.ENCODER.encode({**members, "input": Raw(text)}).decode()


_HANDLERS: dict[str, Callable[[StreamReader, schema.FrameIn], list[Event]]] = {
    "message_start": StreamReader._message_start,
    "content_block_start": StreamReader._block_start,
    "content_block_delta": StreamReader._block_delta,
    "content_block_stop": StreamReader._block_stop,
    "message_delta": StreamReader._message_delta,
    "message_stop": StreamReader._message_stop,
    "error": StreamReader._error,
}
_MEMBERS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
}
_DELTAS: dict[str, Callable[[StreamReader, schema.FrameIn, schema.DeltaIn], list[Event]]] = {
    "text_delta": StreamReader._text_delta,
    "thinking_delta": StreamReader._thinking_delta,
    "signature_delta": StreamReader._signature_delta,
    "citations_delta": StreamReader._citations_delta,
    "input_json_delta": StreamReader._json_delta,
}


def is_silent(frame: Frame) -> bool:
    """Comments, events without data, and the foreign end marker some servers add: they carry nothing."""
    data = frame.data
    return not data or (len(data) < 20 and data.strip() == b"[DONE]")
