"""Lines → events: the meaning of a stream without its framing. The decoder, the relay and whole replies share it.

Proof of the end: one line with `done: true` and `done_reason` on that same line. `done: true` alone is an incomplete completion
(unless a quirk says that this provider never tells a reason); a reason on an earlier line is none, unless a quirk says that
a clean end counts. A line with `error` ends the stream. `stop` with calls means tool_calls, `length` never does.

A last line without its LF: a JSON object is self-delimiting, so one that parses is whole. The terminator (or an error)
counts with or without its line end, as `data: [DONE]` does; any other unfinished line is no event.
Source: streams.md sections 1, 3, 6 and 10; protocol-facts.md section 4; cases 051, 083, 103, 104, s60.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from strom.core.errors import IncompleteCompletion, IncompleteStream, InvalidStreamEvent, StromError
from strom.core.events import Completed, Event, Failed, Finished, Started, UsageReported
from strom.core.think_tags import ThinkTags
from strom.core.usage import Usage, token_count
from strom.protocols.codec import Quirks
from strom.protocols.ollama import schema
from strom.protocols.ollama.blocks import Blocks
from strom.protocols.ollama.errors import error_in_line


def parse_line(data: bytes) -> schema.Line:
    """Raises InvalidStreamEvent."""
    try:
        if not data.isascii():
            data.decode()  # the one thing that msgspec does not check in members that nobody reads
        line = schema.LINE.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(data, str(error)) from None
    if not line.known and not schema.present(line.error):
        raise undecodable(data, "no member of a line")
    return line


def undecodable(data: bytes, why: str) -> InvalidStreamEvent:
    shown = data[:500].decode("utf-8", "replace")
    return InvalidStreamEvent("The upstream sent a line that is none of its protocol.", detail=f"{why}: {shown}")


class LineReader:
    """`ended`: a terminal event was given; the caller feeds nothing more."""

    __slots__ = ("_early", "_quirks", "_started", "blocks", "ended")

    def __init__(self, quirks: Quirks) -> None:
        self._quirks = quirks
        self._started = False
        self._early: schema.Line | None = None  # a line that told a reason without being done
        self.blocks = Blocks(ThinkTags(enabled=quirks.think_tags, preopened=quirks.think_preopened))
        self.ended = False

    def read(self, line: schema.Line) -> list[Event]:
        """Raises StromError: what an error line says, InvalidStreamEvent for broken arguments."""
        if schema.present(line.error):
            raise error_in_line(line.error)
        self._start(line)
        self._take_contents(line)
        if line.done:
            self._end(line)
        elif line.done_reason:
            self._early = line
        return self._take_events()

    def fail(self, error: StromError) -> list[Event]:
        """What came so far is evidence, also what was held back as the beginning of a tag."""
        self.ended = True
        self.blocks.flush_tags()
        self.blocks.out.append(Failed(error))
        return self._take_events()

    def finish(self, pending: bytes) -> list[Event]:
        """The body ended, `pending` being the bytes of its unfinished last line."""
        if self.ended:
            return []
        last = _terminal(pending)
        try:
            if last is not None:
                return self.read(last)
        except StromError as error:
            return self.fail(error)
        told = self._early is not None or not self._quirks.finish_reason_required
        if not self._quirks.done_required and told and self._started and not pending.strip():
            self._end(self._early or schema.Line())
            return self._take_events()
        where = "after the finish reason, without its done line" if self._early is not None else "without a done line"
        return self.fail(IncompleteStream(f"The upstream's stream ended {where}."))

    def _start(self, line: schema.Line) -> None:
        if not self._started:
            self._started = True
            self.blocks.out.append(Started("", line.model or "", _unix_seconds(line.created_at)))

    def _take_contents(self, line: schema.Line) -> None:
        text, thinking, calls = contents_of(line)
        if thinking:
            self.blocks.take_thinking(thinking)
        if text:
            self.blocks.take_content(text)
        if calls:
            self._take_calls(calls, f"{line.model}\x00{line.created_at}")

    def _take_calls(self, calls: list[schema.CallIn], seed: str) -> None:
        try:
            for call in calls:
                self.blocks.take_call(call, seed)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise undecodable(b"", f"arguments: {error}") from None

    def _end(self, line: schema.Line) -> None:
        self.ended = True
        blocks = self.blocks
        blocks.settle()
        if (usage := usage_of(line)) != Usage():
            blocks.out.append(UsageReported(usage))
        if line.done_reason:
            blocks.out.append(self._finished(line.done_reason))
        elif not self._quirks.finish_reason_required:
            blocks.out.append(Finished("tool_calls" if blocks.call_count else "stop", assumed=True))
        else:
            missing = IncompleteCompletion("The upstream ended its answer without a done_reason.")
            blocks.out.append(Failed(missing))
            return
        blocks.out.append(Completed())

    def _finished(self, raw: str) -> Finished:
        return Finished("tool_calls" if raw == "stop" and self.blocks.call_count else raw, raw=raw)

    def _take_events(self) -> list[Event]:
        events, self.blocks.out = self.blocks.out, []
        return events


def contents_of(line: schema.Line) -> tuple[str, str, list[schema.CallIn] | None]:
    """Text, thinking and calls, wherever they stand."""
    message = line.message
    if message is None:
        return line.response or "", line.thinking or "", line.tool_calls
    return message.content or line.response or "", message.thinking or line.thinking or "", message.tool_calls


def usage_of(line: schema.Line) -> Usage:
    """Counts and durations; what is missing (a cached prompt's count) is unknown, not 0."""
    durations = tuple((name, int(value)) for name in schema.DURATIONS if (value := getattr(line, name)) is not None)
    return Usage(token_count(line.prompt_eval_count), token_count(line.eval_count), durations=durations)


def _terminal(pending: bytes) -> schema.Line | None:
    """An unfinished last line that is whole nevertheless, and ends the stream."""
    try:
        line = parse_line(pending)
    except InvalidStreamEvent:
        return None
    return line if line.done or schema.present(line.error) else None


def _unix_seconds(stamp: str | None) -> int:
    """0 when it is no RFC 3339 instant."""
    if not stamp:
        return 0
    try:
        instant = datetime.fromisoformat(stamp)
    except ValueError:
        return 0
    return max(0, int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()))
