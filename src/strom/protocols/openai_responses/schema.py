"""Shapes of a Responses stream and of the Response object, as wide as real servers are. No rules here.

`Raw` members are JSON kept as bytes: empty when absent, `null` when null (see `present`). Fields nobody here reads
are not listed; on relay they survive because the bytes do.
Source: openai-python 3.57.0 types/responses; recordings of llama.cpp (no indices, no sequence numbers), vLLM
(everything echoed) and transformers (created_at a float, status "queued"); protocol-facts.md sections 2.2 and 2.3.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Raw

NAME = "openai-responses"
Shape = TypeVar("Shape")
ENCODE = msgspec.json.Encoder().encode
Loose = str | float | bool | list[Raw] | dict[str, Raw] | None
"""Any JSON value, where only a string means something to us."""


def present(raw: Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


def text_of(raw: Raw) -> str:
    """The JSON as text. Only for values of a document that is `checked`."""
    return bytes(raw).decode()


def read(decoder: msgspec.json.Decoder[Shape], data: bytes | Raw) -> Shape:
    """Raises ValueError, whatever is wrong with the JSON."""
    try:
        return decoder.decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def checked(data: bytes) -> bytes:
    """The data, if it is UTF-8: a decoder does not look into what it skips or keeps raw. Raises ValueError."""
    if not data.isascii():
        data.decode()
    return data


def word(value: Loose) -> str:
    """The string, "" for anything else."""
    return value if isinstance(value, str) else ""


def number(value: Loose) -> int | None:
    """The integer (2.0 is one), None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        return None
    return int(value)


# --- a stream ------------------------------------------------------------------------------------


class FrameIn(msgspec.Struct, gc=False):
    """Any event of a stream. Every type has its own few of these members."""

    type: str = ""
    sequence_number: Loose = None
    output_index: Loose = None
    content_index: Loose = None
    summary_index: Loose = None
    item_id: Loose = None
    delta: Loose = None
    text: Loose = None
    refusal: Loose = None
    arguments: Loose = None
    input: Loose = None
    name: Loose = None
    item: Raw = Raw()
    part: Raw = Raw()
    annotation: Raw = Raw()
    response: Raw = Raw()
    error: Raw = Raw()
    message: Loose = None
    logprobs: Raw = Raw()


FRAME = msgspec.json.Decoder(FrameIn)


class PartIn(msgspec.Struct, frozen=True):
    """output_text, refusal, summary_text, reasoning_text."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None


class ItemIn(msgspec.Struct, frozen=True):
    """An output item, whole or just begun."""

    type: str = ""
    id: Loose = None
    call_id: Loose = None
    name: Loose = None
    namespace: Loose = None
    arguments: Loose = None
    input: Loose = None
    content: list[PartIn] | str | None = None
    summary: list[PartIn] | None = None
    encrypted_content: str | None = None


ITEM = msgspec.json.Decoder(ItemIn)
PART = msgspec.json.Decoder(PartIn)


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str | None = None


class ItemId(msgspec.Struct, frozen=True):
    id: Loose = None


ITEM_ID = msgspec.json.Decoder(ItemId)


class ResponseIn(msgspec.Struct, frozen=True):
    """`response` of a lifecycle event, or a whole reply."""

    id: Loose = None
    object: Loose = None
    model: Loose = None
    created_at: Loose = None
    status: Loose = None
    output: list[Raw] | None = None
    usage: Raw = Raw()
    error: Raw = Raw()
    incomplete_details: IncompleteDetails | None = None
    max_output_tokens: Loose = None


RESPONSE = msgspec.json.Decoder(ResponseIn)
OBJECT = msgspec.json.Decoder(dict[str, Raw])


def members_of(data: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object. Raises ValueError when it is none."""
    return read(OBJECT, data)


def object_of(members: dict[str, Raw]) -> bytes:
    """A JSON object with these members, in this order, on one line."""
    return single_line(ENCODE(members))


def single_line(data: bytes) -> bytes:
    """JSON without line ends between its tokens: it stands in an event's data line."""
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data
