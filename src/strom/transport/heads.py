"""Writing the heads of HTTP/1.1 messages, the same way for responses and upstream requests.

Invariant: what a caller gives can neither add a line to a head nor change its framing. A name that is no token, a name
the transport sets itself, or a value with CR, LF or NUL raises ValueError before a byte is sent.

Source: RFC 9110 section 5 (fields), RFC 9112 sections 3 to 6 (start lines, framing).
"""

from __future__ import annotations

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


_known_names: set[bytes] = set()
"""Names found good once: a gateway uses the same few all its life."""
_MAX_KNOWN_NAMES = 1024


def _check_name(name: bytes) -> None:
    if _TOKEN.fullmatch(name) is None:
        raise ValueError(f"not a header name: {name!r}")
    if name.lower() in _OWNED:
        raise ValueError(f"header {name!r} is the transport's own")
    if len(_known_names) < _MAX_KNOWN_NAMES:
        _known_names.add(name)


def check_headers(headers: Headers) -> None:
    """Raises ValueError for headers that no response may have."""
    _assemble(b"", headers, b"")


def _other_status_line(status: int) -> bytes:
    if not 200 <= status <= 999:
        raise ValueError(f"not a final status: {status}")
    return b"HTTP/1.1 %d \r\n" % status


def _assemble(start: bytes, headers: Headers, own: bytes) -> bytes:
    parts = [start]
    for name, value in headers:
        if name not in _known_names:
            _check_name(name)
        parts += (name, b": ", value, b"\r\n")
    parts += (own, b"\r\n")
    head = b"".join(parts)
    # Every line brings one CR and one LF: more of them, or a NUL, can only have come with a value.
    lines = len(headers) + start.count(b"\n") + own.count(b"\n") + 1
    if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
        raise ValueError("a header value holds CR, LF or NUL")
    return head


def response_head(status: int, headers: Headers, own: bytes) -> bytes:
    """`own` are the transport's lines (framing, connection), each with its CRLF."""
    return _assemble(_STATUS_LINES.get(status) or _other_status_line(status), headers, own)


def request_head(route: RequestRoute, request: OutgoingRequest) -> bytes:
    """The head of a request with content-length where a body is sent or expected."""
    method = request.method
    if _TARGET.fullmatch(request.target) is None or _TOKEN.fullmatch(method.encode()) is None:
        raise ValueError("not a request method or target")
    own = route.own_lines
    if request.body or method in ("POST", "PUT", "PATCH"):
        own = b"content-length: %d\r\n%b" % (len(request.body), own)
    start = b"%b %b%b HTTP/1.1\r\n" % (method.encode(), route.target_prefix, request.target.encode())
    return _assemble(start, request.headers, own)


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
