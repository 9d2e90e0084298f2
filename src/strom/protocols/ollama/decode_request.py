"""Requests of Ollama clients → `Request`.

Streaming is the default. Calls and results have no ids with most clients: calls get one from their place (so the same history
gives the same ids every turn), results find theirs by `tool_name`, in the order of the calls. Consecutive `tool` messages
become one user message of results. /api/generate is a conversation of one system and one user message; what only it knows
(suffix, template, raw, context …) stays among the extras. Unknown options are extras named `options.NAME`. No messages, or no
prompt: a wish to load the model; `Request.messages` is empty then (load.py).
Source: protocol-facts.md sections 4, 6.3, 6.9; ollama-python 0.6.3, _types.py; clients/requests/ollama_python.*.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import Json, Message, OpaquePart, Reasoning, Request, ResponseFormat, Sampling, TextPart, Tool
from strom.protocols.ollama import schema
from strom.protocols.ollama.decode_history import HistoryReader, images
from strom.protocols.ollama.schema import NAME
from strom.wire.splice import split

_CHAT = msgspec.json.Decoder(schema.ChatIn)
_GENERATE = msgspec.json.Decoder(schema.GenerateIn)
_TOOL = msgspec.json.Decoder(schema.ToolIn)
_TYPED = msgspec.json.Decoder(schema.TypedIn)
_COMMON = frozenset(("model", "format", "options", "stream", "think", "keep_alive", "logprobs", "top_logprobs"))
_CHAT_MEMBERS = _COMMON | {"messages", "tools"}
_GENERATE_MEMBERS = _COMMON | {"prompt", "system", "images"}
_NO_SUFFIX = (b'""', b"false", b"[]")
"""Values of /api/generate's members that ask for nothing."""
OPTION = "options."
_OPTIONS = frozenset(schema.OptionsIn.__struct_fields__)
Wire = TypeVar("Wire", bound=schema.CommonIn)


def decode_chat(body: bytes) -> Request:
    """Raises BadRequest."""
    wire = _read(_CHAT, body)
    messages = tuple(HistoryReader().read(wire.messages or []))
    tools = tuple(_tool(at, raw) for at, raw in enumerate(wire.tools or ()))
    _require_utf8(body)
    members = split(body)
    extras = [pair for pair in members.items() if pair[0] not in _CHAT_MEMBERS]
    return _request(wire, messages, tools, _extras(extras, members))


def decode_generate(body: bytes) -> Request:
    """Raises BadRequest."""
    wire = _read(_GENERATE, body)
    _require_utf8(body)
    members = split(body)
    messages: list[Message] = []
    if wire.prompt or wire.images or wire.suffix:
        text = (TextPart(wire.prompt),) if wire.prompt else ()
        messages.append(Message("user", (*text, *images(wire.images))))
        if wire.system:
            messages.insert(0, Message("system", (TextPart(wire.system),)))
    extras = [pair for pair in members.items() if pair[0] not in _GENERATE_MEMBERS and pair[1] not in _NO_SUFFIX]
    return _request(wire, tuple(messages), (), _extras(extras, members))


def _read(decoder: msgspec.json.Decoder[Wire], body: bytes) -> Wire:
    try:
        wire = decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"The request body is not valid: {error}") from None
    if not wire.model:
        raise BadRequest("model is required", param="model")
    return wire


def _require_utf8(body: bytes) -> None:
    """Names, and members that nobody reads, are not checked by the decoder; a relay would send them on."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request body is not valid: {error}") from None


def _request(
    wire: schema.CommonIn, messages: tuple[Message, ...], tools: tuple[Tool, ...], extras: tuple[tuple[str, Json], ...]
) -> Request:
    options = wire.options or schema.OptionsIn()
    stop = options.stop or ()
    return Request(
        NAME,
        wire.model,
        messages,
        tools=tools,
        max_output_tokens=_limit(options.num_predict),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        sampling=_sampling(wire, options),
        response_format=_format(wire.format),
        reasoning=None if wire.think is None else _reasoning(wire),
        stream=wire.stream is not False,
        keep_alive=_json(wire.keep_alive),
        extras=extras,
    )


# --- fields ----------------------------------------------------------------------------------------


def _limit(num_predict: float | None) -> int | None:
    """-1 (no limit) and -2 (fill the context) are no limits."""
    return int(num_predict) if num_predict is not None and num_predict > 0 else None


def _sampling(wire: schema.CommonIn, options: schema.OptionsIn) -> Sampling:
    return Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=None if options.top_k is None else int(options.top_k),
        min_p=options.min_p,
        seed=None if options.seed is None else int(options.seed),
        frequency_penalty=options.frequency_penalty,
        presence_penalty=options.presence_penalty,
        repetition_penalty=options.repeat_penalty,
        logprobs=wire.logprobs,
        top_logprobs=wire.top_logprobs,
    )


def _format(raw: Raw) -> ResponseFormat | None:
    """`"json"`, a JSON schema, or nothing ("" and null)."""
    data = bytes(raw)
    if data in (b"", b"null", b'""'):
        return None
    if data == b'"json"':
        return ResponseFormat("json_object")
    if data.startswith(b"{"):
        return ResponseFormat("json_schema", schema=text_of(raw))
    raise BadRequest('format must be "json" or a JSON schema', param="format")


def _reasoning(wire: schema.CommonIn) -> Reasoning:
    """`think`: a switch, or a level."""
    if isinstance(wire.think, str):
        return Reasoning(enabled=True, effort=wire.think)
    return Reasoning(enabled=wire.think)


def _tool(at: int, raw: Raw) -> Tool:
    try:
        kind = _TYPED.decode(raw).type or "function"
        if kind != "function":
            return Tool(kind, opaque=OpaquePart(NAME, kind, Json(text_of(raw))))
        function = _TOOL.decode(raw).function
    except msgspec.DecodeError as error:
        raise BadRequest(f"tools[{at}] is not valid: {error}", param="tools") from None
    if function is None or not function.name:
        raise BadRequest(f"tools[{at}] has no function with a name", param="tools")
    return Tool(function.name, function.description or "", text_of(function.parameters))


def _json(raw: Raw) -> Json | None:
    text = text_of(raw)
    return Json(text) if text else None


def _extras(unplaced: Iterable[tuple[str, bytes]], members: Mapping[str, bytes]) -> tuple[tuple[str, Json], ...]:
    """Members without a canonical place, and the same of the options. What is null or asks for nothing is left out."""
    options = members.get("options", b"null")
    inner = split(options) if options.startswith(b"{") else {}
    pairs = [*unplaced, *((OPTION + name, value) for name, value in inner.items() if _is_extra_option(name, value))]
    return tuple((name, Json(value.decode("utf-8", "replace"))) for name, value in pairs if value != b"null")


def _is_extra_option(name: str, value: bytes) -> bool:
    if name == "num_predict":  # -1 is what Ollama does by itself
        return value.startswith(b"-") and value != b"-1"
    return name not in _OPTIONS


def text_of(raw: Raw) -> str:
    """A value's JSON text; "" where there is none."""
    data = bytes(raw)
    return "" if data == b"null" else data.decode("utf-8", "replace")
