"""What the frames of a Responses stream mean: frames → canonical events, without their framing.

Proof of completeness: `response.completed`, or `response.incomplete` (a proven early end). `response.failed`, an
`error` event in its flat or nested form, and a bare `{"error": …}` are failures. Keep-alives and unknown events mean
nothing. Indices, ids and whole events may be missing (llama.cpp): an event belongs to the item of its item_id, else
of its output_index, else to the one that was opened last. Shared by the decoder, the whole-reply path and the relay.
Source: protocol-facts.md sections 2.2 to 2.5; streams.md sections 1, 3, 10; recordings */responses_*.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from strom.core.errors import IncompleteCompletion, IncompleteStream, InvalidStreamEvent, ProviderError, StromError
from strom.core.events import Completed, Event, Failed, Finished, Noted, Started, UsageReported
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import schema
from strom.protocols.openai_responses.blocks import Board
from strom.protocols.openai_responses.items import CALLS, Call, Item, Message, Opaque, Reasoning, new_item
from strom.protocols.openai_responses.meanings import finished, read_usage
from strom.protocols.openai_responses.schema import FrameIn, ItemIn, PartIn, ResponseIn, number, word
from strom.protocols.openai_responses.upstream_errors import error_in_stream
from strom.wire.sse import Frame

_TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_UNFINISHED = frozenset(("queued", "in_progress"))


def parse(frame: Frame) -> FrameIn:
    """The frame's event. Raises StromError: InvalidStreamEvent, or what an error event that is no JSON says."""
    data = frame.data or b""
    try:
        wire = schema.read(schema.FRAME, schema.checked(data))
    except ValueError as error:
        if frame.event == b"error":
            raise error_in_stream(data) from None
        raise undecodable(data, str(error)) from None
    if not wire.type:
        wire.type = frame.event.decode("utf-8", "replace")
    if not wire.type and not schema.present(wire.error):
        raise undecodable(data, "no type")
    return wire


def undecodable(data: bytes, why: str) -> InvalidStreamEvent:
    shown = data[:200].decode("utf-8", "replace")
    return InvalidStreamEvent("The upstream sent an event that is none of its protocol.", detail=f"{why}: {shown}")


