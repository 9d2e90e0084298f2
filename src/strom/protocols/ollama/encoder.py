"""Writes an Ollama stream: canonical events in, lines out, in the layout of streams.md section 2.

One object a line, each with `model` and `created_at`; a line per delta; a tool call complete, with its arguments as an
object, on a line of its own as soon as it ends (calls in the order of their start); last the one line with `done: true`:
reason, counts and durations as far as they are known (Ollama demands none), and the routing block. It is held until
`Completed`.
All bytes around a delta's text are made once, at the start.

No line holds a character at which `str.splitlines` breaks: the official Python client reads lines with it, so U+0085,
U+2028 and U+2029 go out escaped. Source: httpx 0.28, Response.iter_lines; streams.md sections 2 to 6; protocol-facts.md 4.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

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
from strom.protocols.ollama.arguments import arguments_object
from strom.protocols.ollama.errors import error_json
from strom.protocols.ollama.form import Form
from strom.wire.splice import append_member

JSON = msgspec.json.Encoder().encode
THINK_OPEN, THINK_CLOSE = "<think>\n", "\n</think>\n\n"
EMPTY = b'""'
_REASONS = {
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "context_full": "length",
    "content_filter": "stop",
    "refusal": "stop",
    "pause": "stop",
}
_COUNTS = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)
"""In Ollama's own order."""


class OllamaEncoder:
    """See codec.StreamEncoder."""

    def __init__(self, form: Form, context: ReplyContext) -> None:
        self._form = form
        self._context = context
        self._out: list[bytes] = []
        self._head = envelope(context)
        self._text_head = self._head + form.opening
        self._thinking_head = self._text_head + EMPTY + b',"thinking":'
        self._tail = form.closing + b',"done":false}\n'
        self._calls: dict[int, _OpenCall] = {}
        self._call_count = 0
        self._sequencer = Sequencer()
        self._usage: Usage | None = None
        self._finished = Finished("stop")
        self._thinking_as_text = False  # a <think> tag is open in the content

    def encode(self, events: list[Event]) -> bytes:
        if len(events) == 1 and type(events[0]) is TextDelta and not self._thinking_as_text:
            return self._text_line(events[0].text)  # what most reads are
        for event in self._sequencer.feed(events):
            _HANDLERS[type(event)](self, event)
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def continues(self, kind: type[Event], index: int) -> Callable[[str], bytes] | None:
        if self._thinking_as_text:
            return None
        if kind is TextDelta:
            return self._text_line
        return self._thinking_line if kind is ThinkingDelta and self._context.reasoning == "native" else None

    def _thinking_line(self, text: str) -> bytes:
        return one_line(self._thinking_head + JSON(text) + self._tail)

    def fail(self, error: StromError) -> bytes:
        return fail_line(error)

    def heartbeat(self) -> bytes:
        return heartbeat_line(self._form, self._context)

    def _text_line(self, text: str) -> bytes:
        data = self._text_head + JSON(text) + self._tail
        return data if text.isascii() else one_line(data)

    def _text(self, event: TextDelta) -> None:
        if self._thinking_as_text:
            self._close_thinking()
        self._out.append(self._text_line(event.text))

    def _thinking(self, event: ThinkingDelta) -> None:
        mode = self._context.reasoning
        if mode == "native":
            self._out.append(self._thinking_line(event.text))
        elif mode == "text":
            if not self._thinking_as_text:
                self._thinking_as_text = True
                self._out.append(self._text_line(THINK_OPEN))
            self._out.append(self._text_line(event.text))

    def _close_thinking(self) -> None:
        if self._thinking_as_text:
            self._thinking_as_text = False
            self._out.append(self._text_line(THINK_CLOSE))

    def _block(self, event: BlockStarted) -> None:
        if event.block.kind == "tool_call":
            self._close_thinking()
            self._calls[event.index] = _OpenCall(event.block)

    def _arguments(self, event: ArgumentsDelta) -> None:
        self._calls[event.index].pieces.append(event.text)

    def _block_end(self, event: BlockEnded) -> None:
        call = self._calls.pop(event.index, None)
        if call is None:
            return
        data = call_json(call.block, "".join(call.pieces), self._call_count)
        self._call_count += 1
        contents = self._form.contents(EMPTY, b'"tool_calls":[' + data + b"]")
        self._out.append(one_line(self._head + contents + b',"done":false}\n'))

    def _report_usage(self, event: UsageReported) -> None:
        self._usage = event.usage if self._usage is None else self._usage.updated(event.usage)

    def _finish(self, event: Finished) -> None:
        self._finished = event

    def _complete(self, _: Completed) -> None:
        self._close_thinking()
        contents = self._form.contents(EMPTY)
        whole = self._head + contents + b"," + ending(self._finished.reason, self._usage) + b"}"
        self._out.append(one_line(with_block(whole, self._context) + b"\n"))


