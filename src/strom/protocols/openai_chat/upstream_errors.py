"""What an upstream said when it refused, and whose fault that is.

A status below 400 (an error inside a stream or a 200) says nothing: then the error's own code and type decide.
Source: recordings `*/err_*`, `xllamacpp_auth/auth_*`, `vllm/err_bad_schema`; protocol-facts.md sections 1.4, 7 and 8.
"""

from __future__ import annotations

import re

import msgspec

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

_LONGEST_MESSAGE = 1000


class Told(msgspec.Struct):
    """An error in whatever shape it came. `tokens` and `limit` are llama.cpp's n_prompt_tokens and n_ctx."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str | None = None
    tokens: int | None = None
    limit: int | None = None
    textual: bool = False
    """It was a bare string (mlx_lm), without type and code."""


class _Details(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | float | None = None
    param: str | int | float | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Validation(msgspec.Struct):
    msg: str = ""
    loc: list[str | int] = []


class _Shape(msgspec.Struct):
    error: _Details | str | None = None
    detail: list[_Validation] | str | None = None
    object: str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | float | None = None
    param: str | None = None


_SHAPE = msgspec.json.Decoder(_Shape)


def read_told(body: bytes) -> Told | None:
    """None when the body is no error of a known shape."""
    try:
        shape = _SHAPE.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(shape.error, str):
        return Told(_trim(shape.error), textual=True)
    if shape.error is not None:
        return _from_details(shape.error)
    if shape.detail is not None:
        return _from_detail(shape.detail)
    if shape.message is not None:
        return _from_details(_Details(shape.message, shape.type, shape.code, shape.param))
    return None


def _from_details(details: _Details) -> Told:
    return Told(
        _trim(details.message or ""),
        details.type or "",
        "" if details.code is None else str(details.code),
        None if details.param is None else str(details.param),
        details.n_prompt_tokens,
        details.n_ctx,
    )


def _from_detail(detail: list[_Validation] | str) -> Told:
    if isinstance(detail, str):
        return Told(_trim(detail), textual=True)
    lines = [": ".join(filter(None, (".".join(map(str, item.loc)), item.msg))) for item in detail]
    return Told(_trim("; ".join(lines)), "invalid_request_error")


def _trim(message: str) -> str:
    """Without llama_cpp.server's trailing `File "…", line n` (recording llama_cpp_python/err_bad_type): a path of the host."""
    return message.partition('\n\n  File "')[0].strip()[:_LONGEST_MESSAGE]


# --- which error it is -----------------------------------------------------------------------------

_OVERFLOW = re.compile(
    r"maximum context length|context[_ ](?:length|window|size)[_ ]?exceeded|exceed_context_size"
    r"|exceeds? the (?:available |model'?s? )?(?:maximum )?context|prompt is too long|context length of only",
    re.IGNORECASE,
)
_LIMITS = (
    re.compile(r"(?:context length|context window|context)\D{0,40}?(\d+)(?: tokens)?", re.IGNORECASE),
    re.compile(r"> *(\d+)"),
)
_TOKENS = (re.compile(r"(?:requested|resulted in|contains|has|is too long:|request \()\D{0,30}?(\d+)", re.IGNORECASE),)
_NO_MODEL = re.compile(
    r"model\b.{0,300}(?:not found|does ?n[o']t exist|not exist|not available|is unknown)|no such model|unknown model"
    r"|cached snapshot folder|repository not found|pinned to",
    re.IGNORECASE | re.DOTALL,
)
_NO_PATH = re.compile(r"^(?:not found|file not found|method not allowed)?\.?$", re.IGNORECASE)
_POLICY = re.compile(r"content_(?:filter|policy)", re.IGNORECASE)

_WORDS: tuple[tuple[str, int], ...] = (
    ("insufficient_quota", 429),
    ("rate_limit", 429),
    ("too_many_requests", 429),
    ("authentication", 401),
    ("invalid_api_key", 401),
    ("unauthorized", 401),
    ("permission", 403),
    ("not_found", 404),
    ("notfound", 404),
    ("invalid_request", 400),
    ("badrequest", 400),
    ("bad request", 400),
    ("validation", 400),
    ("exceed_context_size", 400),
    ("context_length", 400),
    ("content_filter", 400),
    ("content_policy", 400),
    ("overloaded", 503),
    ("slow_down", 503),
    ("unavailable", 503),
    ("timeout", 504),
)


