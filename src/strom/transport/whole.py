"""Messages that come whole in one read, read in one pass: the quick way beside llhttp, for the plain and common ones.

llhttp calls back for every field; most messages of a gateway do not need that. They have a small head, one counted body
or none, and lie complete and alone in one read. Two regular expressions prove such a head strictly legal: a first line,
and fields that cover every byte behind it (what they cannot cover becomes a field without a name). Invariants:

* Both functions are pure and only ever say "this message, and nothing else" or None; None means nothing: the caller gives
  the same bytes to llhttp, which accepts or refuses as ever. What is refused is refused there, in one place.
* What is accepted here, llhttp and `judge` accept with the same meaning (a property test holds them to it). Whatever can
  change the framing or the life of the connection goes the careful way: transfer codings, upgrades, expectations,
  `connection` other than keep-alive, a field that comes twice, another version, a target in another form.
* Time is linear in the size of the head: no repetition can be given up and tried again shorter.

Source: RFC 9112 sections 2 to 6; RFC 9110 sections 5.5 (field values), 5.6.2 (tokens).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from strom.transport.requests import HOST
from strom.transport.types import Headers, RequestHead, ServerLimits

_MAX_HEAD_BYTES = 8192
"""Longer heads are rare and worth the careful way."""

_REQUEST_LINE = re.compile(
    rb"(GET|POST|DELETE) (/[A-Za-z0-9\-._~%!$&'()*+,;=:@/]*+)(?:\?([A-Za-z0-9\-._~%!$&'()*+,;=:@/?]*+))? HTTP/1\.1\r\n"
)
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\t -~]*+\r\n")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([\t -~\x80-\xff]*+)\r\n|[\x00-\xff]++")

_CAREFUL_REQUEST = frozenset({b"", b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection"})
_CAREFUL_RESPONSE = frozenset({b"", b"transfer-encoding", b"upgrade", b"content-encoding", b"proxy-connection"})
_KEEP_ALIVE = frozenset({b"keep-alive", b"Keep-Alive"})
_BODILESS = frozenset({b"204", b"304"})


class WholeResponse(NamedTuple):
    status: int
    headers: Headers
    body: bytes


def whole_request(data: bytes, limits: ServerLimits, peer: str) -> tuple[RequestHead, bytes] | None:
    """Head and body, when `data` is exactly one plain request within the limits."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    line = _REQUEST_LINE.match(data)
    if end < 0 or line is None or end > limits.max_target_bytes or end + 4 > limits.max_head_bytes:
        return None
    headers = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(data, line.end(), end + 2)]
    length = _plain_length(headers, _CAREFUL_REQUEST)
    body = data[end + 4 :]
    if length is None or len(body) != length or length > limits.max_body_bytes:
        return None
    if len(headers) > limits.max_header_count:
        return None
    for name, value in headers:
        if name == b"host":
            if HOST.fullmatch(value) is None:
                return None
            method, path, query = line.groups(b"")
            return RequestHead(method.decode(), path.decode(), query.decode(), headers, "1.1", peer), body
    return None


def whole_response(data: bytes) -> WholeResponse | None:
    """A final response with a counted, uncoded body, when `data` is exactly that. Not for the answer to HEAD."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    line = _STATUS_LINE.match(data)
    # The look for "chunked" only spares a stream the work below, in vain for it.
    if end < 0 or line is None or data.find(b"hunked", 0, end) >= 0:
        return None
    status = line[1]
    headers = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(data, line.end(), end + 2)]
    length = _plain_length(headers, _CAREFUL_RESPONSE)
    # Without a content-length the body of a response ends with its connection.
    if not length or status in _BODILESS or len(data) != end + 4 + length:
        return None
    return WholeResponse(int(status), headers, data[end + 4 :])


def _plain_length(headers: Headers, careful: frozenset[bytes]) -> int | None:
    """The body's length, 0 if none is told; None where a field needs the careful way."""
    fields = dict(headers)
    if len(fields) != len(headers) or not careful.isdisjoint(fields):
        return None
    if fields.get(b"connection", b"keep-alive") not in _KEEP_ALIVE:
        return None
    length = fields.get(b"content-length", b"0")
    # More digits than a length can have are for llhttp, which knows where numbers end.
    return int(length) if length.isdigit() and len(length) < 16 else None
