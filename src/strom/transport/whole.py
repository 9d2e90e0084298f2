"""Messages and heads that come whole in one read, read in one pass: the quick way beside llhttp, for the plain and common ones.

llhttp calls back for every field; most messages of a gateway do not need that. They have a small head, one counted body
or none, and lie complete and alone in one read. Such a head is taken apart line by line, and every line is proven
strictly legal by a regular expression, or is one that was proven before: the same few lines come all the time. Invariants:

* The functions only ever say "this message, and nothing else" (of a stream: "this head, and its body follows") or None;
  None means nothing: the caller gives the same bytes to llhttp, which accepts or refuses as ever. What is refused is
  refused there, in one place.
* What is accepted here, llhttp and `judge` accept with the same meaning (a property test holds them to it). Whatever can
  change the framing or the life of the connection goes the careful way: transfer codings (but a response's `chunked`),
  upgrades, expectations, `connection` other than keep-alive, a field that comes twice, another version, a target in another
  form.
* Remembered are only lines that hold no secret, by a list of names: neither may a key stay in memory longer than its
  request, nor may the time of an answer tell whether a key was seen before. First lines with a query are not remembered
  either. What is remembered depends on the line alone, is bounded in number and length, and starts afresh when full.
* Every condition but one is a line's own, so that a remembered line needs no second look: all that is left is that no field
  comes twice.
* Time is linear in the size of the head: no repetition can be given up and tried again shorter.

Source: RFC 9112 sections 2 to 6; RFC 9110 sections 5.5 (field values), 5.6.2 (tokens).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from strom.transport.heads import BODILESS_STATUSES
from strom.transport.requests import HOST
from strom.transport.types import Headers, RequestHead, ServerLimits

_MAX_HEAD_BYTES = 8192
_MAX_FIELDS = 100
_MAX_MESSAGE_BYTES = 262_144
"""More than this is rare and worth the careful way; `is_roomy` says whether a server's own limits lie above."""

_REQUEST_LINE = re.compile(
    rb"(GET|POST|DELETE) (/[A-Za-z0-9\-._~%!$&'()*+,;=:@/]*+)(?:\?([A-Za-z0-9\-._~%!$&'()*+,;=:@/?]*+))? HTTP/1\.1"
)
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\t -~]*+")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([\t -~\x80-\xff]*+)")

_CHUNKED = re.compile(rb"(?i:transfer-encoding):[\t ]*+chunked *+")
_CHUNKED_FIELD = (b"transfer-encoding", b"chunked")

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


def is_roomy(limits: ServerLimits) -> bool:
    """Whether whatever is read here is within these limits."""
    return (
        min(limits.max_head_bytes, limits.max_target_bytes) >= _MAX_HEAD_BYTES
        and limits.max_header_count >= _MAX_FIELDS
        and limits.max_body_bytes >= _MAX_MESSAGE_BYTES
    )


def whole_request(data: bytes, peer: str) -> tuple[RequestHead, bytes] | None:
    """Head and body, when `data` is exactly one plain request."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    if end < 0 or len(data) > _MAX_MESSAGE_BYTES:
        return None
    first, *lines = data[:end].split(b"\r\n", _MAX_FIELDS)
    headers = _read_fields(lines)
    fields = dict(headers)
    start = _request_lines.get(first) or _request_line(first)
    if start is None or len(fields) != len(headers) or b"host" not in fields:
        return None
    body = data[end + 4 :]
    if int(fields.get(b"content-length", b"0")) != len(body):
        return None
    return RequestHead(*start, headers, "1.1", peer, fields), body


def whole_response(data: bytes) -> WholeResponse | None:
    """A final response with a counted, uncoded body, when `data` is exactly that. Not for the answer to HEAD."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    # The look for "chunked" only spares a stream the work below, in vain for it.
    if end < 0 or data.find(b"hunked", 0, end) >= 0:
        return None
    first, *lines = data[:end].split(b"\r\n", _MAX_FIELDS)
    headers = _read_fields(lines)
    fields = dict(headers)
    status = _statuses.get(first) or _status(first)
    if status is None or len(fields) != len(headers):
        return None
    # Without a content-length the body of a response ends with its connection.
    length = int(fields.get(b"content-length", b"0"))
    if not length or len(data) != end + 4 + length:
        return None
    return WholeResponse(status, headers, data[end + 4 :])


def streamed_response(data: bytes) -> WholeResponse | None:
    """A final response with a chunked, uncoded body, when `data` begins with its whole head: `body` is the rest, as it came, in
    chunks. Not for the answer to HEAD."""
    end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
    if end < 0 or data.find(b"hunked", 0, end) < 0:
        return None
    first, *lines = data[:end].split(b"\r\n", _MAX_FIELDS)
    at = next((at for at, line in enumerate(lines) if _CHUNKED.fullmatch(line)), -1)
    if at < 0:
        return None
    del lines[at]
    headers = _read_fields(lines)
    fields = dict(headers)
    status = _statuses.get(first) or _status(first)
    if status is None or status in BODILESS_STATUSES or len(fields) != len(lines) or b"content-length" in fields:
        return None
    headers.insert(at, _CHUNKED_FIELD)
    return WholeResponse(status, headers, data[end + 4 :])


def _read_fields(lines: list[bytes]) -> Headers:
    """The fields of these lines; none at all if one of them needs the careful way."""
    headers: Headers = [*map(_fields.get, lines)]  # type: ignore[list-item]  # unknown ones are read next
    if None not in headers:
        return headers
    for at, known in enumerate(headers):
        field = known or _field(lines[at])
        if field is None:
            return []
        headers[at] = field
    return headers


def _field(line: bytes) -> tuple[bytes, bytes] | None:
    match = _FIELD.fullmatch(line)
    if match is None:
        return None
    field = name, value = match[1].lower(), match[2].strip(b" \t")
    if name in _CAREFUL or not _is_plain(name, value):
        return None
    if name in _HARMLESS and len(line) <= _MAX_REMEMBERED_BYTES:
        if len(_fields) >= _MAX_REMEMBERED:
            _fields.clear()
        _fields[line] = field
    return field


def _is_plain(name: bytes, value: bytes) -> bool:
    if name == b"content-length":
        # More digits than a length can have are for llhttp, which knows where numbers end.
        return value.isdigit() and len(value) < 16
    if name == b"connection":
        return value in _KEEP_ALIVE
    return name != b"host" or HOST.fullmatch(value) is not None


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
