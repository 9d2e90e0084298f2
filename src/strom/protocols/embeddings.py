"""Embeddings: requests and replies in no protocol's words, and OpenAI's /v1/embeddings in both directions.

    front:  decode_request → EmbeddingRequest      encode_reply
    behind: encode_request → UpstreamCall          decode_reply → EmbeddingReply
    both:   relay_request, relay_reply: bytes stay bytes where nothing has to change

A vector goes out as numbers or as base64 of little-endian float32, as the client asked: openai-python asks for base64
by itself, other clients cannot decode it. There is no stream of embeddings: asking for one is a 400. Errors are worded by
the Chat protocol. Source: protocol-facts.md section 5; product.md section 2; recording xllamacpp_embed/embeddings.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, b64encode
from typing import Literal

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, ProviderError, Unsupported
from strom.core.messages import Json
from strom.core.usage import estimate_tokens, token_count
from strom.protocols.codec import UpstreamCall
from strom.wire.splice import join, split

PATH = "/v1/embeddings"
Encoding = Literal["float", "base64"]
Vector = list[float]
_encode = msgspec.json.Encoder().encode


class EmbeddingRequest(msgspec.Struct, frozen=True):
    """`texts` or, if the client counted tokens itself, `tokens` is set. `single`: the client sent one input, not a list.

    `encoding` None: the client did not say, and gets numbers. `extras`: fields without a canonical place, for the same
    protocol only.
    """

    protocol: str
    model: str
    texts: tuple[str, ...] = ()
    tokens: tuple[tuple[int, ...], ...] = ()
    single: bool = False
    dimensions: int | None = None
    encoding: Encoding | None = None
    truncate: bool | None = None
    user: str = ""
    keep_alive: Json | None = None
    options: Json | None = None
    extras: tuple[tuple[str, Json], ...] = ()

    @property
    def count(self) -> int:
        return len(self.texts) or len(self.tokens)

    @property
    def input_estimate(self) -> int:
        """Tokens of the input: counted, or estimated from its length."""
        return sum(map(len, self.tokens)) + sum(estimate_tokens(len(text)) for text in self.texts)


class EmbeddingReply(msgspec.Struct, frozen=True):
    """One vector per input, in the input's order. `input_tokens` None: not reported. `durations`: as in core/usage.py."""

    model: str
    vectors: list[Vector]
    input_tokens: int | None = None
    durations: tuple[tuple[str, int], ...] = ()


# --- front -----------------------------------------------------------------------------------------


class _RequestIn(msgspec.Struct):
    model: str = ""
    input: str | list[str | int | list[int]] | None = None
    dimensions: int | None = None
    encoding_format: str | None = None
    user: str | None = None
    stream: bool | None = None


_REQUEST = msgspec.json.Decoder(_RequestIn)
_MEMBERS = frozenset(_RequestIn.__struct_fields__)


def decode_request(body: bytes) -> EmbeddingRequest:
    """Raises BadRequest."""
    try:
        wire = _REQUEST.decode(body)
        members = split(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid: {error}") from None
    if wire.stream:
        raise BadRequest("Embeddings do not stream: leave out 'stream'.", param="stream")
    if not wire.model:
        raise BadRequest("model is required", param="model")
    if wire.encoding_format not in (None, "float", "base64"):
        raise BadRequest("encoding_format must be float or base64", param="encoding_format")
    texts, tokens, single = _input(wire.input)
    extras = [(name, value) for name, value in members.items() if name not in _MEMBERS and value != b"null"]
    return EmbeddingRequest(
        "openai-chat",
        wire.model,
        texts,
        tokens,
        single,
        dimensions=wire.dimensions,
        encoding="base64" if wire.encoding_format == "base64" else "float" if wire.encoding_format else None,
        user=wire.user or "",
        extras=tuple((name, Json(value.decode("utf-8", "replace"))) for name, value in extras),
    )


def _input(
    given: str | list[str | int | list[int]] | None,
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...], bool]:
    """(texts, token lists, whether it was one input alone)."""
    if isinstance(given, str) and given:
        return (given,), (), True
    if isinstance(given, list) and given:
        texts = tuple(item for item in given if isinstance(item, str))
        numbers = tuple(item for item in given if isinstance(item, int))
        lists = tuple(tuple(item) for item in given if isinstance(item, list))
        if len(texts) == len(given) and all(texts):
            return texts, (), False
        if len(numbers) == len(given):
            return (), (numbers,), True
        if len(lists) == len(given) and all(lists):
            return (), lists, False
    raise BadRequest("input must be a text, a list of texts, or tokens, and not empty", param="input")


class _Usage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class _Item(msgspec.Struct):
    object: str
    index: int
    embedding: Vector | str


class _ReplyOut(msgspec.Struct):
    object: str
    data: list[_Item]
    model: str
    usage: _Usage


