"""Writing the heads of HTTP/1.1 messages, the same way for responses and upstream requests.

Invariant: what a caller gives can neither add a line to a head nor change its framing. A name that is no token, a name
the transport sets itself, or a value with CR, LF or NUL raises ValueError before a byte is sent.

Source: RFC 9110 section 5 (fields), RFC 9112 sections 3 to 6 (start lines, framing).
"""

from __future__ import annotations

import functools
import re
from http import HTTPStatus

import msgspec

from strom.transport.types import Headers, Origin, OutgoingRequest

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST = re.compile(rb"[!-~\x80-\xff]+")
_TARGET = re.compile(r"[!-\"$-~]+")
_OWNED = frozenset(
    {b"connection", b"content-length", b"host", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}

BODILESS_STATUSES = frozenset({204, 304})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

_NUL, _LF, _CR = b"\0\n\r"
"""As numbers, which are sought in bytes far faster than bytes are."""

_MAX_TEMPLATES = 1024
_templates: dict[tuple[bytes, ...], bytes] = {}
"""Field lines without their values, by names found good once: a gateway writes the same few lists of names all its life."""


def _new_template(names: tuple[bytes, ...]) -> bytes:
    for name in names:
        if _TOKEN.fullmatch(name) is None:
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in _OWNED:
            raise ValueError(f"header {name!r} is the transport's own")
    template = b"".join(name.replace(b"%", b"%%") + b": %b\r\n" for name in names)
    if len(_templates) < _MAX_TEMPLATES:
        _templates[names] = template
    return template


def _field_lines(headers: Headers) -> bytes:
    if not headers:
        return b""
    names, values = zip(*headers, strict=True)
    template = _templates.get(names) or _new_template(names)
    lines: bytes = template % values
    told = b"".join(values)
    if _LF in told or _CR in told or _NUL in told:
        raise ValueError("a header value holds CR, LF or NUL")
    return lines


def check_headers(headers: Headers) -> None:
    """Raises ValueError for headers that no response may have."""
    _field_lines(headers)


def _other_status_line(status: int) -> bytes:
    if not 200 <= status <= 999:
        raise ValueError(f"not a final status: {status}")
    return b"HTTP/1.1 %d \r\n" % status


def response_head(status: int, headers: Headers, own: bytes) -> bytes:
    """`own` are the transport's lines (framing, connection), each with its CRLF."""
    start = _STATUS_LINES.get(status) or _other_status_line(status)
    return b"%b%b%b\r\n" % (start, _field_lines(headers), own)


@functools.lru_cache(256)
def _request_line(prefix: bytes, method: str, target: str) -> bytes:
    """Cached, since a gateway asks its upstreams for a handful of targets."""
    if _TARGET.fullmatch(target) is None or _TOKEN.fullmatch(method.encode()) is None:
        raise ValueError("not a request method or target")
    return b"%b %b%b HTTP/1.1\r\n" % (method.encode(), prefix, target.encode())


def request_head(route: RequestRoute, request: OutgoingRequest) -> bytes:
    """The head of a request with content-length where a body is sent or expected."""
    method = request.method
    start = _request_line(route.target_prefix, method, request.target)
    lines = _field_lines(request.headers)
    if request.body or method in _WITH_BODY:
        return b"%b%bcontent-length: %d\r\n%b\r\n" % (start, lines, len(request.body), route.own_lines)
    return b"%b%b%b\r\n" % (start, lines, route.own_lines)


class RequestRoute(msgspec.Struct, frozen=True):
    """What all requests to one origin have in common: the transport's own lines, and what an http proxy needs before
    the target."""

    own_lines: bytes
    target_prefix: bytes = b""

    @classmethod
    def to(cls, origin: Origin, *, proxy_lines: bytes | None = None) -> RequestRoute:
        """`proxy_lines`: header lines for an http proxy, maybe none; None: the origin itself reads the request."""
        authority = origin.authority
        if _HOST.fullmatch(authority) is None:
            raise ValueError("not a host name")
        own = b"host: %b\r\nconnection: keep-alive\r\n" % authority
        if proxy_lines is None:
            return cls(own)
        return cls(own + proxy_lines, b"http://" + authority)
