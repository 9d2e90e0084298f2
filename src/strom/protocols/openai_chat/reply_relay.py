"""Relays a whole Chat reply: the upstream's bytes with the routing block, repaired only where they break the protocol.

A stream that came although none was asked for, or thinking that is not to go out as it is, is written anew from its events.
Source: product.md section 2; streams.md sections 2 and 4.
"""

from __future__ import annotations

import msgspec

from strom.core.events import Event
from strom.core.fold import fold
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_chat.encoder import with_block
from strom.protocols.openai_chat.frame_edit import FrameEdit
from strom.protocols.openai_chat.repair import ChoiceState, Envelope, Repairer, empty_arguments
from strom.protocols.openai_chat.reply import encode_reply, is_plain, is_stream, number_calls
from strom.protocols.openai_chat.schema import Choice, Chunk, decode_chunk
from strom.protocols.openai_chat.usage import usage_json
from strom.protocols.openai_chat.weights import weigh

JSON = msgspec.json.Encoder().encode
KIND = "chat.completion"


def relay_reply(body: bytes, context: ReplyContext, events: list[Event]) -> bytes:
    """`events`: what `decode_reply` made of the body, ending in Completed."""
    if is_stream(body):
        return encode_reply(fold(events), context)
    chunk = decode_chunk(body)
    if is_plain(chunk) and _has_envelope(chunk):
        return with_block(body, context)
    edit = FrameEdit(body)
    envelope = Envelope(context, KIND)
    envelope.repair(chunk, edit)
    repairer = Repairer(context)
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
    if not choice.finish_reason:
        reason = "tool_calls" if state.calls.calls else "stop"  # a quirk says that it need not be there
        edit.choices[number].members["finish_reason"] = JSON(reason)
        edit.changed = True
    for call in state.calls.calls:
        if call.scan.empty and not call.custom:
            empty_arguments(edit.body(number), call.number)


def _estimate_usage(choices: list[Choice], context: ReplyContext, edit: FrameEdit) -> None:
    """Chat demands usage in a whole reply."""
    messages = [choice.message or choice.delta for choice in choices]
    characters = sum(weigh(message)[1] for message in messages if message is not None)
    edit.set("usage", usage_json(None, context.input_estimate, characters))
