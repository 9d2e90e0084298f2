"""A Messages stream for a Messages client: upstream's bytes, untouched wherever they are legal.

Every frame is read, so that the evidence is complete, and judged: a legal one goes out as it came. For any other the encoder
writes what the frame means, which keeps blocks apart and indices rising whatever upstream does (llama.cpp's tool_use without
`input`, missing `event:` lines, blocks never closed or never opened, ids that are numbers, interleaved calls). Held back is
only message_delta, until message_stop proves the end: the routing block rides on it. Source: streams.md section 2; recordings
xllamacpp_tools/echo_anthropic_tools.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import StromError
from strom.core.events import ArgumentsDelta, Block, BlockStarted, Completed, Event, TextDelta, ThinkingDelta
from strom.core.evidence import Evidence
from strom.core.usage import estimate_tokens
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.encoder import MESSAGE_STOP, PING, Encoder, frame, message_id
from strom.protocols.anthropic_messages.meanings import read_usage, usage_out
from strom.protocols.anthropic_messages.reader import NAME, OpenBlock, StreamReader, is_silent, named
from strom.protocols.codec import Express, Quirks, ReplyContext
from strom.wire.splice import append_member, join, split
from strom.wire.sse import Frame, SseParser
from strom.wire.template import FrameTemplate

_BLOCK = msgspec.json.Decoder(schema.BlockIn)
_KIND_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_call",
}
_PLAIN = (TextDelta, ThinkingDelta, ArgumentsDelta)
_DELTA_EVENT = b"content_block_delta"
_ASSUMED_END = b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}}'
_encode = schema.ENCODER.encode


class Relay:
    """Satisfies `strom.protocols.codec.Relay`."""

    __slots__ = ("_context", "_encoder", "_held", "_held_count", "_parser", "_reader", "_template", "_told", "evidence")

    def __init__(self, context: ReplyContext, quirks: Quirks) -> None:
        self.evidence = Evidence()
        self._context = context
        self._parser = SseParser(quirks.max_frame_bytes)
        self._reader = StreamReader(quirks)
        self._encoder = Encoder(context, eager=True)
        self._template = FrameTemplate()
        self._held: Frame | None = None  # the message_delta with the stop reason
        self._held_count = 0
        self._told = (
            -1
        )  # reader's index of the last opaque block whose start went out: the reader tells of it at its end

    def feed(self, data: bytes) -> bytes:
        text = self._template.match_string(data)
        if text is None:
            return self._read(data)
        evidence = self.evidence
        evidence.deltas += 1
        evidence.output_characters += len(text)
        return data

    def express(self) -> Express | None:
        return (self._template.match_string, None)

    def finish(self) -> bytes:
        events = self._reader.finish()
        self.evidence.observe(events)
        return self._end(events, MESSAGE_STOP) if self.evidence.complete and events else b""

    def fail(self, error: StromError) -> bytes:
        return self._encoder.fail(error)

    def heartbeat(self) -> bytes:
        if self._encoder.ended:
            return b""
        return PING if self._encoder.started else b": keep-alive\n\n"

    # --- frames ---

    def _read(self, data: bytes) -> bytes:
        if self._reader.ended:
            return b""
        self._template.forget()
        try:
            frames = self._parser.feed(data)
        except StromError as error:
            self.evidence.observe(self._reader.fail(error))
            return b""
        if len(frames) == 1:
            return self._relay(frames[0], learn=self._parser.idle)
        return b"".join([self._relay(each, learn=False) for each in frames])

    def _relay(self, each: Frame, *, learn: bool) -> bytes:
        if self._reader.ended:
            return b""
        if is_silent(each):
            return b"" if each.data else each.raw
        try:
            wire = self._reader.parse(each)
            if not wire.type:
                wire, each, learn = named(wire, each), _typed(each), False
            legal = self._is_legal(wire)
            events = self._reader.read(wire)
        except StromError as error:
            events = self._reader.fail(error)
            self.evidence.observe(events)
            return b""
        self.evidence.observe(events)
        if self._told >= 0:
            events = [event for event in events if not self._was_told(event)]
        if legal and wire.type == "content_block_delta":
            if learn and len(events) == 1 and isinstance(events[0], _PLAIN) and each.event == _DELTA_EVENT:
                self._template.learn(each.raw, events[0].text.encode())
            return _named(each, wire.type)
        return self._structure(each, wire, events, legal=legal)

    def _structure(self, each: Frame, wire: schema.FrameIn, events: list[Event], *, legal: bool) -> bytes:
        """A frame that is no plain delta."""
        match wire.type:
            case "message_stop":
                if not self.evidence.complete:
                    return b""
                return self._end(events, _named(each, wire.type))
            case "message_delta":
                self._hold(each, wire)
                return self._encoder.encode(events)
            case "message_start":
                first = not self._encoder.started
                self._encoder.encode(events)
                repaired = b"" if legal else _written("message_start", self._repaired_start(each.data or b""))
                return (_named(each, wire.type) if legal else repaired) if first else b""
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                written = self._encoder.encode(events)
                if legal and wire.type == "content_block_start":
                    self._tell(wire)
                return _named(each, wire.type) if legal else written
            case "ping":
                return _named(each, wire.type) if self._encoder.started else b": ping\n\n"
            case _:
                return _named(each, wire.type) if wire.type else each.raw

    # --- what is legal ---

    def _is_legal(self, wire: schema.FrameIn) -> bool:
        """Whether the frame may go out as it is, judged before the reader has taken it in."""
        match wire.type:
            case "content_block_delta":
                return self._is_legal_delta(wire)
            case "content_block_start":
                return self._is_legal_block(wire)
            case "content_block_stop":
                return self._is_legal_stop(wire)
            case "message_start":
                return wire.message is not None and _is_legal_start(wire.message)
            case _:
                return True

    def _is_legal_delta(self, wire: schema.FrameIn) -> bool:
        block = self._reader.blocks.get(-1 if wire.index is None else wire.index)
        if block is None or wire.delta is None or not wire.delta.type or not self._is_current(wire.index, block):
            return False
        kind = _KIND_OF_DELTA.get(wire.delta.type, block.kind)
        if kind == "thinking" and self._context.reasoning != "native":
            return False
        return kind == block.kind or block.index is None

    def _is_legal_block(self, wire: schema.FrameIn) -> bool:
        if not self._encoder.started or self._reader.blocks or wire.index != self._encoder.index + 1:
            return False
        try:
            block = schema.read(_BLOCK, wire.content_block)
        except ValueError:
            return False
        match block.type:
            case "text":
                return block.text == ""
            case "thinking":
                return block.thinking == "" and not block.signature and self._context.reasoning == "native"
            case "redacted_thinking":
                return self._context.reasoning == "native"
            case "tool_use":
                named = isinstance(block.id, str) and bool(block.id and block.name)
                return named and bytes(block.input).replace(b" ", b"") == b"{}"
            case _:
                return bool(block.type)

    def _is_legal_stop(self, wire: schema.FrameIn) -> bool:
        """Only the block that is open may end, and only if nothing else has to come out with its end."""
        block = self._reader.blocks.get(-1 if wire.index is None else wire.index)
        if block is None or len(self._reader.blocks) > 1:
            return False
        if block.kind == "thinking" and self._context.reasoning != "native":
            return False
        whole_input = block.kind == "tool_call" and bool(block.pieces) and not block.has_deltas
        return not whole_input and self._is_current(wire.index, block)

    def _is_current(self, index: int | None, block: OpenBlock) -> bool:
        """Whether the client has seen this block begin, under this index, and no other since."""
        return index == self._encoder.index and (block.index is not None or self._told == self._reader.next_index)

    # --- opaque blocks ---

    def _tell(self, wire: schema.FrameIn) -> None:
        """The start of an opaque block went out: the encoder has to know, though the reader speaks of it at its end only."""
        block = self._reader.blocks[-1 if wire.index is None else wire.index]
        if block.index is None:
            self._told = self._reader.next_index
            opaque = Block("opaque", name=block.name, data=block.raw.decode("utf-8", "replace"), protocol=NAME)
            self._encoder.encode([BlockStarted(self._told, opaque)])

    def _was_told(self, event: Event) -> bool:
        return isinstance(event, BlockStarted) and event.index == self._told

    # --- repairs ---

    def _repaired_start(self, data: bytes) -> bytes:
        """message_start with what is missing filled in, all else as it came."""
        members = split(data)
        raw = members.get("message", b"{}")
        message = split(raw) if raw.startswith(b"{") else {}
        start = schema.read(_START, join(message))
        message["id"] = _encode(message_id("", self._context.reply_id) if start.id in (None, "") else str(start.id))
        message["type"], message["role"], message["content"] = b'"message"', b'"assistant"', b"[]"
        message["model"] = _encode(start.model or self._context.model)
        message["stop_reason"] = b"null"
        message.setdefault("stop_sequence", b"null")
        message["usage"] = _filled_usage(message.get("usage", b"{}"), max(1, self._context.input_estimate), 1)
        return join({**members, "type": b'"message_start"', "message": join(message)})

    def _hold(self, each: Frame, wire: schema.FrameIn) -> None:
        self._held_count += 1
        if self._held is None or (wire.delta is not None and wire.delta.stop_reason):
            self._held = each

    def _end(self, events: list[Event], message_stop: bytes) -> bytes:
        """message_delta with the routing block, and message_stop. The evidence is complete by now."""
        closing = self._encoder.encode([event for event in events if type(event) is not Completed])
        self._encoder.ended = True
        if self.evidence.tool_calls and self.evidence.finish_reason == "stop":
            self.evidence.finish_reason = "tool_calls"
        held = self._held or Frame(_ASSUMED_END, b"message_delta", b"")
        data = self._repaired_end(held.data or b"")
        block = self._context.block()
        if block is not None:
            data = append_member(data, self._context.block_name, block)
        untouched = data is held.data
        return (
            closing + (_named(held, "message_delta") if untouched else _written("message_delta", data)) + message_stop
        )

    def _repaired_end(self, data: bytes) -> bytes:
        """The held frame's data; of several frames, and of one without counts, with the merged counts put in."""
        members = split(data)
        delta = split(members.get("delta", b"{}"))
        usage = read_usage(Raw(members.get("usage", b"")))
        counted = usage is not None and usage.output_tokens is not None
        named = delta.get("stop_reason", b"").startswith(b'"')
        called = delta.get("stop_reason", b'"end_turn"') in (b'"end_turn"', b"null") and self.evidence.tool_calls > 0
        if self._held_count == 1 and counted and named and "type" in members and not called:
            return data
        if called or not named:
            delta["stop_reason"] = _encode("tool_use" if called else self.evidence.finish_raw or "end_turn")
            delta.setdefault("stop_sequence", b"null")
            members["delta"] = join(delta)
        if counted and self._held_count == 1:
            return join({"type": b'"message_delta"', **members})
        estimate = estimate_tokens(self.evidence.output_characters)
        merged = split(_encode(usage_out(self.evidence.usage, self._context.input_estimate, estimate)))
        members["usage"] = join({**_object(members.get("usage", b"{}")), **merged})
        return join({**members, "type": b'"message_delta"'})


