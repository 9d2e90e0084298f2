"""Whole replies. Both ways go through the stream's own code: a whole reply is a folded stream.

A reply that is not `completed` or `incomplete` is no proven answer; one that comes as a stream although none was
asked for (transformers) is read as one. Source: protocol-facts.md section 2.2; streams.md section 1; recordings
*/responses_nonstream.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Raw

from strom.core.errors import ProviderError, StromError
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
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.fold import fold
from strom.core.messages import OpaquePart, Part, RefusalPart, Reply, TextPart, ThinkingPart, ToolCallPart
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_responses import repair
from strom.protocols.openai_responses.completing import with_all_arguments
from strom.protocols.openai_responses.decoder import Decoder
from strom.protocols.openai_responses.encoder import Encoder
from strom.protocols.openai_responses.meanings import is_full_usage
from strom.protocols.openai_responses.reader import StreamReader, undecodable
from strom.protocols.openai_responses.schema import NAME, RESPONSE, checked, members_of, present, read, word
from strom.protocols.openai_responses.upstream_errors import error_in_stream
from strom.wire.splice import append_member

_ANNOTATIONS = frozenset(("url_citation", "file_citation", "container_file_citation", "file_path"))
"""Types of citations that are this protocol's own."""


class _Citation(msgspec.Struct, frozen=True):
    type: str = ""


_CITATIONS = msgspec.json.Decoder(list[Raw])
_CITATION = msgspec.json.Decoder(_Citation)


# --- in ------------------------------------------------------------------------------------------


def decode_reply(body: bytes, quirks: Quirks) -> list[Event]:
    """Ends in Completed or Failed; never raises."""
    if is_stream(body):
        decoder = Decoder(quirks)
        return decoder.feed(body) + decoder.finish()
    try:
        response = read(RESPONSE, checked(body))
    except ValueError as error:
        return [Failed(_no_reply(body, str(error)))]
    status = word(response.status)
    is_response = response.object == "response" or response.output is not None
    if not is_response or (present(response.error) and not status):
        return [Failed(_no_response(body, has_error=present(response.error)))]
    if not status and not quirks.finish_reason_required:
        status = "completed"
    reader = StreamReader(quirks)
    try:
        return reader.read_response(response, status)
    except StromError as error:
        return reader.fail(error)


def is_stream(body: bytes) -> bool:
    """Whether the body is server-sent events, whatever its content type says."""
    return body.lstrip()[:6].startswith((b"data:", b"event:", b":"))


def _no_reply(body: bytes, why: str) -> StromError:
    if not body.strip():
        return ProviderError("The upstream answered with an empty body.")
    if body.lstrip().startswith(b"<"):
        return ProviderError("The upstream answered with HTML.", detail=body[:500].decode("utf-8", "replace"))
    return undecodable(body, why)


def _no_response(body: bytes, *, has_error: bool) -> StromError:
    return error_in_stream(body) if has_error else undecodable(body, "no Response object")


# --- out -----------------------------------------------------------------------------------------


def encode_reply(reply: Reply, context: ReplyContext) -> bytes:
    encoder = Encoder(context)
    encoder.encode(list(_events(reply)))
    return encoder.response


def _events(reply: Reply) -> Iterator[Event]:
    """The stream that the reply would have been, with what core's `unfold` leaves out: citations and item ids."""
    yield Started(reply.response_id, reply.model, reply.created)
    for index, part in enumerate(reply.parts):
        yield from _part_events(index, part)
        yield BlockEnded(index)
    if reply.usage is not None:
        yield UsageReported(reply.usage)
    yield Finished(reply.finish_reason, reply.stop_sequence, reply.finish_raw, reply.finish_assumed)
    yield Completed()


def _part_events(index: int, part: Part) -> Iterator[Event]:
    match part:
        case TextPart(text):
            yield BlockStarted(index, Block("text"))
            if text:
                yield TextDelta(index, text)
            yield from _citations(index, part)
        case RefusalPart(text):
            yield BlockStarted(index, Block("refusal"))
            if text:
                yield TextDelta(index, text)
        case ThinkingPart():
            yield from _thinking(index, part)
        case ToolCallPart(call_id, name, arguments, custom, namespace, item_id):
            yield BlockStarted(index, Block("tool_call", call_id, name, custom, item_id=item_id, namespace=namespace))
            if arguments:
                yield ArgumentsDelta(index, arguments)
        case OpaquePart(protocol, kind, json):
            yield BlockStarted(index, Block("opaque", name=kind, data=json.text, protocol=protocol))
        case _:
            raise ValueError(f"a reply cannot hold a {type(part).__name__}")


def _thinking(index: int, part: ThinkingPart) -> Iterator[Event]:
    if part.encrypted:
        block = Block("redacted_thinking", data=part.encrypted, protocol=part.origin, item_id=part.item_id)
        yield BlockStarted(index, block)
        return
    yield BlockStarted(index, Block("thinking", item_id=part.item_id))
    if part.text:
        yield ThinkingDelta(index, part.text)
    if part.signature:
        yield SignatureDelta(index, part.signature, part.origin)


def _citations(index: int, part: TextPart) -> Iterator[Event]:
    if part.citations is None:
        return
    for raw in read(_CITATIONS, part.citations.text.encode()):
        if read(_CITATION, raw).type in _ANNOTATIONS:
            yield CitationDelta(index, NAME, bytes(raw).decode())


# --- the upstream's own bytes --------------------------------------------------------------------


def relay_reply(body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
    """The body with the routing block as its last member; usage, id, status and arguments only where it lacks them.

    Nothing to say is an empty list to clients, which go through the output without a look.
    """
    try:
        members = members_of(body)
    except ValueError:  # it came as a stream
        return encode_reply(fold(events), context)
    lacking = [name for name in ("id", "status", "created_at", "model") if not present(members.get(name, Raw()))]
    if lacking or members.get("object") != Raw(b'"response"') or not is_full_usage(members.get("usage", Raw())):
        whole = members_of(encode_reply(fold(events), _without_block(context)))
        changes = {name: bytes(whole[name]) for name in (*lacking, "object")}
        if not is_full_usage(members.get("usage", Raw())):
            changes["usage"] = bytes(whole["usage"])
        body = bytes(repair.changed(Raw(body), changes))
    told = read(RESPONSE, body).output
    output = b"[]" if told is None else with_all_arguments(told, lambda view, place: "{}")
    if output is not None:
        body = bytes(repair.changed(Raw(body), {"output": output}))
    block = context.block()
    return body if block is None else append_member(body, context.block_name, block)


def _without_block(context: ReplyContext) -> ReplyContext:
    return msgspec.structs.replace(context, block=lambda: None)
