"""What an upstream said when it refused or broke off, and whose fault that is.

Seen shapes: OpenAI's `{"error": {message, type, code, param}}`, llama.cpp's (integer code, n_prompt_tokens, n_ctx), a
bare string, FastAPI's `detail`, the flat `error` event of this protocol (`code`, `message` beside `type: "error"`),
plain text, HTML (never quoted). An error inside a stream has no status: its code and type decide. The upstream's 401
and 403 concern our key, not the client's. Source: protocol-facts.md sections 1.4, 2.5, 7 and 8; recordings */err_*,
*/responses_stream.
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
from strom.protocols.codec import Headers
from strom.protocols.openai_responses.schema import Loose, number, present, read, word

LONGEST_MESSAGE = 1000
KEPT_HEADERS = (b"x-ratelimit-", b"retry-after")


class Told(msgspec.Struct, frozen=True):
    """An error in whatever shape it came."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str | None = None
    tokens: int | None = None
    limit: int | None = None

    @property
    def words(self) -> str:
        return f"{self.code} {self.type}".lower()


class _Shape(msgspec.Struct, frozen=True):
    error: Raw = Raw()
    detail: Raw = Raw()
    message: Loose = None
    type: Loose = None
    code: Loose = None
    param: Loose = None
    n_prompt_tokens: Loose = None
    n_ctx: Loose = None


class _Validation(msgspec.Struct, frozen=True):
    msg: str = ""
    loc: list[str | int] = []


_SHAPE = msgspec.json.Decoder(_Shape)
_VALIDATIONS = msgspec.json.Decoder(list[_Validation])
_TEXT = msgspec.json.Decoder(str)


def decode_error(status: int, headers: Headers, body: bytes) -> StromError:
    """The error that a non-2xx answer, or an error in a 200, stands for."""
    error = _classify(status, _read_told(body), body)
    lower = [(name.lower(), value) for name, value in headers]
    error.retry_after_s = _retry_after_s(dict(lower))
    if isinstance(error, RateLimited):
        error.headers = [(name, value) for name, value in lower if name.startswith(KEPT_HEADERS)]
    return error


def error_in_stream(data: bytes) -> StromError:
    """The error that an event, or the `error` member of a failed response, stands for."""
    told = _read_told(data)
    if not told.message and not told.words.strip():
        told = Told(message=_plain(data) or "The upstream reported an error without a message.")
    return _classify(0, told, data)


# --- what it says --------------------------------------------------------------------------------


def _read_told(data: bytes) -> Told:
    try:
        shape = read(_SHAPE, data)
    except ValueError:
        return Told(_text(data))
    if present(shape.error):
        inner = _read_told(bytes(shape.error))
        return inner if inner.message or inner.words.strip() else _told(shape)
    if present(shape.detail):
        return Told(_detail(shape.detail), "invalid_request_error")
    return _told(shape)


def _told(shape: _Shape) -> Told:
    code = number(shape.code)
    kind = word(shape.type)
    return Told(
        word(shape.message)[:LONGEST_MESSAGE],
        "" if kind == "error" else kind,
        word(shape.code) if code is None else str(code),
        word(shape.param) or None,
        number(shape.n_prompt_tokens),
        number(shape.n_ctx),
    )


def _detail(raw: Raw) -> str:
    try:
        lines = [f"{'.'.join(map(str, item.loc))}: {item.msg}" for item in read(_VALIDATIONS, raw)]
    except ValueError:
        return _text(bytes(raw))
    return "; ".join(lines)[:LONGEST_MESSAGE]


def _text(data: bytes) -> str:
    """A JSON string's content; other JSON and plain text are quoted where they can be."""
    try:
        return read(_TEXT, data)[:LONGEST_MESSAGE]
    except ValueError:
        return ""


def _plain(data: bytes) -> str:
    """Plain text; HTML is an intermediary's page, JSON of an unknown shape no message."""
    text = data[: LONGEST_MESSAGE * 4].decode("utf-8", "replace").strip()
    return "" if text.startswith(("{", "[")) or ("<" in text and ">" in text) else text[:LONGEST_MESSAGE]


# --- which error it is ---------------------------------------------------------------------------

