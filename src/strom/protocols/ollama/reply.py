"""Whole replies. Decoding goes through the same reader as a stream: a whole reply is a folded stream.

A reply proves its end like a stream's last line: `done: true` with `done_reason`. A body of several lines is a stream after
all, and is read as one. Source: protocol-facts.md section 4; streams.md section 1; case 134.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import IncompleteCompletion, ProviderError, StromError
from strom.core.events import Block, Event, Failed
from strom.core.fold import fold
from strom.core.messages import Part, RefusalPart, Reply, TextPart, ThinkingPart, ToolCallPart
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.ollama import schema
from strom.protocols.ollama.encoder import (
    JSON,
    THINK_CLOSE,
    THINK_OPEN,
    call_json,
    ending,
    envelope,
    with_block,
)
from strom.protocols.ollama.form import Form
from strom.protocols.ollama.reader import LineReader, parse_line
from strom.protocols.ollama.repair import is_legal, repaired
from strom.protocols.ollama.stream import OllamaDecoder


def decode_reply(body: bytes, quirks: Quirks) -> list[Event]:
    """Ends in Completed or Failed; never raises."""
    if is_stream(body):
        decoder = OllamaDecoder(quirks)
        return [*decoder.feed(body), *decoder.finish()]
    reader = LineReader(quirks)
    try:
        events = reader.read(_parse(body))
    except StromError as error:
        return reader.fail(error)
    if not reader.ended:
        return [*events, Failed(IncompleteCompletion("The upstream's reply does not say that it is done."))]
    return events


def is_stream(body: bytes) -> bool:
    """Whether the body is lines although a whole reply was asked for: its first line is an object by itself."""
    first, lf, rest = body.strip().partition(b"\n")
    if not lf or not rest.strip():
        return False
    try:
        parse_line(first)
    except StromError:
        return False
    return True


def _parse(body: bytes) -> schema.Line:
    """Raises ProviderError, InvalidStreamEvent."""
    if not body.strip():
        raise ProviderError("The upstream answered with an empty body.")
    if body.lstrip().startswith(b"<"):
        raise ProviderError("The upstream answered with HTML.", detail=body[:500].decode("utf-8", "replace"))
    return parse_line(body)


# --- out -------------------------------------------------------------------------------------------


def encode_reply(form: Form, reply: Reply, context: ReplyContext) -> bytes:
    """Text, thinking and calls each in their one place."""
    thinking = "".join(part.text for part in reply.parts if isinstance(part, ThinkingPart))
    calls = [part for part in reply.parts if isinstance(part, ToolCallPart)]
    more: list[bytes] = []
    if thinking and context.reasoning == "native":
        more.append(b'"thinking":' + JSON(thinking))
    if calls:
        entries = [_call(part, number) for number, part in enumerate(calls)]
        more.append(b'"tool_calls":[' + b",".join(entries) + b"]")
    text = _text(reply.parts, with_tags=context.reasoning == "text")
    contents = form.contents(JSON(text), *more)
    return with_block(envelope(context) + contents + b"," + ending(reply.finish_reason, reply.usage) + b"}", context)


def _text(parts: tuple[Part, ...], *, with_tags: bool) -> str:
    """All text; with its thinking in tags, in the order they came, which is what the stream shows."""
    pieces = []
    for part in parts:
        if isinstance(part, TextPart | RefusalPart):
            pieces.append(part.text)
        elif with_tags and isinstance(part, ThinkingPart) and part.text:
            pieces.append(THINK_OPEN + part.text + THINK_CLOSE)
    return "".join(pieces)


def _call(part: ToolCallPart, number: int) -> bytes:
    return call_json(Block("tool_call", part.call_id, part.name, custom=part.custom), part.arguments, number)


# --- the same protocol on both sides ---------------------------------------------------------------


def relay_reply(form: Form, body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
    """The body with the routing block; put right where it breaks the protocol, written anew where it was a stream."""
    if is_stream(body) or context.reasoning != "native":
        reply = fold(events)
        return encode_reply(form, reply, msgspec.structs.replace(context, model=reply.model or context.model))
    line = parse_line(body)
    return with_block(body if is_legal(line, form) else repaired(body, line, form, context), context)
