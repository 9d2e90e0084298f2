"""Errors in Anthropic's words, and any upstream's error answer on this path in ours.

Servers that speak this protocol answer errors in several shapes: Anthropic's own, OpenAI's (llama.cpp, vLLM), FastAPI's
`detail`, plain text, HTML (never quoted), nothing. Source: protocol-facts.md sections 3.4 and 8; recordings vllm/anthropic_err,
mlx_lm/anthropic_stream, transformers_tiny/anthropic_stream.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from strom.core.errors import (
    BadRequest,
    ContentPolicy,
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
from strom.protocols.anthropic_messages import schema
from strom.protocols.codec import EncodedError, Headers

LONGEST_MESSAGE = 2000
KEPT_HEADERS = (b"anthropic-ratelimit-", b"retry-after")
_ENCODE = schema.ENCODER.encode

# --- ours → Anthropic's ---------------------------------------------------------------------------

_TYPES: dict[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
DEFAULT_RETRY_S = 5.0


def encode_error(error: StromError, request_id: str) -> EncodedError:
    status = _status(error)
    headers = list(error.headers)
    if not any(name == b"retry-after" for name, _ in headers) and status in (429, 503, 529):
        seconds = error.retry_after_s if error.retry_after_s is not None else DEFAULT_RETRY_S
        headers.append((b"retry-after", str(max(1, -int(-seconds // 1))).encode()))
    return EncodedError(status, headers, error_body(error, request_id))


def error_body(error: StromError, request_id: str) -> bytes:
    """The body of an error answer, and the data of an in-band error event."""
    wire = {"type": error_type(error), "message": error_message(error)}
    return _ENCODE({"type": "error", "error": wire, "request_id": request_id})


def error_type(error: StromError) -> str:
    status = _status(error)
    return _TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def error_message(error: StromError) -> str:
    """Claude Code starts its compaction on exactly "prompt is too long: N tokens > M maximum" (facts 3.4)."""
    if not isinstance(error, ContextOverflow):
        return error.message
    if error.tokens is not None and error.limit is not None:
        return f"prompt is too long: {error.tokens} tokens > {error.limit} maximum"
    return f"prompt is too long: {error.message}"


def _status(error: StromError) -> int:
    return 529 if isinstance(error, Overloaded) else error.status


# --- an upstream's → ours -------------------------------------------------------------------------


class _Error(msgspec.Struct, frozen=True):
    """`error` of Anthropic's or OpenAI's shape."""

    message: Raw = Raw()
    type: str | None = None
    code: str | int | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Body(msgspec.Struct, frozen=True):
    error: Raw = Raw()
    detail: Raw = Raw()
    message: Raw = Raw()


_BODY = msgspec.json.Decoder(_Body)
_ERROR = msgspec.json.Decoder(_Error)
_TEXT = msgspec.json.Decoder(str)
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    "exceed_context_size_error": 400,
    "unavailable_error": 503,
}
"""Status of an error that came without one, inside a stream or a 200."""
_OVERFLOW = (
    re.compile(r"prompt is too long: (?P<tokens>\d+) tokens > (?P<limit>\d+) maximum"),
    re.compile(r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens"),
    re.compile(r"maximum context length is (?P<limit>\d+) tokens.*?(?P<tokens>\d+)", re.DOTALL),
)
_OVERFLOW_WORDS = ("prompt is too long", "context length", "context window", "context size", "context_length_exceeded")


def decode_error(status: int, headers: Headers, body: bytes) -> StromError:
    """The error a non-2xx answer stands for."""
    message, found = _read_body(body)
    error = _error_for(status, message, found)
    _take_headers(error, headers)
    error.detail = f"upstream answered {status}: {body[:LONGEST_MESSAGE].decode('utf-8', 'replace')}"
    return error


def decode_stream_error(raw: Raw | bytes) -> StromError:
    """The error an `error` member stands for: inside a stream, or in a body with status 200."""
    message, found = _read_error(raw)
    if found.code is not None and str(found.code).isdigit() and 400 <= int(found.code) < 600:
        status = int(found.code)
    else:
        status = _STATUSES.get(found.type or "", 500)
    return _error_for(status, message or "The upstream reported an error without a message.", found)


def _read_body(body: bytes) -> tuple[str, _Error]:
    try:
        wire = schema.read(_BODY, body)
    except ValueError:
        return _plain(body), _Error()
    if schema.present(wire.error):
        return _read_error(wire.error)
    return _text(wire.message) or _text(wire.detail), _Error()


def _read_error(raw: Raw | bytes) -> tuple[str, _Error]:
    try:
        found = schema.read(_ERROR, raw)
    except ValueError:
        return _text(Raw(bytes(raw))), _Error()
    return _text(found.message), found


def _text(raw: Raw) -> str:
    """A JSON value as text: a string's content, else its JSON."""
    if not schema.present(raw):
        return ""
    try:
        return schema.read(_TEXT, raw)[:LONGEST_MESSAGE]
    except ValueError:
        return bytes(raw).decode("utf-8", "replace")[:LONGEST_MESSAGE]


def _plain(body: bytes) -> str:
    """A plain text body; HTML is an intermediary's page and never quoted."""
    text = body[: LONGEST_MESSAGE * 4].decode("utf-8", "replace").strip()
    return "" if "<" in text and ">" in text else text[:LONGEST_MESSAGE]


def _generic(status: int) -> str:
    return f"The upstream answered with status {status} and no explanation."


_CLASSES: dict[int, type[StromError]] = {
    400: BadRequest,
    404: ModelNotFound,
    408: TimedOut,
    413: TooLarge,
    422: BadRequest,
    429: RateLimited,
    503: Overloaded,
    504: TimedOut,
    529: Overloaded,
}
_NO_ENDPOINT = frozenset(("", "not found", "404 not found", "404 page not found"))


def _error_for(status: int, message: str, found: _Error) -> StromError:
    if status in (400, 413, 422, 500) and (overflow := _overflow(message, found)) is not None:
        return overflow
    if status in (401, 403):
        return ProviderAuthError("The upstream refused the gateway's credentials.")
    if status in (400, 422) and "content_filter" in (found.code, found.type):
        return ContentPolicy(message)
    if status == 404 and message.strip(" .\n").lower() in _NO_ENDPOINT:
        return ProviderError("The upstream has no Messages endpoint at this address.", code="upstream_no_endpoint")
    return _CLASSES.get(status, ProviderError)(message or _generic(status))


def _overflow(message: str, found: _Error) -> ContextOverflow | None:
    for pattern in _OVERFLOW:
        match = pattern.search(message)
        if match is not None:
            return ContextOverflow(message, tokens=int(match["tokens"]), limit=int(match["limit"]))
    exceeded = found.type == "exceed_context_size_error" or found.code == "context_length_exceeded"
    if exceeded or any(words in message.lower() for words in _OVERFLOW_WORDS):
        return ContextOverflow(message, tokens=found.n_prompt_tokens, limit=found.n_ctx)
    return None


def _take_headers(error: StromError, headers: Headers) -> None:
    for name, value in headers:
        lower = name.lower()
        if lower == b"retry-after":
            error.retry_after_s = _seconds(value)
        elif lower.startswith(KEPT_HEADERS):
            error.headers.append((lower, value))


def _seconds(value: bytes) -> float | None:
    """Retry-After in seconds; a date is not understood without a clock, and left out."""
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 * 7 else None
