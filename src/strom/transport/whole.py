"""Messages that come whole in one read, read in one pass: the quick way beside llhttp, for the plain and common ones.

llhttp calls back for every field; most messages of a gateway do not need that. They have a small head, one counted body
or none, and lie complete and alone in one read. Such a head is taken apart line by line, and every line is proven
strictly legal by a regular expression, or is one that was proven before: the same few lines come all the time. Invariants:

* Both functions only ever say "this message, and nothing else" or None; None means nothing: the caller gives the same
  bytes to llhttp, which accepts or refuses as ever. What is refused is refused there, in one place.
* What is accepted here, llhttp and `judge` accept with the same meaning (a property test holds them to it). Whatever can
  change the framing or the life of the connection goes the careful way: transfer codings, upgrades, expectations,
  `connection` other than keep-alive, a field that comes twice, another version, a target in another form.
* Remembered are only lines that hold no secret, by a list of names: neither may a key stay in memory longer than its
  request, nor may the time of an answer tell whether a key was seen before. First lines with a query are not remembered
  either. What is remembered depends on the line alone, is bounded in number and length, and starts afresh when full.
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
    rb"(GET|POST|DELETE) (/[A-Za-z0-9\-._~%!$&'()*+,;=:@/]*+)(?:\?([A-Za-z0-9\-._~%!$&'()*+,;=:@/?]*+))? HTTP/1\.1"
)
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\t -~]*+")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([\t -~\x80-\xff]*+)")

_CAREFUL = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection", b"content-encoding"})
"""A request's content-encoding is none of the transport's business, and rare."""
_KEEP_ALIVE = frozenset({b"keep-alive", b"Keep-Alive"})
_BODILESS = frozenset({204, 304})

_MAX_REMEMBERED = 1024
_MAX_REMEMBERED_BYTES = 128
_HARMLESS = frozenset(
    {b"accept", b"accept-encoding", b"accept-language", b"anthropic-version", b"cache-control", b"connection",
     b"content-length", b"content-type", b"date", b"host", b"server", b"user-agent", b"vary", b"x-stainless-arch",
     b"x-stainless-async", b"x-stainless-lang", b"x-stainless-os", b"x-stainless-package-version",
     b"x-stainless-read-timeout", b"x-stainless-retry-count", b"x-stainless-runtime", b"x-stainless-runtime-version",
     b"x-stainless-timeout"}
)  # fmt: skip

_fields: dict[bytes, tuple[bytes, bytes]] = {}
_request_lines: dict[bytes, tuple[str, str, str]] = {}
_statuses: dict[bytes, int] = {}


class WholeResponse(NamedTuple):
    status: int
    headers: Headers
    body: bytes


def whole_request(data: bytes, limits: ServerLimits, peer: str) -> tuple[RequestHead, bytes] | None:
    """Head and body, when `data` is exactly one plain request within the limits."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    if end < 0 or end > limits.max_target_bytes or end + 4 > limits.max_head_bytes:
        return None
    first, *lines = data[:end].split(b"\r\n")
    start = _request_lines.get(first) or _request_line(first)
    headers = _read_fields(lines)
    if start is None or headers is None or len(headers) > limits.max_header_count:
        return None
    fields = dict(headers)
    length = _plain_length(fields) if len(fields) == len(headers) else None
    body = data[end + 4 :]
    if length != len(body) or length > limits.max_body_bytes or HOST.fullmatch(fields.get(b"host", b"\n")) is None:
        return None
    return RequestHead(*start, headers, "1.1", peer), body


def whole_response(data: bytes) -> WholeResponse | None:
    """A final response with a counted, uncoded body, when `data` is exactly that. Not for the answer to HEAD."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    # The look for "chunked" only spares a stream the work below, in vain for it.
    if end < 0 or data.find(b"hunked", 0, end) >= 0:
        return None
    first, *lines = data[:end].split(b"\r\n")
    status = _statuses.get(first) or _status(first)
    headers = _read_fields(lines)
    if status is None or headers is None:
        return None
    fields = dict(headers)
    length = _plain_length(fields) if len(fields) == len(headers) else None
    # Without a content-length the body of a response ends with its connection.
    if not length or len(data) != end + 4 + length:
        return None
    return WholeResponse(status, headers, data[end + 4 :])


def _plain_length(fields: dict[bytes, bytes]) -> int | None:
    """The body's length, 0 if none is told; None where a field needs the careful way."""
    if not _CAREFUL.isdisjoint(fields) or fields.get(b"connection", b"keep-alive") not in _KEEP_ALIVE:
        return None
    length = fields.get(b"content-length", b"0")
    # More digits than a length can have are for llhttp, which knows where numbers end.
    return int(length) if length.isdigit() and len(length) < 16 else None


def _read_fields(lines: list[bytes]) -> Headers | None:
    """The fields of these lines; None if one of them is none."""
    known = [*map(_fields.get, lines)]
    if None not in known:
        return known  # type: ignore[return-value]  # as just looked
    headers = []
    for line, field in zip(lines, known, strict=True):
        found = field or _field(line)
        if found is None:
            return None
        headers.append(found)
    return headers


def _field(line: bytes) -> tuple[bytes, bytes] | None:
    match = _FIELD.fullmatch(line)
    if match is None:
        return None
    field = (match[1].lower(), match[2].strip(b" \t"))
    if field[0] in _HARMLESS and len(line) <= _MAX_REMEMBERED_BYTES:
        if len(_fields) >= _MAX_REMEMBERED:
            _fields.clear()
        _fields[line] = field
    return field


def _request_line(line: bytes) -> tuple[str, str, str] | None:
    """Method, path, query."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        return None
    start = (match[1].decode(), match[2].decode(), (match[3] or b"").decode())
    if match[3] is None and len(line) <= _MAX_REMEMBERED_BYTES:
        if len(_request_lines) >= _MAX_REMEMBERED:
            _request_lines.clear()
        _request_lines[line] = start
    return start


def _status(line: bytes) -> int | None:
    match = _STATUS_LINE.fullmatch(line)
    if match is None or int(match[1]) in _BODILESS:
        return None
    if len(line) <= _MAX_REMEMBERED_BYTES:
        if len(_statuses) >= _MAX_REMEMBERED:
            _statuses.clear()
        _statuses[line] = int(match[1])
    return int(match[1])
