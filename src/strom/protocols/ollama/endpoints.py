"""Bodies of Ollama's small endpoints, as pure functions: /api/tags, /api/show, /api/ps, /api/version.

Unknown texts are "", unknown sizes 0, since the official clients demand the type; instants must be RFC 3339 (the Python client
parses them). `model_info` must be there, and IDE plug-ins read the context length from `<architecture>.context_length`.
Source: protocol-facts.md section 4; ollama-python 0.6.3, ListResponse, ShowResponse, ProcessResponse.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, ProviderError
from strom.protocols.ollama.schema import ENCODER

RUNNING = b"Ollama is running"
"""Body of GET /, which some clients look for."""
LATEST = ":latest"
_UNKNOWN_ARCHITECTURE = "unknown"


class ModelDetails(msgspec.Struct, frozen=True):
    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: tuple[str, ...] | None = None
    parameter_size: str = ""
    quantization_level: str = ""


class ModelCard(msgspec.Struct, frozen=True):
    """What is known of a model. `modified_at` and `expires_at` are RFC 3339. `context_length` None: unknown.

    `capabilities`: completion, tools, vision, thinking, embedding, insert.
    """

    name: str
    modified_at: str
    size: int = 0
    digest: str = ""
    details: ModelDetails = ModelDetails()
    capabilities: tuple[str, ...] = ("completion",)
    context_length: int | None = None
    expires_at: str = ""
    size_vram: int = 0


class _Tag(msgspec.Struct):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetails
    capabilities: tuple[str, ...]


class _Running(msgspec.Struct, omit_defaults=True):
    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: str
    size_vram: int
    context_length: int | None = None


class _Shown(msgspec.Struct):
    modelfile: str
    parameters: str
    template: str
    details: ModelDetails
    model_info: dict[str, str | int]
    capabilities: tuple[str, ...]
    modified_at: str


def tags_body(models: Iterable[ModelCard]) -> bytes:
    """GET /api/tags."""
    listed = [
        _Tag(card.name, card.name, card.modified_at, card.size, card.digest, card.details, card.capabilities)
        for card in models
    ]
    return ENCODER.encode({"models": listed})


def ps_body(models: Iterable[ModelCard]) -> bytes:
    """GET /api/ps: the models that are loaded."""
    running = [
        _Running(
            card.name,
            card.name,
            card.size,
            card.digest,
            card.details,
            card.expires_at or card.modified_at,
            card.size_vram,
            card.context_length,
        )
        for card in models
    ]
    return ENCODER.encode({"models": running})


def show_body(card: ModelCard) -> bytes:
    """POST /api/show."""
    architecture = card.details.family or _UNKNOWN_ARCHITECTURE
    info: dict[str, str | int] = {"general.architecture": architecture, "general.basename": card.name}
    if card.context_length is not None:
        info[f"{architecture}.context_length"] = card.context_length
    return ENCODER.encode(_Shown("", "", "", card.details, info, card.capabilities, card.modified_at))


def version_body(version: str) -> bytes:
    """GET /api/version."""
    return ENCODER.encode({"version": version})


# --- what clients ask, and what an upstream answers ---------------------------------------------------


class _ShowIn(msgspec.Struct):
    """`name` is what clients older than `model` send."""

    model: str | None = None
    name: str | None = None


class _TagIn(msgspec.Struct):
    name: str | None = None
    model: str | None = None
    modified_at: str | None = None
    size: int | None = None
    digest: str | None = None
    details: Raw = Raw()
    capabilities: tuple[str, ...] | None = None
    expires_at: str | None = None
    size_vram: int | None = None
    context_length: int | None = None


class _TagsIn(msgspec.Struct):
    models: list[_TagIn] | None = None


_SHOW = msgspec.json.Decoder(_ShowIn)
_TAGS = msgspec.json.Decoder(_TagsIn)
_DETAILS = msgspec.json.Decoder(ModelDetails)


def shown_model(body: bytes) -> str:
    """The model a POST /api/show asks about. Raises BadRequest."""
    try:
        wire = _SHOW.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"The request body is not valid: {error}") from None
    name = wire.model or wire.name
    if not name:
        raise BadRequest("model is required", param="model")
    return name


def same_model(one: str, other: str) -> bool:
    """`x` and `x:latest` are one model."""
    return one.removesuffix(LATEST) == other.removesuffix(LATEST)


def read_tags(body: bytes) -> list[ModelCard]:
    """What an upstream lists at /api/tags or /api/ps. Raises ProviderError."""
    try:
        listed = _TAGS.decode(body).models or []
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProviderError("The upstream's list of models is none.", detail=str(error)) from None
    return [_card(tag, name) for tag in listed if (name := tag.name or tag.model)]


def _card(tag: _TagIn, name: str) -> ModelCard:
    return ModelCard(
        name,
        tag.modified_at or "",
        tag.size or 0,
        tag.digest or "",
        _details(tag.details),
        tag.capabilities or ("completion",),
        tag.context_length,
        tag.expires_at or "",
        tag.size_vram or 0,
    )


def _details(raw: Raw) -> ModelDetails:
    try:
        return _DETAILS.decode(raw)
    except msgspec.DecodeError:
        return ModelDetails()
