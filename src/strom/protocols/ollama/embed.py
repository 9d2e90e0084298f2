"""Ollama's embeddings in both directions: /api/embed, and the older /api/embeddings with one prompt and one vector.

An empty input is a wish to load the model and is answered without vectors. Tokens cannot be sent. Durations keep their
names and units. Source: protocol-facts.md section 4; ollama-python 0.6.3, EmbedRequest, EmbedResponse, EmbeddingsResponse.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, ProviderError
from strom.core.messages import Json
from strom.core.usage import token_count
from strom.protocols.codec import UpstreamCall
from strom.protocols.embeddings import EmbeddingReply, EmbeddingRequest, Vector, check_vectors, need_texts
from strom.protocols.ollama.errors import error_in_line
from strom.protocols.ollama.schema import DURATIONS, ENCODER, NAME, NOTHING, Number, present
from strom.wire.splice import join, split

PATH = "/api/embed"
OLD_PATH = "/api/embeddings"


class _Common(msgspec.Struct):
    model: str = ""
    keep_alive: Raw = NOTHING
    options: Raw = NOTHING
    truncate: bool | None = None
    dimensions: int | None = None


class _EmbedIn(_Common):
    input: str | list[str] | None = None


class _EmbeddingsIn(_Common):
    prompt: str | None = None


_EMBED = msgspec.json.Decoder(_EmbedIn)
_EMBEDDINGS = msgspec.json.Decoder(_EmbeddingsIn)

# --- front -----------------------------------------------------------------------------------------


def decode_embed(body: bytes) -> EmbeddingRequest:
    """POST /api/embed. No texts at all: a wish to load. Raises BadRequest."""
    try:
        wire = _EMBED.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid: {error}") from None
    single = not isinstance(wire.input, list)
    texts = tuple(wire.input or ()) if isinstance(wire.input, list) else (wire.input,) if wire.input else ()
    return _request(wire, body, texts, single=single)


def decode_embeddings(body: bytes) -> EmbeddingRequest:
    """POST /api/embeddings. Raises BadRequest."""
    try:
        wire = _EMBEDDINGS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid: {error}") from None
    return _request(wire, body, (wire.prompt,) if wire.prompt else (), single=True)


def _request(wire: _Common, body: bytes, texts: tuple[str, ...], *, single: bool) -> EmbeddingRequest:
    if not wire.model:
        raise BadRequest("model is required", param="model")
    known = type(wire).__struct_fields__
    extras = [(name, value) for name, value in split(body).items() if name not in known and value != b"null"]
    return EmbeddingRequest(
        NAME,
        wire.model,
        texts,
        single=single,
        dimensions=wire.dimensions,
        truncate=wire.truncate,
        keep_alive=_json(wire.keep_alive),
        options=_json(wire.options),
        extras=tuple((name, Json(value.decode("utf-8", "replace"))) for name, value in extras),
    )


def _json(raw: Raw) -> Json | None:
    return Json(bytes(raw).decode("utf-8", "replace")) if bytes(raw) not in (b"", b"null") else None


def encode_embed_reply(reply: EmbeddingReply, request: EmbeddingRequest) -> bytes:
    """Of POST /api/embed, under the name the client asked for. Counts and durations as far as they are known."""
    known = {name: ENCODER.encode(value) for name, value in reply.durations}
    if reply.input_tokens is not None:
        known["prompt_eval_count"] = ENCODER.encode(reply.input_tokens)
    vectors = ENCODER.encode(reply.vectors)
    return join({"model": ENCODER.encode(request.model), "embeddings": vectors, **known})


def encode_embeddings_reply(reply: EmbeddingReply) -> bytes:
    """Of POST /api/embeddings."""
    return ENCODER.encode({"embedding": reply.vectors[0] if reply.vectors else []})


# --- behind ----------------------------------------------------------------------------------------


class _RequestOut(msgspec.Struct, omit_defaults=True):
    model: str
    input: str | tuple[str, ...]
    truncate: bool | None = None
    dimensions: int | None = None
    keep_alive: Raw | None = None
    options: Raw | None = None


def encode_embed_request(request: EmbeddingRequest, model: str) -> UpstreamCall:
    """POST /api/embed, also for what came to /api/embeddings. Raises Unsupported."""
    texts = need_texts(request)
    wire = _RequestOut(
        model,
        texts[0] if request.single and texts else texts,
        request.truncate,
        request.dimensions,
        _raw(request.keep_alive),
        _raw(request.options),
    )
    body = ENCODER.encode(wire)
    if request.protocol == NAME:
        body = join({**split(body), **{name: value.text.encode() for name, value in request.extras}})
        return UpstreamCall(PATH, body)
    dropped = [name for name, _ in request.extras] + (["user"] if request.user else [])
    return UpstreamCall(PATH, body, dropped=tuple(dropped))


def _raw(json: Json | None) -> Raw | None:
    return Raw(json.text.encode()) if json is not None else None


class _ReplyIn(msgspec.Struct):
    """`embedding`: of /api/embeddings."""

    model: str | None = None
    embeddings: list[Vector] | None = None
    embedding: Vector | None = None
    prompt_eval_count: Number = None
    total_duration: Number = None
    load_duration: Number = None
    prompt_eval_duration: Number = None
    eval_duration: Number = None
    error: Raw = NOTHING


_REPLY = msgspec.json.Decoder(_ReplyIn)


def decode_embed_reply(body: bytes, count: int) -> EmbeddingReply:
    """`count`: how many inputs there were. Raises what the upstream's error says; ProviderError for a wrong number."""
    try:
        wire = _REPLY.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProviderError("The upstream's answer holds no embeddings.", detail=str(error)) from None
    if present(wire.error):
        raise error_in_line(wire.error)
    vectors = wire.embeddings if wire.embeddings is not None else [wire.embedding] if wire.embedding else []
    check_vectors(vectors, count)
    durations = tuple((name, int(value)) for name in DURATIONS if (value := getattr(wire, name)) is not None)
    return EmbeddingReply(wire.model or "", vectors, token_count(wire.prompt_eval_count), durations)
