"""Canonical events → a Responses event stream.

Layout: response.created, response.in_progress, then per block one output item: added, its parts and deltas, done,
complete; then one terminal event with the whole output, full usage and the routing block in its `response`.
`sequence_number` counts every event from 0, heartbeats included; indices rise by one; items never overlap. A text or
thinking item is opened with its first delta, so none is empty. Reasoning goes out as a summary, which is what clients
show. `[DONE]` never comes.
Source: streams.md sections 2 to 6; protocol-facts.md section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw

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
from strom.core.usage import Usage
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses import carry
from strom.protocols.openai_responses.errors import error_event
from strom.protocols.openai_responses.meanings import incomplete_reason, usage_json
from strom.protocols.openai_responses.response import ResponseObject, response_id, with_block
from strom.protocols.openai_responses.schema import (
    ENCODE,
    ITEM_ID,
    NAME,
    members_of,
    object_of,
    read,
    single_line,
    word,
)
from strom.protocols.openai_responses.writing import (
    CallItem,
    CustomCallItem,
    OpenItem,
    ReasoningItem,
    RefusalItem,
    TextItem,
    Written,
    whole_item,
)

THINK_OPEN, THINK_CLOSE = "<think>\n", "\n</think>\n\n"
"""Around reasoning that is shown as text ([server] reasoning = "text")."""


def event_frame(kind: bytes, number: int, members: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (kind, kind, number, members)


def keepalive(number: int) -> bytes:
    return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % number


def failure(error: StromError, number: int, response: bytes) -> bytes:
    """The two events of an in-band error."""
    flat = b"event: error\ndata: " + error_event(error, number) + b"\n\n"
    return flat + event_frame(b"response.failed", number + 1, b'"response":' + response)


class Encoder:
    """Satisfies `StreamEncoder`. `response`: the terminal Response object, once it went out; `output`: its items so far."""

    __slots__ = (
        "_after",
        "_before",
        "_block",
        "_characters",
        "_context",
        "_finished",
        "_head",
        "_ids",
        "_item",
        "_live_index",
        "_live_type",
        "_number",
        "_object",
        "_sequencer",
        "_upstream_id",
        "_usage",
        "ended",
        "output",
        "response",
    )

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._sequencer = Sequencer()
        self._object: ResponseObject | None = None  # made when the stream begins
        self._upstream_id = ""
        self._number = 0
        self._characters = 0
        self._usage: Usage | None = None
        self._finished = Finished("stop")
        self._block: Block | None = None  # the open block, None between blocks and for blocks that are left out
        self._item: OpenItem | None = None  # its item, once it is opened
        self._ids: set[str] = set()
        self._live_type: type | None = None  # deltas of this type and index need nothing but the bytes around them
        self._live_index = -1
        self._head = self._before = self._after = b""
        self.output: list[bytes] = []
        self.response = b""
        self.ended = False

    def encode(self, events: list[Event]) -> bytes:
        if len(events) == 1:
            event = events[0]
            if type(event) is self._live_type and event.index == self._live_index:  # type: ignore[union-attr]  # a delta
                return self._delta(event.text)  # type: ignore[union-attr]  # a delta
        out: list[bytes] = []
        for event in self._sequencer.feed(events):
            if self.ended:
                break
            out.append(_ENCODERS[type(event)](self, event))
        return b"".join(out)

    def continues(self, kind: type[Event], index: int) -> Callable[[str], bytes] | None:
        return self._delta if kind is self._live_type and index == self._live_index else None

    def fail(self, error: StromError) -> bytes:
        if self.ended:
            return b""
        opening = self._start()
        self.ended = True
        self.response = with_block(self._response.failed(self.output, self._usage_json(), error), self._context)
        self._number += 2
        return opening + failure(error, self._number - 2, self.response)

    def heartbeat(self) -> bytes:
        """A counted data event: comments do not keep Codex alive. SDKs want response.created before anything else."""
        if self.ended:
            return b""
        opening = self._start()
        self._number += 1
        return opening + keepalive(self._number - 1)

    # --- the stream ---

    def _start(self) -> bytes:
        if self._object is not None:
            return b""
        self._object = ResponseObject(self._context, response_id(self._upstream_id, self._context.reply_id))
        members = b'"response":' + self._object.begun()
        return self._write([(b"response.created", members), (b"response.in_progress", members)])

    @property
    def _response(self) -> ResponseObject:
        assert self._object is not None, "the stream has not begun"
        return self._object

    def _write(self, events: Iterable[Written]) -> bytes:
        out = []
        for kind, members in events:
            out.append(event_frame(kind, self._number, members))
            self._number += 1
        return b"".join(out)

    def _usage_json(self) -> bytes:
        return usage_json(self._usage, self._context.input_estimate, self._characters)

    def _on_started(self, event: Started) -> bytes:
        self._upstream_id = event.response_id
        return self._start()

    def _on_usage(self, event: UsageReported) -> bytes:
        self._usage = event.usage if self._usage is None else self._usage.updated(event.usage)
        return b""

    def _on_finished(self, event: Finished) -> bytes:
        self._finished = event
        return b""

    def _on_nothing(self, event: Event) -> bytes:
        return b""

    def _on_completed(self, event: Completed) -> bytes:
        opening = self._start()
        self.ended = True
        incomplete = incomplete_reason(self._finished.reason)
        self.response = with_block(self._response.ended(self.output, self._usage_json(), incomplete), self._context)
        kind = b"response.completed" if incomplete is None else b"response.incomplete"
        return opening + self._write([(kind, b'"response":' + self.response)])

    # --- items ---

    def _new_id(self, prefix: str, identity: str) -> str:
        """The upstream's own id of the item, as long as it is unique; ours otherwise."""
        if not identity or identity in self._ids:
            identity = f"{prefix}{self._context.reply_id}_{len(self.output)}"
        self._ids.add(identity)
        return identity

    def _open(self, item: OpenItem) -> bytes:
        self._item = item
        self._before, self._after = item.before, item.after
        self._head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (item.delta_type, item.delta_type)
        return self._write(item.opening())

    def _on_block(self, event: BlockStarted) -> bytes:
        opening = self._start()
        block = self._block = event.block
        self._live_type, self._item = None, None
        match block.kind:
            case "text" | "refusal":
                return opening
            case "thinking":
                if self._context.reasoning == "drop":
                    self._block = None
                return opening
            case "tool_call":
                return opening + self._open_call(event.index, block)
            case "redacted_thinking":
                return opening + self._redacted(block)
            case "opaque":
                return opening + self._opaque(block)

    def _open_call(self, index: int, block: Block) -> bytes:
        place = len(self.output)
        self._live_type, self._live_index = ArgumentsDelta, index
        if block.custom:
            return self._open(CustomCallItem(self._new_id("ctc_", block.item_id), place, block))
        return self._open(CallItem(self._new_id("fc_", block.item_id), place, block))

    def _redacted(self, block: Block) -> bytes:
        if self._context.reasoning != "native":
            self._block = None
            return b""
        item = ReasoningItem(self._new_id(carry.REASONING_ID, block.item_id), len(self.output))
        opening = self._open(item)
        item.encrypted = carry.pack(block.protocol, carry.REDACTED, block.data)
        return opening

    def _opaque(self, block: Block) -> bytes:
        self._block = None
        if block.protocol != NAME:
            return b""
        data = block.data.encode()
        told = word(read(ITEM_ID, data).id)
        identity = self._new_id("item_", told)
        item = data if identity == told else object_of({**members_of(data), "id": Raw(ENCODE(identity))})
        self.output.append(single_line(item))
        return self._write(whole_item(len(self.output) - 1, self.output[-1]))

    def _on_text(self, event: TextDelta) -> bytes:
        block = self._block
        assert block is not None, "a text block is never left out"
        opening = b""
        if self._item is None:
            item_type = RefusalItem if block.kind == "refusal" else TextItem
            opening = self._open(item_type(self._new_id("msg_", block.item_id), len(self.output)))
        self._live_type, self._live_index = TextDelta, event.index
        return opening + self._delta(event.text)

    def _on_thinking(self, event: ThinkingDelta) -> bytes:
        if self._block is None:
            return b""
        opening = b""
        if self._item is None:
            opening = self._open_thinking(self._block)
        self._live_type, self._live_index = ThinkingDelta, event.index
        return opening + self._delta(event.text)

    def _open_thinking(self, block: Block) -> bytes:
        place = len(self.output)
        if self._context.reasoning == "text":
            opening = self._open(TextItem(self._new_id("msg_", ""), place))
            return opening + self._delta(THINK_OPEN)
        item = ReasoningItem(self._new_id(carry.REASONING_ID, block.item_id), place)
        return self._open(item) + self._write([item.opening_part()])

    def _on_arguments(self, event: ArgumentsDelta) -> bytes:
        return self._delta(event.text) if self._item is not None else b""

    def _delta(self, text: str) -> bytes:
        number = self._number
        self._number = number + 1
        self._characters += len(text)
        self._item.pieces.append(text)  # type: ignore[union-attr]  # a live block has an item
        return b"%b%d,%b%b%b" % (self._head, number, self._before, ENCODE(text), self._after)

    def _on_signature(self, event: SignatureDelta) -> bytes:
        if self._block is None or self._context.reasoning != "native":
            return b""
        opening = b""
        if self._item is None:  # a signature without text
            opening = self._open(ReasoningItem(self._new_id(carry.REASONING_ID, self._block.item_id), len(self.output)))
        item = self._item
        if isinstance(item, ReasoningItem):
            item.encrypted += (
                event.signature if item.encrypted else carry.pack(event.protocol, carry.SIGNATURE, event.signature)
            )
        return opening

    def _on_citation(self, event: CitationDelta) -> bytes:
        if event.protocol != NAME or not isinstance(self._item, TextItem):
            return b""
        return self._write([self._item.annotate(single_line(event.data.encode()))])

    def _on_block_end(self, event: BlockEnded) -> bytes:
        item, block = self._item, self._block
        self._live_type, self._item, self._block = None, None, None
        if item is None or block is None:
            return b""
        closing = b""
        if block.kind == "thinking" and isinstance(item, TextItem):
            self._item = item
            closing = self._delta(THINK_CLOSE)
            self._item = None
        events, finished = item.closing(event.invalid)
        self.output.append(finished)
        return closing + self._write(events)


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
