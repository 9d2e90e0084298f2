"""Canonical events → a Messages event stream.

Layout: message_start, then blocks that never overlap with indices rising by one, then one message_delta with the final
usage and the routing block, then message_stop. Every frame has `event:` equal to its type. No delta and no text block is
empty: a text or thinking block is written with its first delta. Signatures are never invented. message_delta is held until
the end is proven. Source: streams.md section 2; protocol-facts.md section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from strom.core import ids
from strom.core.errors import StromError
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
from strom.core.sequencer import Sequencer
from strom.core.usage import Usage, estimate_tokens
from strom.protocols.anthropic_messages import carry, schema
from strom.protocols.anthropic_messages.errors import error_body
from strom.protocols.anthropic_messages.meanings import stop_reason, usage_out
from strom.protocols.codec import ReplyContext
from strom.wire.splice import append_member

NAME = "anthropic"
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
MESSAGE_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
_DELTA_END = b"}}\n\n"
_TEXT = (b"text_delta", b"text")
_THINKING = (b"thinking_delta", b"thinking")
_ARGUMENTS = (b"input_json_delta", b"partial_json")
THINK_OPEN, THINK_CLOSE = "<think>", "</think>\n\n"
"""Around reasoning that is shown as text ([server] reasoning = "text")."""
_encode = schema.ENCODER.encode


def frame(kind: bytes, data: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + data + b"\n\n"


def message_id(response_id: str, reply_id: str) -> str:
    return response_id if response_id.startswith("msg_") else f"msg_{reply_id}"


class Encoder:
    """Satisfies `StreamEncoder`. `eager` opens text and thinking blocks at once: the relay, whose upstream does so."""

    __slots__ = (
        "_block",
        "_characters",
        "_context",
        "_eager",
        "_finished",
        "_has_calls",
        "_live",
        "_live_type",
        "_prefix",
        "_refused",
        "_response_id",
        "_sequencer",
        "_usage",
        "_wrapping",
        "_written",
        "ended",
        "index",
        "started",
    )

    def __init__(self, context: ReplyContext, *, eager: bool = False) -> None:
        self._context = context
        self._eager = eager
        self._sequencer = Sequencer()
        self._response_id = ""
        self._usage: Usage | None = None
        self._finished = Finished("stop")
        self._has_calls = False
        self._refused = False
        self._characters = 0
        self._block: Block | None = None  # the open block, None between blocks and for blocks that are left out
        self._written = False  # whether its content_block_start went out
        self._wrapping = False  # whether the input of a free-text tool was begun
        self._live = -1  # canonical index of an open block whose deltas of `_live_type` need the prefix only
        self._live_type: type = TextDelta
        self._prefix = b""  # bytes before the JSON string of the open block's deltas
        self.index = -1  # the client's index of the block last written
        self.started = False
        self.ended = False

    def encode(self, events: list[Event]) -> bytes:
        if len(events) == 1:
            event = events[0]
            if type(event) is self._live_type and event.index == self._live:  # type: ignore[union-attr]  # a delta
                text: str = event.text  # type: ignore[union-attr]
                self._characters += len(text)
                return self._prefix + _encode(text) + _DELTA_END
        return self._encode_all(events)

    def continues(self, kind: type[Event], index: int) -> Callable[[str], bytes] | None:
        return self._more if kind is self._live_type and index == self._live else None

    def _more(self, text: str) -> bytes:
        self._characters += len(text)
        return self._prefix + _encode(text) + _DELTA_END

    def fail(self, error: StromError) -> bytes:
        if self.ended:
            return b""
        self.ended = True
        return frame(b"error", error_body(error, self._context.request_id))

    def heartbeat(self) -> bytes:
        """A ping; it may not stand before message_start, which therefore goes out with it."""
        return b"" if self.ended else self._start() + PING

    # --- events ---

    def _encode_all(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in self._sequencer.feed(events):
            if self.ended:
                break
            out.append(_ENCODERS[type(event)](self, event))
        if not self.started and any(type(event) is Started for event in events):
            out.append(self._start())
        return b"".join(out)

    def _on_started(self, event: Started) -> bytes:
        """message_start waits for the rest of the read: the known usage may stand in it."""
        if not self.started:
            self._response_id = event.response_id
        return b""

    def _on_block(self, event: BlockStarted) -> bytes:
        out = self._start()
        block = event.block
        self._live, self._written, self._wrapping, self._block = -1, False, False, block
        match block.kind:
            case "text" | "refusal":
                self._refused = self._refused or block.kind == "refusal"
                return out + (self._open_text() if self._eager else b"")
            case "thinking":
                if self._context.reasoning == "drop":
                    self._block = None
                eager = self._eager and self._context.reasoning == "native"
                return out + (self._open_thinking() if eager else b"")
            case "tool_call":
                self._has_calls = True
                return out + self._open_call(event.index, block)
            case "redacted_thinking":
                sealed = schema.RedactedOut(carry.pack(block.protocol, block.item_id, block.data))
                return out + self._whole_block(_encode(sealed), keep=self._context.reasoning == "native")
            case "opaque":
                return out + self._whole_block(block.data.encode(), keep=block.protocol == NAME)
            case _:
                assert_never(block.kind)

    def _whole_block(self, data: bytes, *, keep: bool) -> bytes:
        """A block that is complete at its start; its end is written with BlockEnded."""
        if not keep:
            self._block = None
            return b""
        return self._open(data)

    def _open_call(self, index: int, block: Block) -> bytes:
        call = schema.ToolUseOut(ids.to_legal(block.call_id), block.name, Raw(b"{}"))
        out = self._open(_encode(call), _ARGUMENTS)
        if not block.custom:
            self._live, self._live_type = index, ArgumentsDelta
        return out

    def _open_text(self) -> bytes:
        return b"" if self._written else self._open(b'{"type":"text","text":""}', _TEXT)

    def _open_thinking(self) -> bytes:
        if self._written:
            return b""
        return self._open(b'{"type":"thinking","thinking":"","signature":""}', _THINKING)

    def _open(self, block: bytes, fields: tuple[bytes, bytes] = _TEXT) -> bytes:
        """content_block_start; `fields`: the type of the block's deltas, and their member."""
        self._written = True
        self.index += 1
        self._prefix = _DELTA % (self.index, *fields)
        data = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (self.index, block)
        return frame(b"content_block_start", data)

    def _delta(self, text: str) -> bytes:
        self._characters += len(text)
        return self._prefix + _encode(text) + _DELTA_END

    def _on_text(self, event: TextDelta) -> bytes:
        opening = self._open_text()
        self._live, self._live_type = event.index, TextDelta
        return opening + self._delta(event.text)

    def _on_thinking(self, event: ThinkingDelta) -> bytes:
        if self._block is None:
            return b""
        if self._context.reasoning == "text":
            tag = "" if self._written else THINK_OPEN
            opening = self._open_text()
        else:
            tag, opening = "", self._open_thinking()
        self._live, self._live_type = event.index, ThinkingDelta
        return opening + self._delta(tag + event.text)

    def _on_signature(self, event: SignatureDelta) -> bytes:
        if self._block is None or self._context.reasoning != "native":
            return b""
        opening = self._open_thinking()
        prefix = _DELTA % (self.index, b"signature_delta", b"signature")
        signature = carry.pack(event.protocol, self._block.item_id, event.signature)
        return opening + prefix + _encode(signature) + _DELTA_END

    def _on_arguments(self, event: ArgumentsDelta) -> bytes:
        if self._block is None or not self._block.custom:
            return self._delta(event.text)
        opening = "" if self._wrapping else '{"input":"'
        self._wrapping = True
        return self._delta(opening + _encode(event.text)[1:-1].decode())

    def _on_citation(self, event: CitationDelta) -> bytes:
        if self._block is None or event.protocol != NAME:
            return b""
        opening = self._open_text()
        prefix = _DELTA % (self.index, b"citations_delta", b"citation")
        return opening + prefix + event.data.encode() + _DELTA_END

    def _on_block_end(self, event: BlockEnded) -> bytes:
        block, written = self._block, self._written
        self._block, self._written, self._live = None, False, -1
        if block is None or not written:
            return b""
        closing = b""
        if block.kind == "thinking" and self._context.reasoning == "text":
            closing = self._delta(THINK_CLOSE)
        elif self._wrapping:
            closing = self._delta('"}')
        return closing + frame(b"content_block_stop", b'{"type":"content_block_stop","index":%d}' % self.index)

    def _on_usage(self, event: UsageReported) -> bytes:
        self._usage = event.usage if self._usage is None else self._usage.updated(event.usage)
        return b""

    def _on_finished(self, event: Finished) -> bytes:
        self._finished = event
        return b""

    def _on_nothing(self, event: Event) -> bytes:
        return b""

    def _on_completed(self, event: Completed) -> bytes:
        self.ended = True
        opening = self._start() if not self.started else b""
        finished = self._finished
        canonical = "refusal" if self._refused and finished.reason == "stop" else finished.reason
        reason = stop_reason(canonical, finished.stop_sequence, has_calls=self._has_calls)
        delta = {"stop_reason": reason, "stop_sequence": finished.stop_sequence if reason == "stop_sequence" else None}
        usage = usage_out(self._usage, self._context.input_estimate, estimate_tokens(self._characters))
        data = _encode({"type": "message_delta", "delta": delta, "usage": usage})
        block = self._context.block()
        if block is not None:
            data = append_member(data, self._context.block_name, block)
        return opening + frame(b"message_delta", data) + MESSAGE_STOP

    # --- frames ---

    def _start(self) -> bytes:
        if self.started:
            return b""
        self.started = True
        estimate = max(1, self._context.input_estimate)
        usage = usage_out(self._usage, estimate, 1)
        if not usage.input_tokens and not usage.cache_read_input_tokens:
            usage = msgspec.structs.replace(usage, input_tokens=estimate)
        message: dict[str, object] = {
            "id": message_id(self._response_id, self._context.reply_id),
            "type": "message",
            "role": "assistant",
            "model": self._context.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return frame(b"message_start", _encode({"type": "message_start", "message": message}))


_ENCODERS: dict[type, Callable[[Encoder, Any], bytes]] = {
    Started: Encoder._on_started,
    BlockStarted: Encoder._on_block,
    TextDelta: Encoder._on_text,
    ThinkingDelta: Encoder._on_thinking,
    SignatureDelta: Encoder._on_signature,
    ArgumentsDelta: Encoder._on_arguments,
    CitationDelta: Encoder._on_citation,
    BlockEnded: Encoder._on_block_end,
    UsageReported: Encoder._on_usage,
    Finished: Encoder._on_finished,
    Noted: Encoder._on_nothing,
    Completed: Encoder._on_completed,
    Failed: Encoder._on_nothing,
}
