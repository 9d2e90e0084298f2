"""Responses to Responses: bytes pass as they came, but for single frames that break the rules and the terminal event.

Numbers: clients see 0, 1, 2 …; a heartbeat of ours takes one, and from there on later events are renumbered. Before
the upstream's response.created a heartbeat is a comment, for SDKs want that event first. Events of items that are
missing are added (`completing.py`). The terminal event gets the routing block, and usage, output and model if it lacks
them. A foreign `[DONE]` is dropped. An observer that cannot read a legal frame goes blind for it.
Source: streams.md sections 2 and 6; protocol-facts.md rules 1, 3 and 11.
"""

from __future__ import annotations

from msgspec import Raw

from strom.core.errors import StromError
from strom.core.events import Event, TextDelta, ThinkingDelta
from strom.core.evidence import Evidence
from strom.protocols.codec import Express, Quirks, ReplyContext
from strom.protocols.openai_responses import repair
from strom.protocols.openai_responses.completing import Shown, with_all_arguments, with_arguments
from strom.protocols.openai_responses.decoder import is_silent
from strom.protocols.openai_responses.encoder import event_frame, failure, keepalive
from strom.protocols.openai_responses.meanings import incomplete_reason, is_full_usage, usage_json
from strom.protocols.openai_responses.reader import StreamReader, parse
from strom.protocols.openai_responses.response import ResponseObject, response_id, with_block
from strom.protocols.openai_responses.schema import (
    ENCODE,
    ITEM_ID,
    RESPONSE,
    FrameIn,
    ItemIn,
    ResponseIn,
    members_of,
    number,
    present,
    read,
    single_line,
    word,
)
from strom.protocols.openai_responses.template import DeltaShape, learn
from strom.protocols.openai_responses.writing import Written
from strom.wire.sse import Frame, SseParser

COMMENT = b": keep-alive\n\n"
_ENDS = frozenset(("response.completed", "response.incomplete"))