_STATUSES: tuple[tuple[str, int], ...] = (
    ("insufficient_quota", 429),
    ("rate_limit", 429),
    ("authentication", 401),
    ("invalid_api_key", 401),
    ("permission", 403),
    ("not_found", 404),
    ("notfound", 404),
    ("invalid_request", 400),
    ("invalid_prompt", 400),
    ("badrequest", 400),
    ("bad request", 400),
    ("validation", 400),
    ("context", 400),
    ("content_filter", 400),
    ("content_policy", 400),
    ("overloaded", 503),
    ("slow_down", 503),
    ("unavailable", 503),
    ("timeout", 504),
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|exceeds? the (?:available )?context"
    r"|context window|prompt is too long",
    re.IGNORECASE,
)
_TOKENS = re.compile(r"(?:request \(|requested |resulted in |contains |has |too long: )(\d{1,15})", re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:context length (?:is|of)(?: only)? |context size \(|context window of |> ?)(\d{1,15})", re.IGNORECASE
)
_NO_MODEL = re.compile(
    r"model\b.{0,300}(?:not found|does not exist|not available)|pinned to|unknown model", re.I | re.S
)
_NO_PATH = frozenset(("", "not found", "method not allowed", "file not found", "404 page not found"))
_PLAIN_CLASSES: dict[int, type[StromError]] = {
    408: TimedOut,
    413: TooLarge,
    503: Overloaded,
    504: TimedOut,
    529: Overloaded,
}


def _classify(status: int, told: Told, body: bytes) -> StromError:
    detail = body[:500].decode("utf-8", "replace")
    if status < 400:
        status = _status_of(told)
    message = told.message or _plain(body) or f"The upstream answered with status {status} and no explanation."
    if status in (401, 403):
        return ProviderAuthError(f"The upstream refused the gateway's credentials (status {status}).", detail=detail)
    if status == 429:
        return _rate_limited(told, message, detail)
    if _OVERFLOW.search(f"{told.words} {message}") and (status < 500 or status in (500, 502)):
        tokens = told.tokens if told.tokens is not None else _first_number(_TOKENS, message)
        limit = told.limit if told.limit is not None else _first_number(_LIMIT, message)
        return ContextOverflow(message, tokens=tokens, limit=limit, detail=detail)
    if status in _PLAIN_CLASSES:
        return _PLAIN_CLASSES[status](message, detail=detail)
    if 400 <= status < 500 and status != 402:  # an unpaid bill is the operator's
        return _client_error(status, told, message, detail)
    return ProviderError(message, detail=detail)


def _rate_limited(told: Told, message: str, detail: str) -> RateLimited:
    error = RateLimited(message, detail=detail, code=_own_code(told))
    if "insufficient_quota" in told.words:
        error.retryable = False  # waiting does not help: protocol-facts.md section 1.4
    return error


def _client_error(status: int, told: Told, message: str, detail: str) -> StromError:
    if told.code == "model_not_found" or (status in (400, 404) and _NO_MODEL.search(message)):
        return ModelNotFound(message, detail=detail, param="model")
    if status in (404, 405) and (told.message or _plain(detail.encode())).strip(" .").lower() in _NO_PATH:
        return ProviderError(
            f"The upstream has no Responses endpoint at this address (status {status}).",
            detail=detail,
            code="upstream_no_endpoint",
        )
    if "content_filter" in told.words or "content_policy" in told.words:
        return ContentPolicy(message, detail=detail, param=told.param)
    return BadRequest(message, detail=detail, param=told.param, code=_own_code(told))


def _status_of(told: Told) -> int:
    """Of an error that came without one: its integer code, or what its words say."""
    if told.code.isdecimal() and len(told.code) == 3 and 400 <= int(told.code) < 600:
        return int(told.code)
    return next((status for part, status in _STATUSES if part in told.words), 502)


def _own_code(told: Told) -> str | None:
    """The upstream's code where it is a word; numbers are statuses in disguise."""
    return told.code if told.code and not told.code.isdecimal() else None


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found is not None else None


def _retry_after_s(headers: dict[bytes, bytes]) -> float | None:
    """Of `retry-after-ms`, or `retry-after` in seconds; a date is left to the header itself."""
    for name, scale in ((b"retry-after-ms", 1000.0), (b"retry-after", 1.0)):
        value = headers.get(name, b"").strip()
        if re.fullmatch(rb"\d{1,9}(?:\.\d{1,9})?", value):
            return float(value) / scale
    return None
