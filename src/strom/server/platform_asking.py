"""Requests to `/platform/v1` as typed values, or the error that names the parameter and what may have been meant.

Nothing is guessed and nothing is ignored: a parameter or a member of the body that the operation does not have is a 400, and so
is one that stands there twice. Errors repeat names, never values.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec.inspect import Metadata, StructType, UnionType, VarTupleType, type_info

from strom.core.errors import BadRequest
from strom.transport.types import Exchange, RequestHead

B = TypeVar("B", bound=msgspec.Struct)
NO_STREAM = "This endpoint does not stream: leave out 'stream'."
_OFF = ("false", "0")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_PLACED = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_SHOWN = 100
_JSON = "application/json"


def read_query(head: RequestHead, shape: type[B]) -> tuple[B, dict[str, str]]:
    """The parameters as the operation's, and as text. Raises BadRequest."""
    given: dict[str, str] = {}
    known = shape.__struct_fields__
    for name, value in parse_qsl(head.query, keep_blank_values=True):
        if name == "stream" and value.lower() in _OFF:
            continue
        if name == "stream":
            raise BadRequest(NO_STREAM, param="stream")
        if name not in known:
            raise BadRequest(_unknown("query parameter", name, known), param=name[:_SHOWN])
        if name in given:
            raise BadRequest(f"{name}: this query parameter stands there twice", param=name)
        if "\0" in value:
            raise BadRequest(f"{name}: expected text without control characters", param=name)
        given[name] = value
    lists = {
        name: [word.strip() for word in value.split(",")] for name, value in given.items() if name in _lists(shape)
    }
    try:
        return msgspec.convert({**given, **lists}, shape, strict=False), given
    except msgspec.ValidationError as error:
        raise misfit(error, "query", shape) from None


@cache
def _lists(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Parameters that are lists: with commas between."""
    kind = type_info(shape)
    assert isinstance(kind, StructType)
    return frozenset(field.name for field in kind.fields if isinstance(_bare(field.type), VarTupleType))


def refuse_streaming(exchange: Exchange) -> None:
    """Also in a body that the operation does not take. Raises BadRequest."""
    if b"stream" not in exchange.body:
        return
    try:
        body = msgspec.json.decode(exchange.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # whoever takes a body says what is wrong with it
    if isinstance(body, dict) and body.get("stream") is True:
        raise BadRequest(NO_STREAM, param="stream")


def read_body(exchange: Exchange, shape: type[B]) -> B:
    """An empty body is an empty object. Raises BadRequest."""
    _check_kind(exchange)
    try:
        return msgspec.convert(_whole(msgspec.json.decode(exchange.body or b"{}")), shape)
    except msgspec.ValidationError as error:
        raise misfit(error, "body", shape) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("The body is not valid JSON.") from None


def _check_kind(exchange: Exchange) -> None:
    """JSON, or not said. Source: RFC 8259 section 11 (no parameters; a charset has no effect)."""
    value = exchange.head.header(b"content-type")
    if value is None or not exchange.body:
        return
    kind = value.decode("latin-1").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise BadRequest(
            f"The body has to be {_JSON}: say so in content-type.", status=415, code="unsupported_media_type"
        )


def misfit(error: msgspec.ValidationError, where: str, shape: type[msgspec.Struct]) -> BadRequest:
    """What does not fit `shape`, named as its sender knows it."""
    text = str(error)
    unknown = _UNKNOWN.fullmatch(text)
    if unknown is not None:
        name, place = unknown[1], unknown[2] or ""
        full = f"{place}.{name}" if place else name
        return BadRequest(_unknown(f"member of the {where}", full, _members(shape, place), name), param=full[:_SHOWN])
    placed = _PLACED.fullmatch(text)
    words, place = (placed[1], placed[2] or "") if placed is not None else (text, "")
    missing = _MISSING.fullmatch(words)
    if missing is not None:
        place = f"{place}.{missing[1]}" if place else missing[1]
        return BadRequest(f"{place}: is missing in the {where}", param=place)
    return BadRequest(f"{place or where}: {words[:1].lower()}{words[1:]}", param=place or None)


def _unknown(what: str, shown: str, known: tuple[str, ...], name: str | None = None) -> str:
    close = get_close_matches(name or shown, known, 1)
    rest = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
    return f"unknown {what} {shown[:_SHOWN]!r}; {rest}"


def _members(shape: type[msgspec.Struct], place: str) -> tuple[str, ...]:
    """Names of the object at a place in the body."""
    kind: Any = type_info(shape)
    for part in place.split(".") if place else []:
        if not isinstance(kind, StructType):
            return ()
        kind = _bare(next((field.type for field in kind.fields if field.encode_name == part), None))
        if isinstance(kind, UnionType):
            kind = next((each for each in kind.types if isinstance(each, StructType)), None)
    return tuple(field.encode_name for field in kind.fields) if isinstance(kind, StructType) else ()


def _bare(kind: Any) -> Any:
    """Without what is said about it."""
    return kind.type if isinstance(kind, Metadata) else kind


def _whole(value: Any) -> Any:
    """5.0 is an integer. Source: JSON Schema 2020-12, Core, section 4.2.3."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case _:
            return value