class StreamReader:
    """Feed it parsed frames until it has `ended`. `limit`: the output limit, when it is known."""

    __slots__ = ("_board", "_by_key", "_by_place", "_finished", "_quirks", "_started", "ended", "items", "limit")

    def __init__(self, quirks: Quirks, limit: int | None = None) -> None:
        self._quirks = quirks
        self._board = Board()
        self._by_key: dict[str, Item] = {}
        self._by_place: dict[int, Item] = {}
        self._started = False
        self._finished = False
        self.items: list[Item] = []
        self.limit = limit
        self.ended = False

    def read(self, wire: FrameIn, data: bytes) -> list[Event]:
        """`data`: the frame's JSON, for errors. Raises StromError for an error event and for what makes no sense."""
        kind = wire.type
        if kind == "error" or (not kind and schema.present(wire.error)):
            raise error_in_stream(data)
        handler = _HANDLERS.get(kind)
        if handler is None:
            return []
        handler(self, wire)
        return self._take()

    def read_response(self, response: ResponseIn, status: str) -> list[Event]:
        """A Response object that is the end: what of its output was never delivered, usage, and the terminal event."""
        self._begin(response)
        if status in ("failed", "cancelled"):
            return self.fail(_failure(response, status))
        if status in _UNFINISHED or not status:
            return self.fail(
                IncompleteCompletion(f"The upstream's reply is not finished (status {status or 'missing'}).")
            )
        for place, raw in enumerate(response.output or ()):
            self._finish_item(_item(raw), raw, place)
        self._close_all()
        usage = read_usage(response.usage)
        if usage is not None:
            self._board.out.append(UsageReported(usage))
            self._note_limit(response, status, usage.output_tokens)
        reason = response.incomplete_details.reason if response.incomplete_details is not None else None
        has_calls = any(isinstance(item, Call) and item.started for item in self.items)
        self._board.out.append(finished(status, reason or "", has_calls=has_calls))
        return self._complete()

    def fail(self, error: StromError) -> list[Event]:
        self.ended = True
        return [*self._take(), Failed(error)]

    def finish(self) -> list[Event]:
        """The body ended: proof by quirk, or the failure that this is."""
        if self.ended:
            return []
        if not self._quirks.done_required and self.items and all(item.is_done for item in self.items):
            has_calls = any(isinstance(item, Call) and item.started for item in self.items)
            self._board.out.append(Finished("tool_calls" if has_calls else "stop", assumed=True))
            return self._complete()
        return self.fail(IncompleteStream("The upstream's answer ended before it was complete."))

    def place_of(self, wire: FrameIn) -> int:
        """The output_index of the item an event belongs to, also where upstream does not tell it."""
        item = self._find(wire)
        return item.place if item is not None else len(self.items)

    # --- lifecycle events ---

    def _lifecycle(self, wire: FrameIn) -> None:
        self._begin(_response(wire.response))

    def _terminal(self, wire: FrameIn) -> None:
        response = _response(wire.response)
        status = word(response.status)
        if status not in _TERMINAL.values():
            status = _TERMINAL[wire.type]
        if status == "failed" and not schema.present(response.error):
            # some gateways keep the error beside the response
            response = ResponseIn(id=response.id, model=response.model, error=wire.error)
        self._board.out = self.read_response(response, status)

    def _begin(self, response: ResponseIn) -> None:
        limit = number(response.max_output_tokens)
        self.limit = limit if limit is not None else self.limit
        if not self._started:
            self._started = True
            created = number(response.created_at)
            self._board.out.append(Started(word(response.id), word(response.model), created or 0))

    def _note_limit(self, response: ResponseIn, status: str, output_tokens: int | None) -> None:
        """llama.cpp and transformers say completed although the limit cut them: see backends/README.md."""
        if status == "completed" and output_tokens is not None and output_tokens == self.limit:
            self._board.out.append(Noted("finish_reason (the upstream says completed at exactly its output limit)"))

    def _complete(self) -> list[Event]:
        self.ended = True
        self._board.out.append(Completed())
        return self._take()

    # --- items ---

    def _item_added(self, wire: FrameIn) -> None:
        view = _item(wire.item)
        place = number(wire.output_index)
        item = self._open(view, len(self.items) if place is None else place)
        item.note(view)
        if isinstance(item, Opaque):
            item.remember(wire.item)

    def _item_done(self, wire: FrameIn) -> None:
        self._finish_item(_item(wire.item), wire.item, number(wire.output_index))

    def _finish_item(self, view: ItemIn, raw: Raw, place: int | None) -> None:
        """`place` None: upstream does not tell it."""
        key = word(view.id)
        item = self._by_key.get(key) if key else None
        if item is None:
            item = self._by_place.get(place) if place is not None else self._last_open(view.type)
        if item is None or item.kind != view.type:
            item = self._open(view, len(self.items) if place is None else place)
        if isinstance(item, Reasoning):
            self._finish_reasoning(item, view, raw)
        else:
            item.finish(view, raw)

    def _finish_reasoning(self, item: Reasoning, view: ItemIn, raw: Raw) -> None:
        noted = item.is_done
        item.finish(view, raw)
        if item.skipped and not noted:
            self._board.out.append(Noted("reasoning (of summary and full text only what came first)"))

    def _last_open(self, kind: str) -> Item | None:
        return next((item for item in reversed(self.items) if item.kind == kind and not item.is_done), None)

    def _open(self, view: ItemIn, place: int) -> Item:
        if not view.type:
            raise InvalidStreamEvent("The upstream sent an output item without a type.")
        if not self._started:
            self._begin(ResponseIn())
        item = new_item(view.type, word(view.id), place, self._board)
        self.items.append(item)
        self._by_place[place] = item
        if item.key:
            self._by_key[item.key] = item
        return item

    def _find(self, wire: FrameIn) -> Item | None:
        key = word(wire.item_id)
        item = self._by_key.get(key) if key else None
        if item is not None:
            return item
        place = number(wire.output_index)
        if place is not None:
            return self._by_place.get(place)
        return self.items[-1] if self.items else None

    def _item_for(self, wire: FrameIn, kind: str) -> Item:
        """The item an event is for; one that upstream did not open is opened here."""
        item = self._find(wire)
        if item is not None and item.kind == kind:
            return item
        place = number(wire.output_index)
        return self._open(ItemIn(type=kind, id=wire.item_id), len(self.items) if place is None else place)

    def _close_all(self) -> None:
        for item in self.items:
            if isinstance(item, Call) and not item.started:
                self._board.out.append(Noted("a tool call without a name"))
            if not item.is_done:
                item.finish(ItemIn(type=item.kind), Raw())

    # --- parts and deltas ---

    def _delta(self, wire: FrameIn) -> None:
        kind, item_kind = _PARTS[wire.type]
        text = word(wire.delta)
        if text:
            self._item_for(wire, item_kind).delta(text, _part_index(wire), kind)

    def _done(self, wire: FrameIn) -> None:
        kind, item_kind = _PARTS[wire.type]
        text = word(wire.text) or word(wire.refusal) or word(wire.arguments) or word(wire.input)
        if not text:
            return
        item = self._item_for(wire, item_kind)
        if item_kind in CALLS and word(wire.name):
            item.note(ItemIn(name=wire.name))
        item.whole(text, _part_index(wire), kind)

    def _part_done(self, wire: FrameIn) -> None:
        part = _part(wire.part)
        item = self._find(wire)
        if isinstance(item, Message):
            item.close_part(part, _part_index(wire))

    def _annotation(self, wire: FrameIn) -> None:
        item = self._find(wire)
        if item is not None and schema.present(wire.annotation):
            item.cite(schema.text_of(wire.annotation), _part_index(wire))

    def _take(self) -> list[Event]:
        out, self._board.out = self._board.out, []
        return out


