"""Canonical events of one request → public events, and what they add up to.

Text and thinking pass as they come; a tool call is published when it is complete. With a shape, text is the JSON of an
object: it is published as the partial values it amounts to, and not as text.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from strom.client.events import StreamContent, StreamEvent, StreamPartial, StreamThinking, StreamToolCall
from strom.client.evidence import ToolCall
from strom.client.partial import NOTHING, PartialJson
from strom.client.schemas import Shape
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Event,
    Noted,
    Started,
    TextDelta,
    ThinkingDelta,
)

SEVERAL_CHOICES = "choices other than the first"
"""How the Chat decoder notes that the upstream sent a choice nobody asked for."""


class Publisher:
    """`surprise`: a tool call that was not offered, or a second choice; then the rest of the stream is of no interest."""

    __slots__ = (
        "_open",
        "_out",
        "_shape",
        "_shown",
        "calls",
        "offers_tools",
        "partial",
        "surprise",
        "texts",
        "thoughts",
    )

    def __init__(self, out: deque[StreamEvent], *, shape: Shape | None, offers_tools: bool) -> None:
        self._out = out
        self._open: dict[int, tuple[Block, list[str]]] = {}
        self._shape = shape
        self._shown: Any = NOTHING
        self.offers_tools = offers_tools
        self.partial = PartialJson()
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: dict[int, ToolCall] = {}
        self.surprise: str | None = None

    def publish(self, events: list[Event]) -> None:
        """All of one read."""
        grown = False
        for event in events:
            kind = type(event)
            if kind is TextDelta:
                text: str = event.text  # type: ignore[union-attr]  # its type was just asked for
                self.texts.append(text)
                if self._shape is not None:
                    self.partial.feed(text)
                    grown = True
                else:
                    self._out.append(StreamContent(text))
            elif kind is ThinkingDelta:
                self.thoughts.append(event.text)  # type: ignore[union-attr]
                self._out.append(StreamThinking(event.text))  # type: ignore[union-attr]
            else:
                self._take(event)
                if self.surprise is not None:
                    return
        if grown and self._shape is not None:
            self._show(self._shape)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def thinking(self) -> str:
        return "".join(self.thoughts)

    def calls_in_order(self) -> tuple[ToolCall, ...]:
        return tuple(self.calls[index] for index in sorted(self.calls))

    def _show(self, shape: Shape) -> None:
        whole = self.partial.snapshot()
        value = NOTHING if whole is NOTHING else shape.partial(whole)
        if value is not NOTHING and value != self._shown:
            self._shown = value
            self._out.append(StreamPartial(value))

    def _take(self, event: Event) -> None:
        match event:
            case ArgumentsDelta(index, text):
                self._open[index][1].append(text)
            case BlockStarted(index, block) if block.kind == "tool_call":
                self._open[index] = (block, [])
                if not self.offers_tools:
                    self.surprise = "unexpected_tool_calls"
            case BlockEnded(index, invalid) if index in self._open:
                block, pieces = self._open.pop(index)
                call = self.calls[index] = read_call(block, "".join(pieces), invalid)
                self._out.append(StreamToolCall(call))
            case Noted(what) if what == SEVERAL_CHOICES:
                self.surprise = "invalid_stream_event"
            case Started():
                self._open.clear()  # another attempt
            case _:
                pass


def read_call(block: Block, raw: str, invalid: str) -> ToolCall:
    """Arguments are parsed once, here; "" counts as {}."""
    arguments: Any = {}
    if block.custom:
        return ToolCall(block.call_id, block.name, {"input": raw}, raw)
    if raw and not invalid:
        try:
            arguments = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            invalid = f"the arguments are not valid JSON: {error}"
        if not invalid and not isinstance(arguments, dict):
            invalid = "the arguments are not a JSON object"
    return ToolCall(block.call_id, block.name, {} if invalid else arguments, raw, invalid)