_START = msgspec.json.Decoder(schema.StartIn)


def _typed(each: Frame) -> Frame:
    """The frame with the type in its data, which stood in the event line alone; without one there either, as it came."""
    if not each.event:
        return each
    kind = each.event.decode("utf-8", "replace")
    data = join({**split(each.data or b""), "type": _encode(kind)})
    return Frame(data, each.event, _written(kind, data))


def _named(each: Frame, kind: str) -> bytes:
    """The frame as it came; one without its event line, or with another's, gets it."""
    return each.raw if each.event == kind.encode() else _written(kind, each.data or b"")


def _written(kind: str, data: bytes) -> bytes:
    """A frame of our own around upstream's JSON, which may have come in several data lines."""
    return frame(kind.encode(), data.replace(b"\n", b" "))


def _is_legal_start(message: schema.StartIn) -> bool:
    usage = read_usage(message.usage)
    counted = usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
    named = isinstance(message.id, str) and bool(message.id) and message.model is not None
    shaped = message.type == "message" and message.role == "assistant" and bytes(message.content) == b"[]"
    return counted and named and shaped and not schema.present(message.stop_reason)


def _object(raw: bytes) -> dict[str, bytes]:
    return split(raw) if raw.startswith(b"{") else {}


def _filled_usage(raw: bytes, input_tokens: int, output_tokens: int) -> bytes:
    members = _object(raw)
    usage = read_usage(Raw(raw)) or schema.UsageIn()
    if usage.input_tokens is None:
        members["input_tokens"] = b"%d" % input_tokens
    if usage.output_tokens is None:
        members["output_tokens"] = b"%d" % output_tokens
    return join(members)
