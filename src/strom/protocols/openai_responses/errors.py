"""Errors towards Responses clients: as an HTTP answer, and inside a stream.

In-band an `error` event goes out in both shapes at once (the SDKs raise on the nested one only, types know the flat
one), then `response.failed`, whose `error` is what Codex reads. Codes that clients act on (rate_limit_exceeded,
context_length_exceeded, insufficient_quota) are ours as well. Source: protocol-facts.md rules 9 and 14, sections 1.4,
2.5, 8.
"""

from __future__ import annotations

import math

from strom.core.errors import StromError
from strom.protocols.codec import EncodedError, Headers
from strom.protocols.openai_responses.schema import ENCODE
from strom.protocols.openai_responses.upstream_errors import KEPT_HEADERS

_TYPES = {
    401: "invalid_request_error",
    403: "permission_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_ALWAYS_RETRY_AFTER = frozenset((429, 503, 529))  # without it a 429 is fatal in Codex
_SAYS_NO_MORE = frozenset(("invalid_request",))  # than the type does: OpenAI sends null there


def error_type(error: StromError) -> str:
    if error.code == "insufficient_quota":  # OpenAI's word for it in both places
        return error.code
    return _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")


def error_object(error: StromError) -> dict[str, str | None]:
    code = None if error.code in _SAYS_NO_MORE else error.code
    return {"message": error.message, "type": error_type(error), "param": error.param, "code": code}


def encode_error(error: StromError, request_id: str) -> EncodedError:
    """`request_id` goes out as a header, which the caller adds."""
    headers: Headers = [field for field in error.headers if field[0].startswith(KEPT_HEADERS)]
    told = any(name == b"retry-after" for name, _ in headers)
    if not told and (error.retry_after_s is not None or error.status in _ALWAYS_RETRY_AFTER):
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after_s or 1))).encode("ascii")))
    return EncodedError(error.status, headers, ENCODE({"error": error_object(error)}))


def response_error(error: StromError) -> dict[str, str]:
    """`error` of a failed response: both members are demanded."""
    return {"code": error.code, "message": error.message}


def error_event(error: StromError, number: int) -> bytes:
    """The data of the in-band `error` event, flat and nested in one object."""
    nested = error_object(error)
    nested["code"] = error.code
    return ENCODE(
        {
            "type": "error",
            "sequence_number": number,
            "code": error.code,
            "message": error.message,
            "param": error.param,
            "error": nested,
        }
    )
