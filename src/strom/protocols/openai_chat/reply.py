"""Whole replies. Decoding goes through the same assembler as a stream: a whole reply is a folded stream.

A reply without choices, or without a finish reason, is no proven answer. A 200 may carry an error, or a stream although none
was asked for; both are read as what they are.
Source: protocol-facts.md section 1.2; streams.md section 1; recordings `*/nonstream`, `*/echo_tools_nonstream`.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import IncompleteCompletion, InvalidStreamEvent, ProviderError
from strom.core.events import (
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Failed,
    Finished,
    Started,
    TextDelta,
    UsageReported,
)
from strom.core.messages import Part, RefusalPart, Reply, TextPart, ThinkingPart, ToolCallPart
from strom.protocols.codec import Quirks, ReplyContext
from strom.protocols.openai_chat.assembler import Assembler
from strom.protocols.openai_chat.encoder import THINK_CLOSE, THINK_OPEN, chat_id, with_block
from strom.protocols.openai_chat.errors import error_in_frame
from strom.protocols.openai_chat.finish import chat_reason
from strom.protocols.openai_chat.schema import Choice, Chunk, Delta, created_seconds, decode_chunk, has_error, id_text
from strom.protocols.openai_chat.stream import ChatDecoder
from strom.protocols.openai_chat.usage import to_usage, usage_json

TAGS = ("<think", "</think")
_TEXT_BLOCK = Block("text")


def decode_reply(body: bytes, quirks: Quirks) -> list[Event]:
    """Ends in Completed or Failed; never raises."""
    if is_stream(body):
        decoder = ChatDecoder(quirks)
        return decoder.feed(body) + decoder.finish()
    try:
        chunk = decode_chunk(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [Failed(_no_reply(body))]
    if has_error(chunk):
        return [Failed(error_in_frame(body))]
    if not chunk.choices:
        return [Failed(ProviderError("The upstream answered without any choice.", detail=_detail(body)))]
    if is_plain(chunk) and not quirks.think_preopened:
        return _plain_events(chunk)
    return _assemble(chunk, quirks)


def is_plain(chunk: Chunk) -> bool:
    """One legal choice that holds text and nothing else: what most whole replies are. They need no assembler."""
    if len(chunk.choices or ()) != 1 or chunk.usage is None:
        return False
    choice = chunk.choices[0]  # type: ignore[index]  # it has one
    if choice.index is None:
        return False
    message = choice.message
    if message is None or type(message.content) is not str or choice.finish_reason != "stop":
        return False
    if not message.content or message.role != "assistant":
        return False
    others = message.tool_calls or message.reasoning_content or message.reasoning or message.refusal
    tagged = message.content.lstrip().startswith(TAGS)
    return not (others or tagged or choice.index or message.function_call or choice.stop_reason or choice.stopping_word)


def _plain_events(chunk: Chunk) -> list[Event]:
    choice = chunk.choices[0]  # type: ignore[index]
    message = choice.message
    assert message is not None
    assert isinstance(message.content, str)
    assert chunk.usage is not None
    return [
        Started(id_text(chunk.id), chunk.model or "", created_seconds(chunk.created)),
        BlockStarted(0, _TEXT_BLOCK),
        TextDelta(0, message.content),
        BlockEnded(0),
        Finished("stop", raw="stop"),
        UsageReported(to_usage(chunk.usage)),
        Completed(),
    ]


def is_stream(body: bytes) -> bool:
    """Whether the body is server-sent events, whatever its content type says."""
    return body.lstrip()[:6].startswith((b"data:", b"event:", b":"))


def _assemble(chunk: Chunk, quirks: Quirks) -> list[Event]:
    assembler = Assembler(quirks)
    for choice in chunk.choices or []:
        number_calls(choice)
    assembler.take(chunk)
    proven = assembler.end(reason_required=quirks.finish_reason_required)
    missing = IncompleteCompletion("The upstream's reply has no finish reason.")
    return [*assembler.out, Completed() if proven else Failed(missing)]


def number_calls(choice: Choice) -> None:
    """In a whole message every entry is a call of its own, whatever index it carries."""
    message = choice.message or choice.delta or Delta()
    for number, call in enumerate(message.tool_calls or []):
        call.index = number


def _no_reply(body: bytes) -> InvalidStreamEvent | ProviderError:
    if not body.strip():
        return ProviderError("The upstream answered with an empty body.")
    if body.lstrip().startswith(b"<"):
        return ProviderError("The upstream answered with HTML.", detail=_detail(body))
    return InvalidStreamEvent("The upstream's reply is no Chat Completions object.", detail=_detail(body))


def _detail(body: bytes) -> str:
    return body[:500].decode("utf-8", "replace")


# --- out -------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Custom(msgspec.Struct):
    name: str
    input: str


class _Call(msgspec.Struct, omit_defaults=True):
    id: str
    type: str
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    refusal: str | None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET


class _Choice(msgspec.Struct):
    index: int
    message: _Message
    logprobs: None
    finish_reason: str


class _Whole(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_Choice]
    usage: msgspec.Raw


def encode_reply(reply: Reply, context: ReplyContext) -> bytes:
    message, characters = _message(reply.parts, context)
    reason = chat_reason(reply.finish_reason, with_calls=message.tool_calls is not msgspec.UNSET)
    whole = _Whole(
        id=chat_id(reply.response_id, context),
        object="chat.completion",
        created=context.created,
        model=context.model,
        choices=[_Choice(0, message, None, reason)],
        usage=msgspec.Raw(usage_json(reply.usage, context.input_estimate, characters)),
    )
    return with_block(msgspec.json.encode(whole), context)


def _message(parts: tuple[Part, ...], context: ReplyContext) -> tuple[_Message, int]:
    """The message and the number of characters in it."""
    thinking = "".join(part.text for part in parts if isinstance(part, ThinkingPart))
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    refusal = "".join(part.text for part in parts if isinstance(part, RefusalPart))
    calls = [_call(part) for part in parts if isinstance(part, ToolCallPart)]
    arguments = sum(len(part.arguments) for part in parts if isinstance(part, ToolCallPart))
    characters = len(thinking) + len(text) + len(refusal) + arguments
    if thinking and context.reasoning == "text":
        text = _with_tags(parts)
    message = _Message("assistant", text if text or not (calls or refusal) else None, refusal or None)
    if thinking and context.reasoning == "native":
        message.reasoning_content = thinking
    if calls:
        message.tool_calls = calls
    return message, characters


def _with_tags(parts: tuple[Part, ...]) -> str:
    """Text with its thinking in tags, in the order they came: what the stream shows."""
    pieces = []
    for part in parts:
        if isinstance(part, ThinkingPart) and part.text:
            pieces.append(THINK_OPEN + part.text + THINK_CLOSE)
        elif isinstance(part, TextPart):
            pieces.append(part.text)
    return "".join(pieces)


def _call(part: ToolCallPart) -> _Call:
    if part.custom:
        return _Call(part.call_id, "custom", custom=_Custom(part.name, part.arguments))
    return _Call(part.call_id, "function", function=_Function(part.name, part.arguments or "{}"))
