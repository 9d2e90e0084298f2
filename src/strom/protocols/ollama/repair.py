"""What of an upstream's line breaks its own protocol, and the line put right.

Legal is what the official clients can read: `model` and `created_at` texts, `done` a boolean, the message with a role and a
text, calls with a name and an object, a reason on the done line, no `error: null`. Only what is wrong is replaced: every
other member keeps its bytes, unknown ones too. Source: ollama-python 0.6.3, _types.py (role is demanded, arguments a mapping);
ollama-js 0.6, interfaces.ts; streams.md section 2.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Raw

from strom.protocols.codec import ReplyContext
from strom.protocols.ollama import schema
from strom.protocols.ollama.arguments import arguments_object, arguments_text, is_object
from strom.protocols.ollama.encoder import JSON, created_at
from strom.protocols.ollama.form import CHAT, Form
from strom.protocols.ollama.reader import contents_of
from strom.wire.splice import join, split

_CALLS = msgspec.json.Decoder(list[Raw])


def is_legal(line: schema.Line, form: Form) -> bool:
    if line.model is None or line.created_at is None or line.done is None or (line.done and not line.done_reason):
        return False
    if bytes(line.error):
        return False
    if form is not CHAT:
        return line.response is not None and _are_legal(line.tool_calls)
    message = line.message
    return message is not None and bool(message.role) and message.content is not None and _are_legal(message.tool_calls)


def repaired(raw: bytes, line: schema.Line, form: Form, context: ReplyContext) -> bytes:
    """The object with what is missing or wrong put right."""
    members = split(raw)
    members.pop("error", None)
    if line.model is None:
        members["model"] = JSON(context.model)
    if line.created_at is None:
        members["created_at"] = JSON(created_at(context))
    text, _, _ = contents_of(line)
    message = members.pop("message", b"null")
    inside = split(message) if message.startswith(b"{") else {}
    members.pop("response", None)
    if form is CHAT:
        _move(members, inside)
        members["message"] = _message(inside, text)
    else:
        _move(inside, members)
        members["response"] = JSON(text)
        _repair_calls(members)
    members["done"] = JSON(bool(line.done))
    if line.done and not line.done_reason:  # a quirk says that this provider never tells one
        members["done_reason"] = b'"stop"'
    return join(members)


def with_text(raw: bytes, form: Form, text: str) -> bytes:
    """A legal line with another text and without its thinking."""
    members = split(raw)
    if form is not CHAT:
        members.pop("thinking", None)
        return join({**members, "response": JSON(text)})
    message = split(members["message"])
    message.pop("thinking", None)
    return join({**members, "message": join({**message, "content": JSON(text)})})


def understood(raw: bytes) -> schema.Line | None:
    """A legal JSON object that is no line: what can be said of its end, and nothing else.

    None for what is no object, and for an end that cannot be understood: a client would take it for one.
    """
    if not _is_utf8(raw):
        return None
    try:
        ending = schema.ENDING.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return schema.Line() if _goes_on(raw) else None
    return schema.Line(done=ending.done, done_reason=ending.done_reason, error=ending.error)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _goes_on(raw: bytes) -> bool:
    """Whether it is an object that ends nothing, by another parser, which takes numbers of any size and halves of surrogate
    pairs. Of bytes it would guess the coding.
    """
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not value.get("done") and not value.get("error")


def _are_legal(calls: list[schema.CallIn] | None) -> bool:
    return not calls or all(_is_legal_call(call) for call in calls)


def _is_legal_call(call: schema.CallIn) -> bool:
    function = call.function
    if function is None or not function.name or not is_object(function.arguments):
        return False
    return call.id is None or isinstance(call.id, str)


def _move(source: dict[str, bytes], target: dict[str, bytes]) -> None:
    """What stands where the other form has it."""
    for name in ("thinking", "tool_calls"):
        if name in source:
            target.setdefault(name, source.pop(name))


def _message(message: dict[str, bytes], text: str) -> bytes:
    if message.get("role", b"null") in (b"null", b'""'):
        message["role"] = b'"assistant"'
    message["content"] = JSON(text)
    _repair_calls(message)
    return join(message)


def _repair_calls(members: dict[str, bytes]) -> None:
    calls = members.get("tool_calls", b"null")
    if calls == b"null":
        members.pop("tool_calls", None)
        return
    fixed = [_repaired_call(bytes(raw)) for raw in _CALLS.decode(calls)]
    members["tool_calls"] = b"[" + b",".join(call for call in fixed if call) + b"]"


def _repaired_call(raw: bytes) -> bytes:
    """b"" for a call without a name: nobody can run it."""
    call = schema.CALL.decode(raw)
    if call.function is None or not call.function.name:
        return b""
    if _is_legal_call(call):
        return raw
    members = split(raw)
    function = split(members["function"])
    function["arguments"] = arguments_object(arguments_text(call.function.arguments))
    if call.id is not None:
        members["id"] = JSON(str(call.id))
    return join({**members, "function": join(function)})