def _part_index(wire: FrameIn) -> int:
    index = number(wire.content_index)
    return index if index is not None else number(wire.summary_index) or 0


def _response(raw: Raw) -> ResponseIn:
    if not schema.present(raw):
        return ResponseIn()
    try:
        return schema.read(schema.RESPONSE, raw)
    except ValueError as error:
        raise undecodable(bytes(raw), str(error)) from None


def _item(raw: Raw) -> ItemIn:
    try:
        return schema.read(schema.ITEM, raw)
    except ValueError as error:
        try:
            members = schema.members_of(raw)
            view = ItemIn(type=schema.read(_WORD, members.get("type", Raw(b'""'))))
        except ValueError:
            raise undecodable(bytes(raw), str(error)) from None
        if view.type in _OURS:
            raise undecodable(bytes(raw), str(error)) from None
        return view


def _part(raw: Raw) -> PartIn:
    try:
        return schema.read(schema.PART, raw)
    except ValueError:
        return PartIn()


def _failure(response: ResponseIn, status: str) -> StromError:
    if schema.present(response.error):
        return error_in_stream(bytes(response.error))
    if status == "cancelled":
        return ProviderError("The upstream cancelled its answer.")
    return ProviderError("The upstream reported a failure without saying which.")


_WORD = msgspec.json.Decoder(str)
_OURS = frozenset(("message", "reasoning", *CALLS))
_PARTS: dict[str, tuple[str, str]] = {}
"""Delta and done events: the kind of their part, and the type of the item they belong to."""
_HANDLERS: dict[str, Callable[[StreamReader, FrameIn], None]] = {
    "response.created": StreamReader._lifecycle,
    "response.queued": StreamReader._lifecycle,
    "response.in_progress": StreamReader._lifecycle,
    "response.output_item.added": StreamReader._item_added,
    "response.output_item.done": StreamReader._item_done,
    "response.content_part.done": StreamReader._part_done,
    "response.output_text.annotation.added": StreamReader._annotation,
    **dict.fromkeys(_TERMINAL, StreamReader._terminal),
}
for _event, _part_kind, _item_kind in (
    ("output_text", "text", "message"),
    ("refusal", "refusal", "message"),
    ("function_call_arguments", "arguments", "function_call"),
    ("custom_tool_call_input", "arguments", "custom_tool_call"),
    ("reasoning_text", "thinking", "reasoning"),
    ("reasoning_summary_text", "summary", "reasoning"),
):
    for _end, _handler in (("delta", StreamReader._delta), ("done", StreamReader._done)):
        _PARTS[f"response.{_event}.{_end}"] = (_part_kind, _item_kind)
        _HANDLERS[f"response.{_event}.{_end}"] = _handler
