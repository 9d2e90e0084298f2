"""The shapes of Chat Completions replies as they come, as typed structs: chunks of a stream and whole replies alike.

They are as wide as real servers are: what is missing or null is legal; ids may be numbers; arguments may be an object;
content may be a list of parts. Whatever does not fit even so makes the frame undecodable. A field nobody here reads is not
listed: on relay it survives because the bytes do.
Source: openai-python types/chat (3.57.0); recordings of llama.cpp, vLLM, mlx_lm, transformers and llama_cpp.server;
protocol-facts.md sections 1.2, 1.3 and 7.
"""

from __future__ import annotations

import msgspec

Id = str | int | float | None
NOTHING = msgspec.Raw()


class Piece(msgspec.Struct, gc=False):
    """A part of content that comes as a list (Mistral: `text`, and `thinking` holding a list of texts)."""

    type: str = "text"
    text: str | None = None
    thinking: str | list[Piece] | None = None


class FunctionPart(msgspec.Struct, gc=False):
    """`arguments`: a JSON string, or (llama.cpp builds, Ollama-like servers) the object itself."""

    name: str | None = None
    arguments: msgspec.Raw = NOTHING


class CustomPart(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class ToolCallPart(msgspec.Struct, gc=False):
    index: int | float | str | None = None
    id: Id = None
    type: str | None = None
    function: FunctionPart | None = None
    custom: CustomPart | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds, or a whole message: both have the same members. `reasoning`: mlx_lm, newer vLLM, Ollama /v1."""

    role: str | None = None
    content: str | list[Piece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallPart] | None = None
    function_call: FunctionPart | None = None


class Choice(msgspec.Struct, gc=False):
    """`stop_reason` (vLLM): the stop string that hit, or an integer token id, which says nothing. `index` None: not told."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    stop_reason: str | int | float | None = None
    stopping_word: str | None = None


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class UsageReport(msgspec.Struct, gc=False):
    """`prompt_cache_hit_tokens` is DeepSeek's word for cached tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class Chunk(msgspec.Struct, gc=False):
    """A frame of a stream, or a whole reply. `error`, and the flat `object: "error"` form of older vLLM, are errors."""

    id: Id = None
    object: str | None = None
    created: int | float | str | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    error: msgspec.Raw = NOTHING
    type: str | None = None


_CHUNK = msgspec.json.Decoder(Chunk)
_TEXT = msgspec.json.Decoder(str)


def decode_chunk(data: bytes) -> Chunk:
    """Raises msgspec.DecodeError, UnicodeDecodeError, RecursionError. What passes can be taken apart without further errors."""
    if not data.isascii():
        data.decode()  # the one thing that msgspec does not check in fields that nobody reads
    return _CHUNK.decode(data)


def id_text(value: Id) -> str:
    """An id as text; "" when there is none."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def arguments_text(raw: msgspec.Raw) -> str:
    """Arguments as text: of a JSON string its content, of an object its JSON."""
    data = bytes(raw)
    if not data or data == b"null":
        return ""
    return _TEXT.decode(data) if data[0] == 34 else data.decode("utf-8", "replace")


def created_seconds(value: float | str | None) -> int:
    """Unix seconds; 0 when it is none."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 16 else 0
    return int(value) if value is not None and 0 <= value < 1e15 else 0


def has_error(chunk: Chunk) -> bool:
    """`"error": null` is no error (streams.md section 10)."""
    error = bytes(chunk.error)
    return (bool(error) and error != b"null") or chunk.object == "error"


class _ErrorAlone(msgspec.Struct):
    """The one thing that is read of an object that is no chunk."""

    error: msgspec.Raw = NOTHING


_ERROR_ALONE = msgspec.json.Decoder(_ErrorAlone)


def tells_error(data: bytes) -> bool:
    """Whether an object whose other members are not those of a chunk tells an error: a client would take it for one.

    Raises msgspec.DecodeError and RecursionError when it is no object.
    """
    error = bytes(_ERROR_ALONE.decode(data).error)
    return bool(error) and error != b"null"


def is_chunk(chunk: Chunk) -> bool:
    """Whether the object has anything of a chunk, or is a `ping`, which proxies send to keep a connection open."""
    known = (chunk.id, chunk.object, chunk.model, chunk.choices, chunk.usage)
    return any(member is not None for member in known) or chunk.type == "ping"
