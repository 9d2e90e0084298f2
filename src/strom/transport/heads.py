"""Writing the heads of HTTP/1.1 messages, the same way for responses and upstream requests.

Invariant: what a caller gives can neither add a line to a head nor change its framing. A name that is no token, a name
the transport sets itself, or a value with CR, LF or NUL raises ValueError before a byte is sent.

Source: RFC 9110 section 5 (fields), RFC 9112 sections 3 to 6 (start lines, framing).
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus

from strom.transport.types import Headers, Origin, OutgoingRequest

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(r"[!-\"$-~]+")
_OWNED = frozenset(
    {b"connection", b"content-length", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus if status >= 200
}

BODILESS_STATUSES = frozenset({204, 304})


@lru_cache(maxsize=1024)
def _checked_name(name: bytes) -> bytes:
    if _TOKEN.fullmatch(name) is None:
        raise ValueError(f"not a header name: {name!r}")
    if name.lower() in _OWNED:
        raise ValueError(f"header {name!r} is the transport's own")
    return name


def _status_line(status: int) -> bytes:
    line = _STATUS_LINES.get(status)
    if line is None:
        if not 200 <= status <= 999:
            raise ValueError(f"not a final status: {status}")
        line = b"HTTP/1.1 %d \r\n" % status
    return line


def _assemble(start: bytes, headers: Headers, own: bytes) -> bytes:
    lines = [start]
    for name, value in headers:
        lines.append(b"%b: %b\r\n" % (_checked_name(name), value))
    head = b"".join(lines)
    # Every line brings one CR and one LF: more of them, or a NUL, can only have come with a value.
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        raise ValueError("a header value holds CR, LF or NUL")
    return b"%b%b\r\n" % (head, own)


def response_head(status: int, headers: Headers, own: bytes) -> bytes:
    """`own` are the transport's lines (framing, connection), each with its CRLF."""
    return _assemble(_status_line(status), headers, own)


def request_head(origin: Origin, request: OutgoingRequest, *, via_proxy: bytes | None = None) -> bytes:
    """`via_proxy`: the lines for an http proxy, which also makes the target absolute; None: straight to the origin."""
    if _TOKEN.fullmatch(request.method.encode()) is None or _TARGET.fullmatch(request.target) is None:
        raise ValueError("not a request method or target")
    target = request.target.encode()
    own = b"connection: keep-alive\r\n"
    if via_proxy is not None:
        target = b"http://%b%b" % (origin.authority, target)
        own += via_proxy
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        own = b"content-length: %d\r\n%b" % (len(request.body), own)
    start = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), target)
    if b"\r" in origin.authority or b"\n" in origin.authority:
        raise ValueError("not a host name")
    return _assemble(start, [(b"host", origin.authority), *request.headers], own)
