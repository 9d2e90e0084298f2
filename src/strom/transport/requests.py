"""Judging the head of a request: what llhttp lets pass and this server does not accept.

Pure: it is given what was parsed and either answers with a `RequestPlan` or raises `Refused`. llhttp, without its
leniencies, already refuses bare CR or LF, folded lines, space before the colon, NUL, names that are no tokens, both or
repeated Content-Length and Transfer-Encoding, and chunk sizes that are no numbers (tests/transport/test_smuggling.py
holds it to that). It does let pass: other versions, other transfer codings before chunked, chunked in HTTP/1.0, any
number of Host fields, fragments, and `*` for any method.

Source: RFC 9112 sections 2.3, 3.2 and 6.1; RFC 9110 sections 7.2 and 10.1.1.
"""

from __future__ import annotations

import re

import msgspec

from strom.transport.types import Headers, Refusal, RefusalReason

HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]\-]*")
_JUDGED = frozenset({b"host", b"content-length", b"transfer-encoding", b"expect"})


class Refused(Exception):
    """A request that is not accepted; ends the parsing of its connection."""

    def __init__(self, status: int, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(status, reason, detail)


class RequestPlan(msgspec.Struct, frozen=True):
    """What the server needs to know of a head that it accepts."""

    path: str
    query: str
    content_length: int | None
    chunked: bool
    expects_continue: bool


def bad_request(detail: str) -> Refused:
    return Refused(400, "bad_request", detail)


def split_target(target: bytes) -> tuple[str, str]:
    """Path and query of a target in origin or absolute form (RFC 9112 section 3.2); "*" stays as it is."""
    text = target.decode("latin-1")
    if not text.startswith(("/", "*")):
        _, found, rest = text.partition("://")
        if not found:
            raise bad_request("request target in no known form")
        cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
        text = rest[cut:] if rest[cut : cut + 1] == "/" else f"/{rest[cut:]}"
    path, _, query = text.partition("?")
    return path, query


def judge(method: str, target: bytes, version: str, headers: Headers) -> RequestPlan:
    """Accepts a complete head or raises `Refused`."""
    if version not in ("1.1", "1.0"):
        raise Refused(505, "version_not_supported", f"HTTP version {version}")
    if method == "CONNECT":
        raise Refused(501, "not_implemented", "CONNECT is not supported")
    if b"#" in target:
        raise bad_request("fragment in the request target")
    path, query = split_target(target)
    if path == "*" and method != "OPTIONS":
        raise bad_request("request target * is for OPTIONS alone")
    judged = [field for field in headers if field[0] in _JUDGED]
    length, chunked, expects = _judge_fields(judged, version)
    return RequestPlan(path, query, length, chunked, expects)


def _judge_fields(fields: Headers, version: str) -> tuple[int | None, bool, bool]:
    """Content-length, whether chunked, whether 100 Continue is awaited."""
    length: int | None = None
    chunked = expects = False
    host: bytes | None = None
    for name, value in fields:
        if name == b"host":
            if host is not None:
                raise bad_request("more than one host header")
            host = value
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = _judge_coding(value, version)
        else:
            expects = _judge_expectation(value)
    if host is None:
        if version == "1.1":
            raise bad_request("no host header")
    elif HOST.fullmatch(host) is None:
        raise bad_request("host header is no host")
    return length, chunked, expects and version == "1.1"


def _judge_coding(value: bytes, version: str) -> bool:
    if version == "1.0":
        raise bad_request("transfer-encoding in an HTTP/1.0 request")
    if value.lower() != b"chunked":
        raise Refused(501, "not_implemented", "transfer coding other than chunked")
    return True


def _judge_expectation(value: bytes) -> bool:
    if value.lower() != b"100-continue":
        raise Refused(417, "expectation_failed", "expectation other than 100-continue")
    return True
