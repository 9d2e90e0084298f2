"""Reads a Chat stream: bytes in, canonical events out.

Proof of the end: a finish reason, then a data event equal to `[DONE]` after trimming (quirks may waive either). Every
failure becomes `Failed`, once and last; what comes after a terminal event is ignored. Ignored as keep-alives: comments,
blocks without data, empty data, and the frame whose model is `keepalive` (oMLX). A read that is one plain text frame of
the shape seen before is not parsed again (`wire.template`).
Source: streams.md sections 1 and 10; protocol-facts.md sections 1.3 and 7.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import IncompleteCompletion, IncompleteStream, InvalidStreamEvent, StromError
from strom.core.events import BlockEnded, BlockStarted, Completed, Event, Failed, Started, TextDelta, ThinkingDelta
from strom.protocols.codec import Lone, Quirks
from strom.protocols.openai_chat.assembler import Assembler
from strom.protocols.openai_chat.errors import error_in_frame
from strom.protocols.openai_chat.schema import decode_chunk, has_error, is_chunk, tells_error
from strom.wire.sse import Frame, SseParser
from strom.wire.template import FrameTemplate

DONE = b"[DONE]"
KEEP_ALIVE_MODEL = "keepalive"


class ChatDecoder:
    """See codec.StreamDecoder."""

    __slots__ = ("_assembler", "_delta", "_ended", "_index", "_parser", "_quick", "_quirks", "_template")

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._parser = SseParser(quirks.max_frame_bytes)
        self._assembler = Assembler(quirks)
        self._template = FrameTemplate()
        self._quick = False  # no part of a frame is pending, and a delta would go to the open block as it is
        self._delta: type[TextDelta | ThinkingDelta] = TextDelta
        self._index = 0
        self._ended = False

    def feed(self, data: bytes) -> list[Event]:
        if self._quick:
            text = self._template.match_string(data)
            if text is not None:
                return [self._delta(self._index, text)]
            texts = self._template.match_strings(data)
            if texts is not None:
                return [self._delta(self._index, text) for text in texts]
        return self._feed(data)

    def expects(self) -> tuple[type[Event], int, Lone] | None:
        return (self._delta, self._index, self._template.match_string) if self._quick else None

    def finish(self) -> list[Event]:
        self._quick = False
        if self._ended:
            return []
        pending = self._parser.pending.strip()
        done = is_sentinel(pending)
        clean = not pending and not self._quirks.done_required and self._assembler.finish is not None
        if done or clean:
            return self._complete()
        return self._fail(unfinished(started=bool(self._assembler.finish)))

    def _feed(self, data: bytes) -> list[Event]:
        self._quick = False
        if self._ended:
            return []
        try:
            frames = self._parser.feed(data)
        except InvalidStreamEvent as error:
            return self._fail(error)
        before = 0
        for frame in frames:
            if self._ended:
                break
            before = len(self._assembler.out)
            self._take(frame)
        if not self._ended and is_sentinel(self._parser.pending_line):
            return self._complete()
        events = self._take_events()
        if frames and not self._ended:
            self._learn(frames[-1], events[before:])
        return events

    def _take(self, frame: Frame) -> None:
        data = frame.data
        if not data or data.isspace():
            return
        if is_end(data):
            self._assembler.out.append(self._end())
            return
        try:
            chunk = decode_chunk(data)
            if has_error(chunk) or frame.event == b"error":
                self._stop(error_in_frame(data))
            elif not is_chunk(chunk):
                self._stop(undecodable(data))
            elif chunk.model != KEEP_ALIVE_MODEL:
                self._assembler.take(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._stop(error_in_frame(data) if frame.event == b"error" else error_or_garbage(data))

    def _learn(self, frame: Frame, events: list[Event]) -> None:
        """A frame that was one delta of the block now open, and nothing else, is a shape to recognise."""
        if not events or not self._parser.idle or not self._assembler.tags.settled:
            return
        delta = events[-1]
        if not isinstance(delta, TextDelta | ThinkingDelta):
            return
        if all(isinstance(event, BlockStarted | BlockEnded | Started) for event in events[:-1]):
            self._delta, self._index = type(delta), delta.index
            self._template.learn(frame.raw, delta.text.encode("utf-8", "surrogatepass"))
            self._quick = True

    def _complete(self) -> list[Event]:
        self._assembler.out.append(self._end())
        return self._take_events()

    def _end(self) -> Event:
        self._ended = True
        if self._assembler.end(reason_required=self._quirks.finish_reason_required):
            return Completed()
        return Failed(IncompleteCompletion("The upstream ended its answer without a finish reason."))

    def _stop(self, error: StromError) -> None:
        self._ended = True
        self._assembler.flush_tags()
        self._assembler.out.append(Failed(error))

    def _fail(self, error: StromError) -> list[Event]:
        self._stop(error)
        return self._take_events()

    def _take_events(self) -> list[Event]:
        events, self._assembler.out = self._assembler.out, []
        return events


def is_end(data: bytes) -> bool:
    """The sentinel as an event. Its line is proof as soon as it is there: what may follow in the same event is nothing."""
    head = data.lstrip()
    return head.startswith(DONE) and not head[len(DONE) :].partition(b"\n")[0].strip()


def is_sentinel(line: bytes) -> bool:
    """The sentinel's line, which is proof with or without its line ends."""
    return line.startswith(b"data:") and line[5:].strip() == DONE


def unfinished(*, started: bool) -> IncompleteStream:
    what = "after the finish reason, without its terminator" if started else "in the middle of the answer"
    return IncompleteStream(f"The upstream's stream ended {what}.")


def error_or_garbage(data: bytes) -> StromError:
    """What a frame means that cannot be read as a chunk."""
    try:
        return error_in_frame(data) if tells_error(data) else undecodable(data)
    except (msgspec.DecodeError, RecursionError):
        return undecodable(data)


def undecodable(data: bytes) -> InvalidStreamEvent:
    return InvalidStreamEvent(
        "The upstream sent an event that is no Chat Completions chunk.", detail=data[:500].decode("utf-8", "replace")
    )
