"""A Responses event stream → canonical events: framing and the quick way; the meaning is the reader's.

Most reads are one text delta. Once one has been parsed, its shape is remembered (template.py) for as long as the same
block is open. `event:` lines are not needed, the type stands in the data; a foreign `[DONE]` means nothing.
"""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.events import Event, TextDelta, ThinkingDelta
from strom.protocols.codec import Lone, Quirks
from strom.protocols.openai_responses.reader import StreamReader, parse
from strom.protocols.openai_responses.schema import FrameIn, number
from strom.protocols.openai_responses.template import DeltaShape, learn
from strom.wire.sse import Frame, SseParser


class Decoder:
    """Satisfies `StreamDecoder`."""

    __slots__ = ("_delta", "_index", "_key", "_number", "_parser", "_quick", "_reader", "_shape")

    def __init__(self, quirks: Quirks) -> None:
        self._parser = SseParser(quirks.max_frame_bytes)
        self._reader = StreamReader(quirks)
        self._shape: DeltaShape | None = None  # a delta of the block now open
        self._quick: DeltaShape | None = None  # the same, when the next read begins a frame
        self._delta: type[TextDelta] | type[ThinkingDelta] = TextDelta  # what the shape stands for
        self._index = 0
        self._number = 0  # the sequence number that comes next
        self._key: tuple[object, ...] = ()  # what the shape was learned for

    def feed(self, data: bytes) -> list[Event]:
        shape = self._quick
        if shape is not None:
            text = shape.match(data, self._number)
            if text is not None:
                self._number += 1
                return [self._delta(self._index, text)]
        return self._read(data)

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        return (self._delta, self._index, self._lone) if self._quick is not None else None

    def _lone(self, data: bytes) -> str | None:
        shape = self._quick
        text = shape.match(data, self._number) if shape is not None else None
        if text is not None:
            self._number += 1
        return text

    def finish(self) -> list[Event]:
        return self._reader.finish()

    def _read(self, data: bytes) -> list[Event]:
        if self._reader.ended:
            return []
        events: list[Event] = []
        try:
            frames = [frame for frame in self._parser.feed(data) if not is_silent(frame)]
            for frame in frames[:-1]:
                self._take(frame, events)
                if self._reader.ended:
                    self._quick = None
                    return events
            if frames:
                self._take_last(frames[-1], events)
        except StromError as error:
            events += self._reader.fail(error)
        self._quick = self._shape if self._parser.idle and not self._reader.ended else None
        return events

    def _take(self, frame: Frame, events: list[Event]) -> FrameIn:
        wire = parse(frame)
        told = number(wire.sequence_number)
        if told is not None:
            self._number = told + 1
        events += self._reader.read(wire, frame.data or b"")
        return wire

    def _take_last(self, frame: Frame, events: list[Event]) -> None:
        """If it is one delta of the block now open, and nothing else, its shape is one to recognise."""
        before = len(events)
        wire = self._take(frame, events)
        if len(events) == before:
            self._shape = None
            return
        delta = events[-1]
        if not isinstance(delta, TextDelta | ThinkingDelta):
            self._shape = None
            return
        key = (wire.type, delta.index, wire.item_id, wire.output_index, wire.content_index, wire.summary_index)
        if key != self._key:
            self._shape = None
        if self._shape is None:
            self._key = key
            self._shape = learn(frame.raw, delta.text, number(wire.sequence_number))
            self._delta, self._index = type(delta), delta.index


def is_silent(frame: Frame) -> bool:
    """Comments, events without data, and the foreign end marker some servers add: they carry nothing."""
    return not frame.data or frame.data.strip() == b"[DONE]"
