"""Errors towards Ollama clients, and what an Ollama server's error answers mean.

Out: `{"error": "text"}`, a string, with Ollama's statuses; an unknown model says `model 'x' not found`, which clients look
for. In: the string, or the object of a proxy in between; HTML and plain text are never quoted. The upstream's 401 and 403
concern our key, not the client's. Source: protocol-facts.md sections 4 and 8; ollama-python 0.6.3, ResponseError; ollama
server/routes.go (texts); cases 097, 098, 103, s41.
"""

from __future__ import annotations

import math
import re

import msgspec
from msgspec import Raw

from strom.core.errors import (
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    Overloaded,
    ProviderAuthError,
    ProviderError,
    RateLimited,
    StromError,
    TimedOut,
    TooLarge,
)
from strom.protocols.codec import EncodedError, Headers

_ALWAYS_RETRY_AFTER = frozenset((429, 503, 529))
_LONGEST_MESSAGE = 1000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NO_MODEL = re.compile(r"model\b.{0,300}not found|no such model", re.IGNORECASE | re.DOTALL)
_OVERFLOW = re.compile(
    r"(?:exceeds?|exceeded)\b.{0,40}context|context (?:length|window|size).{0,20}exceeded", re.IGNORECASE
)
_SECONDS = re.compile(rb"\d{1,9}(?:\.\d{1,9})?")


class _Details(msgspec.Struct):
    message: str | None = None


class _Body(msgspec.Struct):
    error: str | _Details | None = None


_BODY = msgspec.json.Decoder(_Body)


# --- out -------------------------------------------------------------------------------------------


def error_json(error: StromError) -> bytes:
    """`{"error": "text"}`, as a body and, with an LF, as the last line of a stream."""
    return msgspec.json.encode({"error": _worded(error)})


def encode_error(error: StromError, request_id: str) -> EncodedError:
    headers: Headers = []
    if error.retry_after_s is not None or error.status in _ALWAYS_RETRY_AFTER:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s or 1))).encode("ascii")))
    return EncodedError(error.status, headers, error_json(error))


def _worded(error: StromError) -> str:
    message = error.message
    if isinstance(error, ModelNotFound) and "not found" not in message:
        quoted = _QUOTED.search(message)
        name = f" '{quoted[1] or quoted[2] or ''}'" if quoted is not None else ""
        return f"model{name} not found. {message}"
    return message


# --- in --------------------------------------------------------------------------------------------


def decode_error(status: int, headers: Headers, body: bytes) -> StromError:
    error = _classify(status, _message_in(body), body)
    error.retry_after_s = _retry_after_seconds(headers)
    return error


def error_in_line(raw: Raw) -> StromError:
    """The error that a line of a stream, or a whole reply under status 200, stands for."""
    body = b'{"error":' + bytes(raw) + b"}"
    message = _message_in(body) or "The upstream reported an error without saying which."
    if _NO_MODEL.search(message):
        return ModelNotFound(message, param="model")
    return _overflow(message, None) or ProviderError(message)


def _message_in(body: bytes) -> str:
    """The text of an error body, "" when it is none of a known form."""
    try:
        told = _BODY.decode(body).error
    except (msgspec.DecodeError, RecursionError):
        return ""
    text = told.message if isinstance(told, _Details) else told
    return (text or "").strip()[:_LONGEST_MESSAGE]


def _classify(status: int, told: str, body: bytes) -> StromError:
    detail = body[:500].decode("utf-8", "replace")
    message = told or f"The upstream answered with status {status} and no error of a known form."
    if status in (401, 403):
        return ProviderAuthError(f"The upstream refused the gateway's credentials (status {status}).", detail=detail)
    if status == 429:
        return RateLimited(message, detail=detail)
    if status in (408, 504):
        return TimedOut(message, detail=detail)
    if status in (503, 529):
        return Overloaded(message, detail=detail)
    if 400 <= status < 500 and status != 402:  # an unpaid bill is the operator's
        return _client_error(status, told, message, detail)
    return _overflow(message, detail) or ProviderError(message, detail=detail)


def _client_error(status: int, told: str, message: str, detail: str) -> StromError:
    if _NO_MODEL.search(told):
        return ModelNotFound(message, detail=detail, param="model")
    if status in (404, 405):
        return ProviderError(f"The upstream has no such endpoint (status {status}).", detail=detail)
    if status == 413:
        return TooLarge(message, detail=detail)
    return _overflow(told, detail) or BadRequest(message, detail=detail)


def _overflow(message: str, detail: str | None) -> ContextOverflow | None:
    return ContextOverflow(message, detail=detail) if _OVERFLOW.search(message) else None


def _retry_after_seconds(headers: Headers) -> float | None:
    """Of `retry-after` in seconds; a date says nothing without a clock."""
    value = next((value for name, value in headers if name.lower() == b"retry-after"), b"").strip()
    return float(value) if _SECONDS.fullmatch(value) else None
