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
from strom.protocols.openai_responses.schema import ENCODE, Loose, members_of, object_of, present, read, word
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
    conversation: Raw = Raw()
    model: Loose = None
    stream: Loose = None


class _Reference(msgspec.Struct, frozen=True):
    type: Loose = None
    id: Loose = None


class _Numbered(msgspec.Struct, frozen=True):
    sequence_number: int = -1


class _Listed(msgspec.Struct, frozen=True):
    """An input item, as far as a list of them has to complete it."""

    type: Loose = None
    id: Loose = None
    role: Loose = None
    content: Loose = None


_STORED = msgspec.json.Decoder(_Stored)
_WANTED = msgspec.json.Decoder(_Wanted)
_LISTED = msgspec.json.Decoder(_Listed)
_REFERENCE = msgspec.json.Decoder(_Reference)
_NUMBERED = msgspec.json.Decoder(_Numbered)


# --- requests ------------------------------------------------------------------------------------


class StoreWish(msgspec.Struct, frozen=True):
    """`conversation`: the request names one. `references`: it may hold item references."""

    previous_response_id: str = ""
    store: bool = True
    background: bool = False
    conversation: bool = False
    references: bool = False
    model: str = ""
    stream: bool = False
    demands_store: bool = False
    """`store: true` stands in the request, and is not only its default."""

    @property
    def reads(self) -> bool:
        """Whether the request needs something that was stored before."""
        return bool(self.previous_response_id) or self.conversation or self.references


NO_WISH = StoreWish(store=False)


def store_wish(request: Request) -> StoreWish:
    """What a decoded request wants of a store. Raises BadRequest for values of a wrong type."""
    named = {name: Raw(value.text.encode()) for name, value in request.extras if name in _Wanted.__struct_fields__}
    return body_wish(ENCODE(named))


def body_wish(body: bytes) -> StoreWish:
    """What a request that is not decoded yet wants. Raises BadRequest for values of a wrong type.

    A body that is no JSON object wishes nothing: whoever decodes it words the error.
    """
    try:
        wanted = read(_WANTED, body)
    except msgspec.ValidationError as error:
        if "`$`" in str(error) or " - at " not in str(error):
            return NO_WISH
        words, _, place = str(error).rpartition(" - at `$.")
        raise BadRequest(f"{place.rstrip('`')}: {words}", param=place.rstrip("`")) from None
    except ValueError:
        return NO_WISH
    return StoreWish(
        wanted.previous_response_id or "",
        wanted.store is not False,
        bool(wanted.background),
        present(wanted.conversation),
        b"item_reference" in body,
        word(wanted.model),
        wanted.stream is True,
        wanted.store is True,
    )


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


def has_ended_well(response: bytes) -> bool:
    """Whether a conversation can go on from it: its end is proven."""
    return read(_STORED, response).status in ("completed", "incomplete")


def item_id(item: bytes) -> str:
    """The id of an item; "" when it has none."""
    try:
        return word(read(_LISTED, item).id)
    except ValueError:
        return ""


def listed_item(item: bytes, own_id: str) -> bytes:
    """An input item as lists show it: with a type, an id (`own_id` when the client gave none) and content as parts."""
    try:
        head, members = read(_LISTED, item), members_of(item)
    except ValueError:
        return item
    if head.type is None and head.role is not None:
        members["type"] = Raw(b'"message"')
    if isinstance(head.content, str):
        kind = "output_text" if head.role == "assistant" else "input_text"
        members["content"] = Raw(ENCODE([{"type": kind, "text": head.content}]))
    if not word(head.id):
        members["id"] = Raw(ENCODE(own_id))
    return object_of(members)


def item_list(items: list[bytes], *, has_more: bool = False) -> bytes:
    """Body of GET …/input_items."""
    ids = [members_of(item).get("id", Raw(b"null")) for item in items]
    ends = (bytes(ids[0]), bytes(ids[-1])) if ids else (b"null", b"null")
    more = b"true" if has_more else b"false"
    return b'{"object":"list","data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}' % (b",".join(items), *ends, more)


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
