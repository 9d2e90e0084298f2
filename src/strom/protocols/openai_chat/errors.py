"""Errors towards Chat clients, and what an upstream's error answers mean.

Out: `{"error": {message, type, param, code}}` with OpenAI's statuses. In: the shapes real servers use, all of them:
OpenAI's object, llama.cpp's (integer code, `n_prompt_tokens`, `n_ctx`), vLLM's flat `object: "error"`, mlx_lm's string, and
FastAPI's `detail`. HTML and plain text are never quoted. The upstream's 401 and 403 concern our key, not the client's.
Source: protocol-facts.md sections 1.4, 7 and 8; product.md section 5; recordings `*/err_*`.
"""

from __future__ import annotations

import math

import msgspec

from strom.core.errors import RateLimited, StromError
from strom.protocols.codec import EncodedError, Headers
from strom.protocols.openai_chat.upstream_errors import Told, classify, read_told, retry_after_seconds

KEPT_HEADERS = (b"x-ratelimit-", b"retry-after")
_TYPES = {
    401: "invalid_request_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_ALWAYS_RETRY_AFTER = frozenset((429, 503, 529))
_PLAIN_CODES = frozenset(("invalid_request",))  # says no more than the type: OpenAI sends null there


class _Body(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class _Envelope(msgspec.Struct):
    error: _Body


def error_json(error: StromError) -> bytes:
    """`{"error": …}`, as a body and as the data of an in-band error."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    if error.code == "insufficient_quota":  # OpenAI's word for it in both places
        kind = error.code
    code = None if error.code in _PLAIN_CODES else error.code
    return msgspec.json.encode(_Envelope(_Body(error.message, kind, error.param, code)))


def encode_error(error: StromError, request_id: str) -> EncodedError:
    """`request_id` goes out as a header, which the caller adds."""
    headers: Headers = [pair for pair in error.headers if pair[0].startswith(KEPT_HEADERS)]
    told = any(name == b"retry-after" for name, _ in headers)
    if not told and (error.retry_after_s is not None or error.status in _ALWAYS_RETRY_AFTER):
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s or 1))).encode("ascii")))
    return EncodedError(error.status, headers, error_json(error))


def decode_error(status: int, headers: Headers, body: bytes) -> StromError:
    told = read_told(body)
    error = classify(status, told, body)
    error.retry_after_s = retry_after_seconds(headers)
    if isinstance(error, RateLimited):
        error.headers = [(name.lower(), value) for name, value in headers if name.lower().startswith(KEPT_HEADERS)]
    return error


def error_in_frame(data: bytes) -> StromError:
    """The error that a frame of a stream, or a body under status 200, stands for."""
    told = read_told(data)
    if told is None:  # `event: error` with plain words
        told = Told(message=data.decode("utf-8", "replace").strip())
    return classify(200, told, data)
