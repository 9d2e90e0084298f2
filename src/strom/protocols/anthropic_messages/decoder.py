"""A Messages event stream → canonical events: framing, reading, and the short cut for plain deltas.

A frame that holds one delta and nothing else is learned; the next read that is such a frame with another string needs no
parsing. Nothing is pending in the parser then, as a frame is only learned when it left nothing behind.
"""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.events import ArgumentsDelta, Event, TextDelta, ThinkingDelta
from strom.protocols.anthropic_messages.reader import StreamReader, is_silent, named
from strom.protocols.codec import Lone, Quirks
from strom.wire.sse import Frame, SseParser
from strom.wire.template import FrameTemplate


class Decoder:
    """Satisfies `StreamDecoder`."""

    __slots__ = ("_delta", "_index", "_knows", "_parser", "_reader", "_template")

    def __init__(self, quirks: Quirks) -> None:
        self._parser = SseParser(quirks.max_frame_bytes)
        self._reader = StreamReader(quirks)
        self._template = FrameTemplate()
        self._delta: type[TextDelta] | type[ThinkingDelta] | type[ArgumentsDelta] = (
            TextDelta  # what the template stands for
        )
        self._index = 0
        self._knows = False

    def feed(self, data: bytes) -> list[Event]:
        text = self._template.match_string(data)
        if text is not None:
            return [self._delta(self._index, text)]
        return self._read(data)

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        return (self._delta, self._index, self._template.match_string) if self._knows else None

    def finish(self) -> list[Event]:
        return self._reader.finish()

    def _read(self, data: bytes) -> list[Event]:
        reader = self._reader
        if reader.ended:
            return []
        self._template.forget()
        self._knows = False
        events: list[Event] = []
        try:
            frames = self._parser.feed(data)
            for frame in frames:
                if reader.ended:
                    break
                if not is_silent(frame):
                    events.extend(reader.read(named(reader.parse(frame), frame)))
        except StromError as error:
            events.extend(reader.fail(error))
            return events
        if len(frames) == 1 and len(events) == 1 and self._parser.idle:
            self._learn(frames[0], events[0])
        return events

    def _learn(self, frame: Frame, event: Event) -> None:
        """The next read that is such a frame with another text needs no parsing: nothing is pending before it."""
        if isinstance(event, TextDelta | ThinkingDelta | ArgumentsDelta):
            self._template.learn(frame.raw, event.text.encode())
            self._delta, self._index, self._knows = type(event), event.index, True