class _OpenCall:
    """A call that has not ended. Its pieces are joined once, at the end."""

    __slots__ = ("block", "pieces")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pieces: list[str] = []


def _ignore(_: OllamaEncoder, event: Event) -> None:
    """Has no place in Ollama's lines."""


_HANDLERS: dict[type, Callable[[OllamaEncoder, Any], None]] = {
    TextDelta: OllamaEncoder._text,
    ThinkingDelta: OllamaEncoder._thinking,
    ArgumentsDelta: OllamaEncoder._arguments,
    BlockStarted: OllamaEncoder._block,
    BlockEnded: OllamaEncoder._block_end,
    UsageReported: OllamaEncoder._report_usage,
    Finished: OllamaEncoder._finish,
    Completed: OllamaEncoder._complete,
    Started: _ignore,
    SignatureDelta: _ignore,
    CitationDelta: _ignore,
    Noted: _ignore,
    Failed: _ignore,  # worded by the gateway through `fail`
}
"""By the type of the event. An encoder's own table of its methods would refer to it: only a collection would free the two."""


# --- pieces of lines, also for whole replies and the relay -------------------------------------------


def envelope(context: ReplyContext) -> bytes:
    """The beginning of every line, up to its contents."""
    return one_line(b'{"model":' + JSON(context.model) + b',"created_at":' + JSON(created_at(context)) + b",")


def created_at(context: ReplyContext) -> str:
    """RFC 3339: Go clients refuse anything else."""
    return context.created_at or datetime.fromtimestamp(context.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def call_json(block: Block, arguments: str, number: int) -> bytes:
    """One entry of `tool_calls`. `arguments` that are no object go out as text in a member `_raw`."""
    function = b'"index":%d,"name":%b,"arguments":%b' % (
        number,
        JSON(block.name),
        arguments_object(arguments, custom=block.custom),
    )
    return b'{"id":' + JSON(block.call_id) + b',"function":{' + function + b"}}"


def ending(reason: str, usage: Usage | None) -> bytes:
    """The members of the last line. Ollama's `done_reason` is free text, so an unknown word stays what it is."""
    members = [b'"done":true', b'"done_reason":' + JSON(_REASONS.get(reason, reason))]
    usage = usage or Usage()
    known: dict[str, int | None] = {**dict(usage.durations)}
    known.update(prompt_eval_count=usage.input_tokens, eval_count=usage.output_tokens)
    names = [*_COUNTS, *(name for name in known if name not in _COUNTS)]
    members += [JSON(name) + b":" + JSON(known[name]) for name in names if known.get(name) is not None]
    return b",".join(members)


def with_block(data: bytes, context: ReplyContext) -> bytes:
    """The object with the routing block, if there is one."""
    block = context.block()
    return data if block is None else append_member(data, context.block_name, block)


def one_line(data: bytes) -> bytes:
    """Without the characters that end a line for `str.splitlines` and may stand in a JSON string as they are."""
    if data.isascii():
        return data
    data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return data.replace(b"\xc2\x85", b"\\u0085")


def fail_line(error: StromError) -> bytes:
    """The in-band error. Nothing follows it."""
    return one_line(error_json(error) + b"\n")


def heartbeat_line(form: Form, context: ReplyContext) -> bytes:
    """Nothing of Ollama's is meant for this; a line without text is harmless everywhere. Source: facts section 9."""
    return envelope(context) + form.contents(EMPTY) + b',"done":false}\n'
