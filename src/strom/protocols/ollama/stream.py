"""Reads an Ollama stream: bytes in, canonical events out.

Every failure becomes `Failed`, once and last; what comes after a terminal event is ignored, and so are blank lines. A read
that is one plain text line of the shape seen before is not parsed again (template.py). Source: streams.md sections 1, 10.
"""

from __future__ import annotations

from strom.core.errors import StromError
from strom.core.events import BlockEnded, BlockStarted, Event, Started, TextDelta, ThinkingDelta
from strom.protocols.codec import Lone, Quirks
from strom.protocols.ollama import schema
from strom.protocols.ollama.reader import LineReader, parse_line
from strom.protocols.ollama.template import LineTemplate
from strom.wire.ndjson import NdjsonParser

Delta = TextDelta | ThinkingDelta
_AROUND = (BlockStarted, BlockEnded, Started)


class OllamaDecoder:
    """See codec.StreamDecoder."""

    __slots__ = ("_delta", "_index", "_parser", "_quick", "_reader", "_template")

    def __init__(self, quirks: Quirks) -> None:
        self._parser = NdjsonParser(quirks.max_frame_bytes)
        self._reader = LineReader(quirks)
        self._template = LineTemplate()
        self._quick = False  # no part of a line is pending, and a delta would go to the open block as it is
        self._delta: type[Delta] = TextDelta
        self._index = 0

    def feed(self, data: bytes) -> list[Event]:
        if self._quick:
            text = self._template.match_text(data)
            if text is not None:
                return [self._delta(self._index, text)]
        return self._feed(data)

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        return (self._delta, self._index, self._template.match_text) if self._quick else None

    def finish(self) -> list[Event]:
        self._quick = False
        return self._reader.finish(self._parser.pending)

    def _feed(self, data: bytes) -> list[Event]:
        known = self._quick  # the learned shape still stands for the block that is open
        self._quick = False
        reader = self._reader
        if reader.ended:
            return []
        events: list[Event] = []
        try:
            lines = [raw for raw in self._parser.feed(data) if not raw.isspace()]
            for raw in lines:
                if reader.ended:
                    break
                line = parse_line(raw)
                before = len(events)
                events.extend(reader.read(line))
        except StromError as error:
            events.extend(reader.fail(error))
            return events
        if lines and self._parser.idle and (delta := plain_delta(reader, events[before:])) is not None:
            known = known and type(delta) is self._delta and delta.index == self._index
            self._quick = learn(self._template, lines[-1], line, delta) or known
            self._delta, self._index = type(delta), delta.index
        return events


def plain_delta(reader: LineReader, events: list[Event]) -> Delta | None:
    """The delta that was all a line brought (but for the block's own start), if the next one would be taken as it is."""
    if reader.ended or not events:
        return None
    delta = events[-1]
    if not isinstance(delta, TextDelta | ThinkingDelta):
        return None
    if len(events) > 1 and not all(isinstance(event, _AROUND) for event in events[:-1]):
        return None
    return delta if isinstance(delta, ThinkingDelta) or reader.blocks.tags.settled else None


def learn(template: LineTemplate, raw: bytes, line: schema.Line, delta: Delta) -> bool:
    if b"\\" in raw:
        return False
    stamp = (line.created_at or "").encode()
    return template.learn(raw, stamp, delta.text.encode())