def classify(status: int, told: Told | None, body: bytes) -> StromError:
    detail = body[:500].decode("utf-8", "replace")
    if told is None:
        told = Told(_unquotable(status, body))
    if status < 400:
        status = _status_of(told)
    if status in (401, 403):
        return ProviderAuthError(f"The upstream refused the gateway's credentials (status {status}).", detail=detail)
    message = told.message or f"The upstream answered with status {status} and no message."
    if status == 429:
        return _rate_limited(told, message, detail)
    if status in (408, 504):
        return TimedOut(message, detail=detail)
    if status in (503, 529):
        return Overloaded(message, detail=detail)
    if 400 <= status < 500 and status != 402:  # an unpaid bill is the operator's
        return _client_error(status, told, message, detail)
    return _overflow(told, message, detail) or ProviderError(message, detail=detail)


def _rate_limited(told: Told, message: str, detail: str) -> RateLimited:
    error = RateLimited(message, detail=detail, code=_own_code(told) or None)
    if "insufficient_quota" in (told.code, told.type):
        error.retryable = False  # waiting does not help: protocol-facts.md section 1.4
    return error


def _client_error(status: int, told: Told, message: str, detail: str) -> StromError:
    overflow = _overflow(told, message, detail)
    if overflow is not None:
        return overflow
    if _is_missing_model(status, told):
        return ModelNotFound(message, detail=detail, param="model")
    if status in (404, 405) and (_NO_PATH.match(told.message) or told.message.startswith(_UNQUOTED)):
        return ProviderError(f"The upstream has no such endpoint (status {status}).", detail=detail)
    if status == 413:
        return TooLarge(message, detail=detail)
    if _POLICY.search(told.code) or _POLICY.search(told.type):
        return ContentPolicy(message, detail=detail, param=told.param)
    return BadRequest(message, detail=detail, param=told.param, code=_own_code(told) or None)


def _is_missing_model(status: int, told: Told) -> bool:
    return told.code == "model_not_found" or (status in (400, 404) and bool(_NO_MODEL.search(told.message)))


def _overflow(told: Told, message: str, detail: str) -> ContextOverflow | None:
    words = f"{told.code} {told.type} {told.message}"
    if not _OVERFLOW.search(words):
        return None
    tokens = told.tokens if told.tokens is not None else _first_number(_TOKENS, told.message)
    limit = told.limit if told.limit is not None else _first_number(_LIMITS, told.message)
    return ContextOverflow(message, tokens=tokens, limit=limit, detail=detail)


def _first_number(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None and len(found[1]) < 16:
            return int(found[1])
    return None


def _status_of(told: Told) -> int:
    """Of an error that came without a status: its integer code (llama.cpp, vLLM), or what its words say."""
    if told.code.isdecimal() and len(told.code) == 3 and 400 <= int(told.code) < 600:
        return int(told.code)
    words = f"{told.code} {told.type}".lower()
    return next((status for word, status in _WORDS if word in words), 502)


def _own_code(told: Told) -> str:
    """The upstream's code where it is a word; numbers are statuses in disguise."""
    return "" if told.code.replace(".", "").isdecimal() else told.code


_UNQUOTED = "The upstream answered with "


def _unquotable(status: int, body: bytes) -> str:
    head = body[:200].lstrip().lower()
    what = "no body" if not head else "HTML" if head.startswith(b"<") else "no error of a known form"
    return f"{_UNQUOTED}{what} (status {status})."


def retry_after_seconds(headers: Headers) -> float | None:
    """Of `retry-after-ms` or `retry-after` in seconds; a date is left to the header itself."""
    found = {name.lower(): value for name, value in headers}
    for name, scale in ((b"retry-after-ms", 1000.0), (b"retry-after", 1.0)):
        value = found.get(name, b"").strip()
        if re.fullmatch(rb"\d{1,9}(?:\.\d{1,9})?", value):
            return float(value) / scale
    return None