def encode_reply(reply: EmbeddingReply, request: EmbeddingRequest) -> bytes:
    """Under the name the client asked for. OpenAI demands counts: one nobody reported is estimated."""
    counted = reply.input_tokens if reply.input_tokens is not None else request.input_estimate
    items = [
        _Item("embedding", index, to_base64(vector) if request.encoding == "base64" else vector)
        for index, vector in enumerate(reply.vectors)
    ]
    return _encode(_ReplyOut("list", items, request.model, _Usage(counted, counted)))


# --- behind ----------------------------------------------------------------------------------------


class _RequestOut(msgspec.Struct, omit_defaults=True):
    model: str
    input: str | tuple[str, ...] | tuple[tuple[int, ...], ...]
    dimensions: int | None = None
    encoding_format: Encoding | None = None
    user: str = ""


def encode_request(request: EmbeddingRequest, model: str) -> UpstreamCall:
    """Numbers are asked for where the client did not ask for base64 itself: every server has them."""
    given = request.texts or request.tokens
    wire = _RequestOut(
        model,
        request.texts[0] if request.single and request.texts else given,
        request.dimensions,
        "base64" if request.encoding == "base64" else "float",
        request.user,
    )
    wanted = {"truncate": request.truncate, "keep_alive": request.keep_alive, "options": request.options}
    dropped = [name for name, value in wanted.items() if value is not None]
    dropped += [name for name, _ in request.extras]
    return UpstreamCall(PATH, _encode(wire), dropped=tuple(dropped))


class _ItemIn(msgspec.Struct):
    index: int | None = None
    embedding: Vector | str | None = None


class _UsageIn(msgspec.Struct):
    prompt_tokens: int | None = None


class _ReplyIn(msgspec.Struct):
    data: list[_ItemIn] | None = None
    model: str | None = None
    usage: _UsageIn | None = None
    error: Raw = Raw()


_REPLY = msgspec.json.Decoder(_ReplyIn)


def decode_reply(body: bytes, count: int) -> EmbeddingReply:
    """`count`: how many inputs there were. Raises ProviderError when the answer has not a vector for each."""
    wire = _read_reply(body)
    items = sorted(enumerate(wire.data or []), key=lambda item: item[0] if item[1].index is None else item[1].index)
    vectors = [_vector(item.embedding) for _, item in items]
    check_vectors(vectors, count)
    return EmbeddingReply(wire.model or "", vectors, token_count(wire.usage.prompt_tokens if wire.usage else None))


def check_vectors(vectors: list[Vector], count: int) -> None:
    """Raises ProviderError."""
    if len(vectors) != count or not all(vectors):
        raise ProviderError(f"The upstream answered with {len(vectors)} embeddings for {count} inputs, or empty ones.")


def _read_reply(body: bytes) -> _ReplyIn:
    try:
        wire = _REPLY.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProviderError("The upstream's answer holds no embeddings.", detail=str(error)) from None
    if bytes(wire.error) not in (b"", b"null"):
        detail = bytes(wire.error)[:500].decode("utf-8", "replace")
        raise ProviderError("The upstream reported an error instead of embeddings.", detail=detail)
    return wire


def _vector(value: Vector | str | None) -> Vector:
    """Raises ProviderError."""
    return from_base64(value) if isinstance(value, str) else value or []


# --- the same protocol on both sides -----------------------------------------------------------------


def relay_request(body: bytes, model: str) -> UpstreamCall:
    """The client's own bytes with the model spliced in and top-level nulls removed. Raises BadRequest."""
    try:
        members = {name: value for name, value in split(body).items() if value != b"null"}
    except ValueError as error:
        raise BadRequest(f"The body is no JSON object: {error}") from None
    return UpstreamCall(PATH, join({**members, "model": _encode(model)}))


def relay_reply(body: bytes, request: EmbeddingRequest) -> bytes:
    """The upstream's bytes, if its vectors are encoded as the client asked and are all there; else written anew.

    Raises ProviderError.
    """
    wire = _read_reply(body)
    wanted: type = str if request.encoding == "base64" else list
    encoded = bool(wire.data) and all(isinstance(item.embedding, wanted) for item in wire.data or [])
    reply = decode_reply(body, request.count)
    return body if encoded and reply.input_tokens is not None else encode_reply(reply, request)


# --- vectors -----------------------------------------------------------------------------------------


def to_base64(vector: Vector) -> str:
    """Base64 of little-endian float32. Raises ProviderError for a number that is none."""
    try:
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
    except (struct.error, OverflowError):
        raise ProviderError("The upstream's embedding holds a number that is no float32.") from None


def from_base64(text: str) -> Vector:
    """Raises ProviderError."""
    try:
        data = b64decode(text, validate=True)
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    except (binascii.Error, ValueError, struct.error):
        raise ProviderError("The upstream's embedding is no base64 of float32 numbers.") from None


def need_texts(request: EmbeddingRequest) -> tuple[str, ...]:
    """The texts, for an upstream that takes no tokens. Raises Unsupported."""
    if request.tokens:
        raise Unsupported("This backend takes texts, not tokens, as the input of embeddings.", param="input")
    return request.texts
