"""Whole replies: the events they amount to, and a folded stream in Anthropic's words.

Source: protocol-facts.md section 3.2; recordings xllamacpp/anthropic_nonstream, xllamacpp_auth/auth_x_api_key.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core import ids
from strom.core.errors import IncompleteCompletion, InvalidStreamEvent, StromError
from strom.core.events import BlockStarted, Event, Failed, Finished
from strom.core.fold import fold
from strom.core.messages import (
    Json,
    OpaquePart,
    Part,
    RefusalPart,
    Reply,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from strom.core.usage import estimate_tokens
from strom.protocols.anthropic_messages import carry, schema
from strom.protocols.anthropic_messages.decoder import Decoder
from strom.protocols.anthropic_messages.encoder import NAME, THINK_CLOSE, THINK_OPEN, message_id
from strom.protocols.anthropic_messages.errors import decode_stream_error
from strom.protocols.anthropic_messages.meanings import read_usage, stop_reason, usage_out
from strom.protocols.anthropic_messages.reader import StreamReader
from strom.protocols.codec import Quirks, ReplyContext
from strom.wire.splice import append_member, join, split

_REPLY = msgspec.json.Decoder(schema.ReplyIn)
_BLOCK = msgspec.json.Decoder(schema.BlockIn)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])

# --- upstream's reply → events --------------------------------------------------------------------


def decode_reply(body: bytes, quirks: Quirks) -> list[Event]:
    """Ends in Completed or Failed. A body that is a stream after all is read as one."""
    if body.lstrip().startswith((b"event:", b"data:", b":")):
        decoder = Decoder(quirks)
        return [*decoder.feed(body), *decoder.finish()]
    try:
        return _decode(body, quirks)
    except StromError as error:
        return [Failed(error)]


def _decode(body: bytes, quirks: Quirks) -> list[Event]:
    """Raises StromError: an error body, or none of this protocol."""
    try:
        wire = schema.read(_REPLY, body)
    except ValueError as error:
        shown = body[:200].decode("utf-8", "replace")
        raise InvalidStreamEvent("The upstream's answer is none of its protocol.", detail=f"{error}: {shown}") from None
    if schema.present(wire.error):
        raise decode_stream_error(wire.error)
    if wire.content is None:
        raise InvalidStreamEvent("The upstream's answer has no content.")
    if wire.stop_reason in (None, "") and quirks.finish_reason_required:
        raise IncompleteCompletion("The upstream's answer has no stop reason.")
    reader = StreamReader(quirks)
    events: list[Event] = []
    for frame in _frames(wire):
        events.extend(reader.read(frame))
    return events


def _frames(wire: schema.ReplyIn) -> list[schema.FrameIn]:
    """The shortest stream that says the same."""
    start = schema.StartIn(wire.id, model=wire.model, usage=wire.usage)
    frames = [schema.FrameIn("message_start", message=start)]
    for index, block in enumerate(wire.content or ()):
        frames.append(schema.FrameIn("content_block_start", index=index, content_block=block))
        frames.append(schema.FrameIn("content_block_stop", index=index))
    delta = schema.DeltaIn(stop_reason=wire.stop_reason, stop_sequence=wire.stop_sequence)
    frames.append(schema.FrameIn("message_delta", delta=delta, usage=wire.usage))
    frames.append(schema.FrameIn("message_stop"))
    return frames


# --- our reply → the client's ---------------------------------------------------------------------


def encode_reply(reply: Reply, context: ReplyContext) -> bytes:
    blocks = [block for part in reply.parts for block in _blocks(part, context.reasoning)]
    calls = any(isinstance(part, ToolCallPart) for part in reply.parts)
    refused = any(isinstance(part, RefusalPart) for part in reply.parts)
    canonical = "refusal" if refused and reply.finish_reason == "stop" else reply.finish_reason
    reason = stop_reason(canonical, reply.stop_sequence, has_calls=calls)
    wire = schema.ReplyOut(
        message_id(reply.response_id, context.reply_id),
        context.model,
        blocks,
        reason,
        reply.stop_sequence if reason == "stop_sequence" else None,
        usage_out(reply.usage, context.input_estimate, estimate_tokens(_characters(reply))),
    )
    return _with_routing_block(schema.ENCODER.encode(wire), context)


def _with_routing_block(data: bytes, context: ReplyContext) -> bytes:
    block = context.block()
    return data if block is None else append_member(data, context.block_name, block)


def _blocks(part: Part, reasoning: str) -> list[schema.BlockOut]:
    match part:
        case TextPart(text, _, citations):
            return [schema.TextOut(text, citations=_raw(citations))] if text else []
        case RefusalPart(text):
            return [schema.TextOut(text)] if text else []
        case ToolCallPart():
            arguments = schema.ENCODER.encode({"input": part.arguments}) if part.custom else _object(part.arguments)
            return [schema.ToolUseOut(ids.to_legal(part.call_id), part.name, Raw(arguments))]
        case ThinkingPart():
            return _thinking(part, reasoning)
        case OpaquePart(protocol, _, json):
            return [Raw(json.text.encode())] if protocol == NAME else []
        case _:
            return []  # a reply holds nothing else


def _thinking(part: ThinkingPart, reasoning: str) -> list[schema.BlockOut]:
    if reasoning == "text" and part.text:
        return [schema.TextOut(THINK_OPEN + part.text + THINK_CLOSE)]
    if reasoning != "native":
        return []
    if part.encrypted:
        return [schema.RedactedOut(carry.pack(part.origin, part.item_id, part.encrypted))]
    signature = carry.pack(part.origin, part.item_id, part.signature) if part.signature else ""
    return [schema.ThinkingOut(part.text, signature)] if part.text or signature else []


def _object(arguments: str) -> bytes:
    """Arguments as an object; a whole reply cannot hold a broken one, so its text is kept in one field."""
    data = arguments.encode("utf-8", "replace")
    if not data.strip():
        return b"{}"
    try:
        schema.read(_OBJECT, data)
    except ValueError:
        return schema.ENCODER.encode({"_raw": arguments})
    return data


def _raw(json: Json | None) -> Raw | None:
    return Raw(json.text.encode()) if json is not None else None


def _characters(reply: Reply) -> int:
    return sum(len(getattr(part, "text", "") or getattr(part, "arguments", "")) for part in reply.parts)


# --- the same protocol on both sides ----------------------------------------------------------------


def relay_reply(body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
    """The body with the routing block; written anew when it breaks the protocol or reasoning is not wanted."""
    if context.reasoning == "native" and _is_legal(body):
        return _with_routing_block(_with_reason(body, events), context)
    reply = fold(events)
    upstream_model = msgspec.structs.replace(context, model=reply.model or context.model)
    return encode_reply(reply, upstream_model)


def _with_reason(body: bytes, events: list[Event]) -> bytes:
    """`end_turn` beside a tool call is none: hand-written loops go by the reason (protocol-facts.md section 0 (12))."""
    called = any(isinstance(event, BlockStarted) and event.block.kind == "tool_call" for event in events)
    if not called or not any(isinstance(event, Finished) and event.raw == "end_turn" for event in events):
        return body
    return join({**split(body), "stop_reason": b'"tool_use"'})


def _is_legal(body: bytes) -> bool:
    """Of a body that `decode_reply` could read."""
    wire = schema.read(_REPLY, body)
    blocks = [schema.read(_BLOCK, raw) for raw in wire.content or ()]
    usage = read_usage(wire.usage)
    counted = usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
    named = isinstance(wire.id, str) and bool(wire.id) and wire.type == "message" and wire.role == "assistant"
    ended = isinstance(wire.stop_reason, str) and wire.model is not None
    return counted and named and ended and all(_is_legal_block(block) for block in blocks)


def _is_legal_block(block: schema.BlockIn) -> bool:
    if block.type != "tool_use":
        return bool(block.type)
    return isinstance(block.id, str) and bool(block.id and block.name) and bytes(block.input).startswith(b"{")