class Relay:
    """Satisfies `codec.Relay`. `response`: the terminal Response object, once it went out."""

    __slots__ = (
        "_context",
        "_expected",
        "_in",
        "_items",
        "_key",
        "_next",
        "_object",
        "_out",
        "_parser",
        "_places",
        "_quick",
        "_reader",
        "_shown",
        "evidence",
        "response",
    )

    def __init__(self, context: ReplyContext, quirks: Quirks) -> None:
        limit = context.request.max_output_tokens if context.request is not None else None
        self._context = context
        self._parser = SseParser(quirks.max_frame_bytes)
        self._reader = StreamReader(quirks, limit)
        self._shown = Shown(context.reply_id)
        self._places = repair.Places()
        self._object: ResponseObject | None = None
        self._next = 0  # the client's next sequence number
        self._expected = 0  # the upstream's
        self._items: list[bytes] = []  # finished items, as they went out
        self._in: DeltaShape | None = None  # a delta of the block now open, as it comes …
        self._out: DeltaShape | None = None  # … and as it goes out; None: the same bytes
        self._quick: DeltaShape | None = None  # `_in`, when the next read begins a frame
        self._key: tuple[object, ...] = ()
        self.evidence = Evidence()
        self.response = b""

    def feed(self, data: bytes) -> bytes:
        shape = self._quick
        if shape is not None:
            text = shape.match(data, self._expected)
            if text:
                evidence, number = self.evidence, self._next
                evidence.deltas += 1
                evidence.output_characters += len(text)
                self._shown.pieces.append(text)
                self._expected += 1
                self._next = number + 1
                return data if self._out is None else self._out.render(shape.raw, shape.rest, number)
        return self._read(data)

    def express(self) -> Express | None:
        return (self._lone, None) if self._quick is not None and self._out is None else None

    def _lone(self, data: bytes) -> str | None:
        shape = self._quick  # None after a heartbeat
        text = shape.match(data, self._expected) if shape is not None else None
        if not text:
            return None
        self._shown.pieces.append(text)
        self._expected += 1
        self._next += 1
        return text

    def finish(self) -> bytes:
        if self.evidence.ended:
            return b""
        events = self._reader.finish()
        self.evidence.observe(events)
        if self.evidence.error is not None:
            return b""
        closing = self._close([], "completed")
        incomplete = incomplete_reason(self.evidence.finish_reason or "stop")
        self.response = with_block(self._own.ended(self._items, self._usage_json(), incomplete), self._context)
        kind = b"response.completed" if incomplete is None else b"response.incomplete"
        return closing + event_frame(kind, self._next, b'"response":' + self.response)

    def fail(self, error: StromError) -> bytes:
        self.response = with_block(self._own.failed(self._items, self._usage_json(), error), self._context)
        return failure(error, self._next, self.response)

    def heartbeat(self) -> bytes:
        if self.evidence.ended:
            return b""
        if self._next == 0:
            return COMMENT
        self._next += 1
        self._in = self._quick = None  # what is learned may say that numbers are the same
        return keepalive(self._next - 1)

    # --- one read ---

    def _read(self, data: bytes) -> bytes:
        if self.evidence.ended:
            return b""
        out: list[bytes] = []
        try:
            for frame in self._parser.feed(data):
                if frame.data and frame.data.strip() == b"[DONE]":
                    continue
                out.append(frame.raw if is_silent(frame) else self._take(frame))
                if self.evidence.ended:
                    break
        except StromError as error:
            self._stop(error)
        self._quick = self._in if self._parser.idle and not self.evidence.ended else None
        return b"".join(out)

    def _take(self, frame: Frame) -> bytes:
        """Raises StromError for what no client may see: the gateway words it."""
        data = frame.data or b""
        wire = parse(frame)
        events = self._observe(wire, data)
        if self.evidence.error is not None:
            return b""
        if wire.type in _ENDS:
            return self._end(wire, data, frame)
        told = number(wire.sequence_number)
        missing = self._shown.before(wire, self._place(wire))
        if missing is None:
            self._in = None
            return b""
        first = self._written(missing)
        out = self._repaired(wire, data, frame)
        self._expected = self._next if told is None else told + 1
        self._learn(frame, wire, events, out)
        return first + out if first else out

    def _place(self, wire: FrameIn) -> int:
        told = number(wire.output_index)
        return self._reader.place_of(wire) if told is None else told

    def _written(self, events: list[Written]) -> bytes:
        """Events of our own, which the upstream left out."""
        out = []
        for kind, members in events:
            out.append(event_frame(kind, self._next, members))
            self._next += 1
            self._places.added += kind == b"response.output_item.added"
        return b"".join(out)

    def _close(self, output: list[Raw], status: str) -> bytes:
        """What the client has to see of the output before the terminal event. Raises InvalidStreamEvent."""
        events, finished = self._shown.end(output, status)
        self._items += finished
        return self._written(events)

    def _observe(self, wire: FrameIn, data: bytes) -> list[Event]:
        """What the frame means. One that makes no sense to us but is legal JSON passes on unobserved."""
        is_end = wire.type in _ENDS or wire.type in ("response.failed", "response.cancelled", "error", "")
        try:
            events = self._reader.read(wire, data)
        except StromError:
            if is_end:
                raise
            return []
        self.evidence.observe(events)
        return events

    def _stop(self, error: StromError) -> None:
        self.evidence.complete = False
        self.evidence.observe(self._reader.fail(error))

    # --- repairs ---

    def _repaired(self, wire: FrameIn, data: bytes, frame: Frame) -> bytes:
        place = self._next
        self._next += 1
        begins = self._begun(wire) if wire.type in repair.BEGINNINGS else None
        filled = self._filled(wire)
        index = self._places.index_for(wire)
        if index is not None:
            filled["output_index"] = Raw(b"%d" % index)
        if wire.type == "response.output_item.done" and present(wire.item):
            self._items.append(single_line(bytes(filled.get("item", wire.item))))
        named = frame.event == wire.type.encode()
        whole = begins is None and not filled and not repair.missing(wire)
        if number(wire.sequence_number) == place and named and whole:
            return frame.raw
        members = members_of(data)
        members["type"] = Raw(ENCODE(wire.type))
        members["sequence_number"] = Raw(b"%d" % place)
        if begins is not None:
            members["response"] = begins
        members.update(filled)
        repair.complete(wire, members, self._reader.place_of(wire))
        return repair.framed(wire, members)

    def _filled(self, wire: FrameIn) -> dict[str, Raw]:
        """Arguments where a call ends without any."""
        if wire.type == "response.output_item.done":
            is_item = bytes(wire.item).startswith(b"{")  # anything else makes no sense to us, and passes on
            view = ItemIn(type="function_call", id=read(ITEM_ID, wire.item).id) if is_item else ItemIn()
            item = with_arguments(wire.item, self._shown.arguments_of(view, self._place(wire)))
            return {} if item is None else {"item": Raw(item)}
        if wire.type != "response.function_call_arguments.done" or word(wire.arguments):
            return {}
        view = ItemIn(type="function_call", id=wire.item_id)
        return {"arguments": Raw(ENCODE(self._shown.arguments_of(view, self._place(wire))))}

    def _end(self, wire: FrameIn, data: bytes, frame: Frame) -> bytes:
        """The terminal event: what the protocol demands of it, and the routing block."""
        response = read(RESPONSE, wire.response) if present(wire.response) else ResponseIn()
        closing = self._close(response.output or [], wire.type.rpartition(".")[2])
        members = members_of(data)
        changes = self._lacking(wire, response)
        block = self._context.block()
        if block is not None:
            changes[self._context.block_name] = block
        if changes:
            members["response"] = repair.changed(wire.response, changes)
        self.response = bytes(members.get("response", Raw(b"{}")))
        if not changes and number(wire.sequence_number) == self._next and frame.event == wire.type.encode():
            return frame.raw
        members["type"] = Raw(ENCODE(wire.type))
        members["sequence_number"] = Raw(b"%d" % self._next)
        return closing + repair.framed(wire, members)

    def _begun(self, wire: FrameIn) -> Raw | None:
        """The Response object of a beginning, with what it lacked; None when it lacked nothing."""
        names = repair.lacking(wire.response)
        if not names:
            return None
        whole = members_of(self._own.begun())
        return repair.changed(wire.response, {name: bytes(whole[name]) for name in names})

    def _lacking(self, wire: FrameIn, response: ResponseIn) -> dict[str, bytes]:
        """Members of the final Response object that are missing or of no use to a client."""
        whole = self._own.ended(self._items, self._usage_json(), None if wire.type == "response.completed" else "")
        names = repair.lacking(wire.response)
        if not response.output and self._items and "output" not in names:
            names.append("output")
        if not is_full_usage(response.usage):
            names.append("usage")
        changes = {name: bytes(whole[name]) for name in names}
        output = with_all_arguments(response.output or [], self._shown.arguments_of)
        return changes if output is None else {**changes, "output": output}

    @property
    def _own(self) -> ResponseObject:
        """What stands where the upstream says nothing."""
        if self._object is None:
            identity = self.evidence.response_id or response_id("", self._context.reply_id)
            self._object = ResponseObject(self._context, identity)
        return self._object

    def _usage_json(self) -> bytes:
        return usage_json(self.evidence.usage, self._context.input_estimate, self.evidence.output_characters)

    # --- the quick way ---

    def _learn(self, frame: Frame, wire: FrameIn, events: list[Event], out: bytes) -> None:
        """A frame that was one delta of the block now open is a shape to recognise, and to write if it had to be repaired."""
        delta = events[-1] if events else None
        if not isinstance(delta, TextDelta | ThinkingDelta):
            self._in = None
            return
        same = out is frame.raw
        key = (wire.type, delta.index, wire.item_id, wire.output_index, wire.content_index, wire.summary_index, same)
        if self._in is not None and key == self._key:
            return
        self._key = key
        self._in = learn(frame.raw, delta.text, number(wire.sequence_number))
        self._out = None if same else learn(out, delta.text, self._next - 1)
        if not same and self._out is None:
            self._in = None
