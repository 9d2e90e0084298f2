"""What the endpoints around a response store need: conversations that go on, objects and bodies they answer with.

A stored response is three things: the items it was asked with, its final Response object (`Encoder.response`,
`Relay.response`, or the body of a whole reply), and, for a background response, the bytes of its stream. Here nothing
is kept and nothing is looked up; a request that continues a stored one is rewritten as one that holds the whole
conversation, so that every upstream can answer it, and its other bytes stay as they are.
Source: protocol-facts.md sections 2.1 and 2.4; openai-python 3.57.0 resources/responses/responses.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, NotFound
from strom.core.messages import Request
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses.meanings import usage_json
from strom.protocols.openai_responses.response import ResponseObject, response_id
from strom.protocols.openai_responses.schema import ENCODE, Loose, members_of, read, word
from strom.wire.splice import join, split

_ITEMS = msgspec.json.Decoder(list[Raw])


class _Stored(msgspec.Struct, frozen=True):
    output: list[Raw] = []
    status: str | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """What a request says about storing. OpenAI's default for `store` is true."""

    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None


class _Reference(msgspec.Struct, frozen=True):
    type: Loose = None
    id: Loose = None


class _Numbered(msgspec.Struct, frozen=True):
    sequence_number: int = -1


_STORED = msgspec.json.Decoder(_Stored)
_REFERENCE = msgspec.json.Decoder(_Reference)
_NUMBERED = msgspec.json.Decoder(_Numbered)


# --- requests ------------------------------------------------------------------------------------


class StoreWish(msgspec.Struct, frozen=True):
    previous_response_id: str = ""
    store: bool = True
    background: bool = False


def store_wish(request: Request) -> StoreWish:
    """What a decoded request wants of a store. Raises BadRequest for values of a wrong type."""
    named = {name: Raw(value.text.encode()) for name, value in request.extras if name in _Wanted.__struct_fields__}
    try:
        wanted = msgspec.json.decode(ENCODE(named), type=_Wanted)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None
    return StoreWish(wanted.previous_response_id or "", wanted.store is not False, bool(wanted.background))


def input_items(body: bytes) -> list[bytes]:
    """The items of a request's input; a string is the user's message. Raises ValueError for a body that was not decoded."""
    raw = split(body).get("input", b"null")
    if raw == b"null":
        return []
    if raw.startswith(b'"'):
        return [b'{"type":"message","role":"user","content":' + raw + b"}"]
    return [bytes(item) for item in read(_ITEMS, raw)]


def output_items(response: bytes) -> list[bytes]:
    """The output of a stored Response object as input items of the next turn: output items are legal input."""
    return [bytes(item) for item in read(_STORED, response).output]


def with_history(body: bytes, history: list[bytes]) -> bytes:
    """The request as one that holds the whole conversation: the history, then its own input. It refers to no store anymore."""
    members = split(body)
    members.pop("previous_response_id", None)
    members.pop("conversation", None)
    members["input"] = b"[" + b",".join([*history, *input_items(body)]) + b"]"
    return join(members)


def with_references(body: bytes, find: Callable[[str], bytes | None]) -> bytes:
    """The request with every item_reference replaced by the item it names. Raises NotFound."""
    if b"item_reference" not in body:
        return body
    members = split(body)
    members["input"] = b"[" + b",".join(_resolved(item, find) for item in input_items(body)) + b"]"
    return join(members)


def _resolved(item: bytes, find: Callable[[str], bytes | None]) -> bytes:
    try:
        head = read(_REFERENCE, item)
    except ValueError:
        return item
    if head.type != "item_reference":
        return item
    found = find(word(head.id))
    if found is None:
        raise NotFound(f"Item with id {word(head.id)!r} not found.", param="input")
    return found


def not_found(identity: str, *, param: str | None = None) -> NotFound:
    """No response of this id is stored. `param`: previous_response_id, when a request named it."""
    if param == "previous_response_id":
        message = (
            f"Previous response with id {identity!r} not found: it was not stored, or is too old. Send the whole input."
        )
        return NotFound(message, code="previous_response_not_found", status=400, param=param)
    return NotFound(f"Response with id {identity!r} not found.", param=param)


# --- answers -------------------------------------------------------------------------------------


def begun_response(context: ReplyContext, status: str) -> bytes:
    """The object of a background response that is `queued` or `in_progress`."""
    return ResponseObject(context, response_id("", context.reply_id)).begun(status)


def cancelled_response(context: ReplyContext, output: list[bytes], identity: str = "") -> bytes:
    """The object of a background response that was cancelled. `output`: what was finished until then."""
    response = ResponseObject(context, response_id(identity, context.reply_id))
    members = response.cancelled(output, usage_json(None, context.input_estimate, sum(map(len, output))))
    return ENCODE(members)


def is_running(response: bytes) -> bool:
    return read(_STORED, response).status in ("queued", "in_progress")


def item_list(items: list[bytes]) -> bytes:
    """Body of GET …/input_items."""
    ids = [members_of(item).get("id", Raw(b"null")) for item in items]
    ends = (bytes(ids[0]), bytes(ids[-1])) if ids else (b"null", b"null")
    return b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":false}' % (b",".join(items), *ends)


def deleted_body(identity: str) -> bytes:
    return ENCODE({"id": identity, "object": "response", "deleted": True})


def input_tokens_body(tokens: int) -> bytes:
    return ENCODE({"object": "response.input_tokens", "input_tokens": tokens})


def frames_after(stream: bytes, starting_after: int) -> bytes:
    """The rest of a stored stream, for a client that has seen everything up to this sequence number."""
    frames = stream.split(b"\n\n")
    return b"".join(frame + b"\n\n" for frame in frames if frame and _number_of(frame) > starting_after)


def _number_of(frame: bytes) -> int:
    _, found, data = frame.partition(b"data: ")
    try:
        return read(_NUMBERED, data).sequence_number if found else -1
    except ValueError:
        return -1
