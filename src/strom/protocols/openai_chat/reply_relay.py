"""Relays a whole Chat reply: the upstream's bytes with the routing block, repaired only where they break the protocol.

A stream that came although none was asked for, or thinking that is not to go out as it is, is written anew from its events.
Source: product.md section 2; streams.md sections 2 and 4.
"""

from __future__ import annotations

import msgspec

from strom.core.events import Event
from strom.core.evidence import Evidence
from strom.core.fold import fold
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_chat.encoder import with_block
from strom.protocols.openai_chat.finish import repaired_reason
from strom.protocols.openai_chat.frame_edit import FrameEdit
from strom.protocols.openai_chat.repair import ChoiceState, Envelope, Repairer, empty_arguments, number_choices
from strom.protocols.openai_chat.reply import decode_reply, encode_reply, is_plain, is_stream, number_calls
from strom.protocols.openai_chat.schema import Choice, Chunk, decode_chunk, has_error, id_text
from strom.protocols.openai_chat.usage import to_usage, usage_json
from strom.protocols.openai_chat.weights import weigh

JSON = msgspec.json.Encoder().encode
KIND = "chat.completion"


def relay_whole(body: bytes, context: ReplyContext, quirks: Quirks, evidence: Evidence) -> bytes:
    """One legal text with its usage is what most whole replies are: it is judged by its members alone, without events."""
    chunk = _whole_chunk(body)
    if chunk is not None and not quirks.think_preopened and is_plain(chunk) and _has_envelope(chunk):
        _take_plain(chunk, evidence)
        return with_block(body, context)
    events = decode_reply(body, quirks)
    evidence.observe(events)
    return b"" if evidence.error is not None else relay_reply(body, context, events)


def _whole_chunk(body: bytes) -> Chunk | None:
    if not body.startswith(b"{"):
        return None
    try:
        chunk = decode_chunk(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if has_error(chunk) else chunk


def _take_plain(chunk: Chunk, evidence: Evidence) -> None:
    """What `observe` would make of the events of a plain reply."""
    assert chunk.choices
    assert chunk.usage is not None
    message = chunk.choices[0].message
    assert message is not None
    assert isinstance(message.content, str)
    evidence.response_id, evidence.model = id_text(chunk.id), chunk.model or ""
    evidence.observe_text(message.content)
    evidence.finish_reason = evidence.finish_raw = "stop"
    evidence.report_usage(to_usage(chunk.usage))
    evidence.complete = True


def relay_reply(body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
    """`events`: what `decode_reply` made of the body, ending in Completed."""
    if is_stream(body):
        return encode_reply(fold(events), context)
    chunk = decode_chunk(body)
    edit = FrameEdit(body)
    envelope = Envelope(context, KIND)
    envelope.repair(chunk, edit)
    repairer = Repairer(context, whole=True)
    number_choices(chunk.choices or [], edit)
    for number, choice in enumerate(chunk.choices or []):
        _repair(repairer, choice, edit, number, envelope.response_id)
    if chunk.usage is None:
        _estimate_usage(chunk.choices or [], context, edit)
    return with_block(edit.data() if edit.changed else body, context)


def _has_envelope(chunk: Chunk) -> bool:
    created = type(chunk.created) is int
    return type(chunk.id) is str and bool(chunk.id) and chunk.object == KIND and created and chunk.model is not None


def _repair(repairer: Repairer, choice: Choice, edit: FrameEdit, number: int, response_id: str) -> None:
    """Whole calls need no index: they are numbered only to be told apart, and legal ones are left as they are."""
    message = choice.message or choice.delta
    if message is not None and message.tool_calls:
        number_calls(choice)
    state = ChoiceState(response_id)
    repairer.repair(choice, state, edit, number)
    reason = _reason(choice, state)
    if reason is not None:
        edit.choices[number].members["finish_reason"] = JSON(reason)
        edit.changed = True
    for call in state.calls.calls:
        if call.scan.empty and not call.custom:
            empty_arguments(edit.body(number), call.number)


def _reason(choice: Choice, state: ChoiceState) -> str | None:
    """The finish reason that must stand there; None when the upstream's may stay."""
    called = bool(state.calls.calls)
    if not choice.finish_reason:  # a quirk says that it need not be there
        return "tool_calls" if called else "stop"
    return repaired_reason(choice.finish_reason, with_calls=called, legacy=state.legacy_call)


def _estimate_usage(choices: list[Choice], context: ReplyContext, edit: FrameEdit) -> None:
    """Chat demands usage in a whole reply."""
    messages = [choice.message or choice.delta for choice in choices]
    characters = sum(weigh(message)[1] for message in messages if message is not None)
    edit.set("usage", usage_json(None, context.input_estimate, characters))
