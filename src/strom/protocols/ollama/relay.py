"""An Ollama stream for an Ollama client: upstream's bytes, untouched wherever they are legal.

Every line is read, so that the evidence is complete, and judged: a legal one goes out as it came, one that breaks the protocol
is put right (repair.py), one that is legal JSON and nothing the reader knows passes on unseen. Blank lines are left out:
the official clients parse every line. The routing block is spliced into the done line. Where reasoning is not wanted as
such, lines with thinking are rewritten, and only those. Source: streams.md sections 2, 5 and 10.
"""

from __future__ import annotations

from strom.core.errors import InvalidStreamEvent, StromError
from strom.core.events import Event, TextDelta
from strom.core.evidence import Evidence
from strom.protocols.codec import Express, Quirks, ReplyContext
from strom.protocols.ollama import schema
from strom.protocols.ollama.encoder import (
    JSON,
    THINK_CLOSE,
    THINK_OPEN,
    ending,
    envelope,
    fail_line,
    heartbeat_line,
    with_block,
)
from strom.protocols.ollama.form import Form
from strom.protocols.ollama.reader import LineReader, contents_of, parse_line
from strom.protocols.ollama.repair import is_legal, repaired, understood, with_text
from strom.protocols.ollama.stream import Delta, learn, plain_delta
from strom.protocols.ollama.template import LineTemplate
from strom.wire.ndjson import NdjsonParser
from strom.wire.splice import append_member


class OllamaRelay:
    """See codec.Relay."""

    __slots__ = (
        "_context", "_delta", "_form", "_parser", "_quick", "_reader", "_template", "_thinking_as_text", "evidence",
    )  # fmt: skip

    def __init__(self, form: Form, context: ReplyContext, quirks: Quirks) -> None:
        self.evidence = Evidence()
        self._form = form
        self._context = context
        self._parser = NdjsonParser(quirks.max_frame_bytes)
        self._reader = LineReader(quirks)
        self._template = LineTemplate()
        self._quick = False
        self._delta: type[Delta] = TextDelta  # what the learned shape stands for
        self._thinking_as_text = False  # a <think> tag is open in the content

    def feed(self, data: bytes) -> bytes:
        if self._quick:
            text = self._template.match_text(data)
            if text is not None:
                evidence = self.evidence
                evidence.deltas += 1
                evidence.output_characters += len(text)
                return data
        return self._feed(data)

    def express(self) -> Express | None:
        return (self._template.match_text, None) if self._quick else None

    def finish(self) -> bytes:
        self._quick = False
        reader, pending = self._reader, self._parser.pending
        if reader.ended:
            return b""
        self.evidence.observe(reader.finish(pending))
        if self.evidence.error is not None:
            return b""
        if pending.strip():
            return self._written(pending, parse_line(pending))
        closing = THINK_CLOSE if self._thinking_as_text else ""
        assumed = ending(self.evidence.finish_raw or "stop", self.evidence.usage)
        last = envelope(self._context) + self._form.contents(JSON(closing)) + b"," + assumed + b"}"
        return with_block(last, self._context) + b"\n"

    def fail(self, error: StromError) -> bytes:
        return fail_line(error)

    def heartbeat(self) -> bytes:
        return b"" if self._reader.ended else heartbeat_line(self._form, self._context)

    # --- lines ---

    def _feed(self, data: bytes) -> bytes:
        known, self._quick = self._quick, False
        if self._reader.ended:
            return b""
        try:
            lines = self._parser.feed(data)
        except InvalidStreamEvent as error:
            self.evidence.observe(self._reader.fail(error))
            return b""
        last = len(lines) - 1
        may_learn = self._parser.idle
        return b"".join(
            [self._relay(raw, may_learn=may_learn and at == last, known=known) for at, raw in enumerate(lines)]
        )

    def _relay(self, raw: bytes, *, may_learn: bool, known: bool) -> bytes:
        """`known`: the learned shape fitted until this read."""
        reader = self._reader
        if reader.ended or raw.isspace():
            return b""
        try:
            line, seen = _parse(raw)
            events = reader.read(line)
        except StromError as error:
            self.evidence.observe(reader.fail(error))
            return b""
        self.evidence.observe(events)
        if self.evidence.error is not None:
            return b""
        out = self._written(raw, line) if seen else self._ended(raw, line)
        if may_learn and out is raw:
            self._learn(raw, line, events, known=known)
        return out

    def _learn(self, raw: bytes, line: schema.Line, events: list[Event], *, known: bool) -> None:
        delta = plain_delta(self._reader, events)
        if delta is not None and (isinstance(delta, TextDelta) or self._context.reasoning == "native"):
            known = known and len(events) == 1 and type(delta) is self._delta
            self._quick = learn(self._template, raw, line, delta) or known
            self._delta = type(delta)

    # --- what goes out ---

    def _written(self, raw: bytes, line: schema.Line) -> bytes:
        """The line as the client gets it: as it came, put right, and with the block if it is the last one."""
        data = raw if is_legal(line, self._form) else repaired(raw, line, self._form, self._context)
        if self._context.reasoning != "native":
            data = self._without_thinking(data, line)
        return self._ended(data, line) if data else b""

    def _ended(self, data: bytes, line: schema.Line) -> bytes:
        if line.done and (block := self._context.block()) is not None:
            data = append_member(data, self._context.block_name, block)
        return data if data.endswith(b"\n") else data + b"\n"

    def _without_thinking(self, data: bytes, line: schema.Line) -> bytes:
        """b"" for a line that has nothing else to say."""
        text, thinking, with_calls = contents_of(line)
        more = bool(text or with_calls or line.done)
        if self._context.reasoning == "drop":
            kept = text if thinking else None
            if thinking and not more:
                return b""
        else:
            kept = self._tagged(text, thinking, more=more)
        return data if kept is None else with_text(data, self._form, kept)

    def _tagged(self, text: str, thinking: str, *, more: bool) -> str | None:
        """Text with the thinking before it in tags; None when neither is there to be written."""
        if not thinking and not (self._thinking_as_text and more):
            return None
        pieces = [] if self._thinking_as_text or not thinking else [THINK_OPEN]
        pieces.append(thinking)
        if more:
            pieces += [THINK_CLOSE, text]
        self._thinking_as_text = not more
        return "".join(pieces)


def _parse(raw: bytes) -> tuple[schema.Line, bool]:
    """The line, and whether it is one of the protocol at all. Raises InvalidStreamEvent for what is no JSON object."""
    try:
        return parse_line(raw), True
    except InvalidStreamEvent:
        line = understood(raw)
        if line is None:
            raise
        return line, False
