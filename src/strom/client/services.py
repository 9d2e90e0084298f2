"""Embeddings, model lists, token counts: what is asked, and how the answers read. Does no I/O.

Source: OpenAI reference, "Create embeddings", "List models"; Ollama API, /api/embed, /api/tags; Anthropic, "Count message
tokens"; vLLM, /tokenize. A count that a provider does not offer is estimated from lengths, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from strom.client.fetching import Question
from strom.client.provider import Provider
from strom.core.errors import ProviderError, Unsupported
from strom.core.messages import Message
from strom.core.usage import Usage, estimate_tokens, token_count

_VERSION = [(b"anthropic-version", b"2023-06-01")]
MESSAGE_CHARACTERS = 16  # role and separators of a chat template


class Embeddings(msgspec.Struct, frozen=True):
    """One vector per text, in their order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str | None = None
    usage: Usage | None = None


class TokenCount(msgspec.Struct, frozen=True):
    tokens: int
    source: Literal["reported", "estimated"]


# --- embeddings ------------------------------------------------------------------------------------


class _EmbedRequest(msgspec.Struct):
    model: str
    input: Sequence[str]


class _Vector(msgspec.Struct):
    embedding: tuple[float, ...]
    index: int = 0


class _EmbedUsage(msgspec.Struct):
    prompt_tokens: int | None = None


class _OpenAIEmbeddings(msgspec.Struct):
    data: list[_Vector]
    model: str | None = None
    usage: _EmbedUsage | None = None


class _OllamaEmbeddings(msgspec.Struct):
    embeddings: list[tuple[float, ...]]
    model: str | None = None
    prompt_eval_count: int | None = None


def ask_embeddings(texts: Sequence[str], provider: Provider) -> Question:
    """Raises Unsupported."""
    body = msgspec.json.encode(_EmbedRequest(provider.model, texts))
    match provider.upstream.protocol:
        case "anthropic":
            raise Unsupported("Anthropic offers no embeddings.")
        case "ollama":
            return Question("/api/embed", body)
        case "openai-chat" | "openai-responses":
            return Question("/v1/embeddings", body)


def read_embeddings(body: bytes, provider: Provider, count: int) -> Embeddings:
    """Raises ProviderError when the answer is none for so many texts."""
    try:
        found = _read_ollama(body) if provider.upstream.protocol == "ollama" else _read_openai(body)
    except msgspec.DecodeError as error:
        raise ProviderError("The embeddings cannot be read.", detail=str(error)) from None
    if len(found.vectors) != count:
        raise ProviderError(f"{len(found.vectors)} vectors came for {count} texts.")
    return found


def _read_openai(body: bytes) -> Embeddings:
    answer = msgspec.json.decode(body, type=_OpenAIEmbeddings)
    vectors = tuple(item.embedding for item in sorted(answer.data, key=lambda item: item.index))
    usage = Usage(token_count(answer.usage.prompt_tokens)) if answer.usage is not None else None
    return Embeddings(vectors, answer.model, usage)


def _read_ollama(body: bytes) -> Embeddings:
    answer = msgspec.json.decode(body, type=_OllamaEmbeddings)
    usage = None if answer.prompt_eval_count is None else Usage(token_count(answer.prompt_eval_count))
    return Embeddings(tuple(answer.embeddings), answer.model, usage)


def split_text(text: str, longest: int) -> list[str]:
    """Pieces of at most so many characters, for texts that are longer than a model takes."""
    return [text[at : at + longest] for at in range(0, len(text), longest)] or [text]


def average(vectors: Sequence[Sequence[float]], weights: Sequence[int]) -> tuple[float, ...]:
    """The mean of the pieces' vectors, weighted by their lengths, as a unit vector."""
    if len(vectors) == 1:
        return tuple(vectors[0])
    total = [
        sum(value * weight for value, weight in zip(column, weights, strict=True))
        for column in zip(*vectors, strict=True)
    ]
    norm = math.sqrt(sum(value * value for value in total)) or 1.0
    return tuple(value / norm for value in total)


# --- models ----------------------------------------------------------------------------------------


class _Named(msgspec.Struct):
    id: str = ""
    name: str = ""


class _ModelList(msgspec.Struct):
    data: list[_Named] | None = None
    models: list[_Named] | None = None


def ask_models(provider: Provider) -> Question:
    match provider.upstream.protocol:
        case "ollama":
            return Question("/api/tags")
        case "anthropic":
            return Question("/v1/models", headers=_VERSION)
        case "openai-chat" | "openai-responses":
            return Question("/v1/models")


def read_models(body: bytes) -> list[str]:
    """Names, in the provider's order. Raises ProviderError."""
    try:
        listed = msgspec.json.decode(body, type=_ModelList)
    except msgspec.DecodeError as error:
        raise ProviderError("The list of models cannot be read.", detail=str(error)) from None
    return [item.id or item.name for item in listed.data or listed.models or [] if item.id or item.name]


# --- counting --------------------------------------------------------------------------------------


class _Counted(msgspec.Struct):
    input_tokens: int | None = None
    count: int | None = None


def ask_count(body: bytes, provider: Provider) -> Question | None:
    """`body`: the request that would be sent. None: this provider does not count."""
    counting = provider.upstream.counting
    if counts_messages(provider):
        return Question("/v1/messages/count_tokens", _only(body, ("model", "messages", "system", "tools")), _VERSION)
    if counting == "vllm":
        return Question("/tokenize", _only(body, ("model", "messages", "tools")))
    return None


def counts_messages(provider: Provider) -> bool:
    """Whether it counts Messages bodies, whatever protocol it is asked in. Source: recording xllamacpp/anthropic_count."""
    return provider.upstream.protocol == "anthropic" or provider.upstream.counting in ("anthropic", "llama-cpp")


def read_count(body: bytes) -> TokenCount | None:
    try:
        counted = msgspec.json.decode(body, type=_Counted)
    except msgspec.DecodeError:
        return None
    number = counted.input_tokens if counted.input_tokens is not None else counted.count
    return None if number is None else TokenCount(number, "reported")


def estimate_messages(messages: Sequence[Message]) -> TokenCount:
    return TokenCount(max(1, sum(estimate_message(message) for message in messages)), "estimated")


def estimate_message(message: Message) -> int:
    """From the length of its JSON without member names: rough for media, close for text."""
    characters = MESSAGE_CHARACTERS
    for part in message.parts:
        values = msgspec.to_builtins(part).values()
        characters += sum(
            len(value) if isinstance(value, str) else len(msgspec.json.encode(value)) for value in values if value
        )
    return estimate_tokens(characters)


def _only(body: bytes, names: tuple[str, ...]) -> bytes:
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: members[name] for name in names if name in members})
