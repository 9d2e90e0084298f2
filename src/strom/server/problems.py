"""Errors of `/platform`, as problem JSON.

Source: RFC 9457 (members and media type); RFC 9110 sections 11.6.1 and 15.5.6 (www-authenticate of a 401, allow of a 405).
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

import msgspec

from strom.core.errors import StromError
from strom.gateway.responses import id_headers
from strom.transport.types import Exchange, Headers

MEDIA_TYPE = "application/problem+json"
NEVER_CACHE = (b"cache-control", b"no-store")


class Problem(msgspec.Struct, frozen=True):
    """What went wrong, in words and in a stable `code`."""

    type: str
    """`urn:strom:problem:` and the code."""
    title: str
    """What the status means."""
    status: int
    detail: str
    """What to do about it."""
    instance: str
    """The id that this answer carries in `x-strom-trace-id`."""
    code: str
    param: str | None = None
    """The query parameter, or the path in the body, that it is about."""


def is_platform(path: str) -> bool:
    return path.startswith("/platform/") or path == "/platform"


def problem_of(error: StromError, trace_id: str) -> Problem:
    return Problem(
        f"urn:strom:problem:{error.code}",
        _title(error.status),
        error.status,
        error.message,
        trace_id,
        error.code,
        error.param,
    )


def respond_problem(exchange: Exchange, error: StromError, trace_id: str) -> None:
    headers: Headers = [(b"content-type", MEDIA_TYPE.encode()), NEVER_CACHE, *id_headers("", trace_id)]
    headers += [field for field in error.headers if field[0] == b"allow"]
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(ceil(error.retry_after_s)).encode()))
    exchange.respond(error.status, headers, msgspec.json.encode(problem_of(error, trace_id)))


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
