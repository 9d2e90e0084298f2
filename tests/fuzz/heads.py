"""Judges of what reads HTTP and its fields: the quick ways beside the careful ones, and both beside h11."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from typing import TypeVar

from opentelemetry.context import Context

from strom.core.access import KeySettings
from strom.core.errors import AuthError, BadRequest, PermissionDenied, StromError
from strom.gateway.destination import read_destination
from strom.otel.serving import _GETTER, _PROPAGATOR
from strom.policies.auth import KeyRing
from strom.server.browsers import BrowserRules
from strom.transport.memory import MemoryExchange
from strom.transport.types import Headers
from tests.transport.fakes import GET, Told, post, request
from tests.transport.test_connection import RESPONSES as KNOWN_RESPONSES
from tests.transport.test_connection import Upstream, response
from tests.transport.test_differential import by_h11_client, compare_requests, plain
from tests.transport.test_whole import agree, agree_upstream

REQUESTS = (
    GET,
    post(b'{"model":"m"}', b"Content-Type: application/json", b"Authorization: Bearer sk-1", b"Accept: */*"),
    post(b"", b"Connection: keep-alive"),
    request(b"DELETE /v1/streams/strm_c?x=%2f&y HTTP/1.1", b"User-Agent: x/1"),
    request(b"POST /v1/x HTTP/1.1", b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nT: t\r\n\r\n"),
    request(b"POST /v1/x HTTP/1.1", b"Content-Length: 3", b"Expect: 100-continue", body=b"abc"),
    request(b"GET http://a.test/x HTTP/1.0", b"Connection: keep-alive"),
)
RESPONSES = (
    response(b"Content-Length: 5", b"Content-Type: application/json", body=b"hello"),
    response(b"Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n"),
    response(b"Connection: close", body=b"until the end"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + response(b"Content-Length: 2", first=b"HTTP/1.1 429 Slow", body=b"no"),
    *(message for name, message in KNOWN_RESPONSES.items() if name not in ("gzip", "br") and len(message) < 2000),
)
WORDS = (
    b"Host: a\r\n", b"Content-Length: 3\r\n", b"content-length:0\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n", b" HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"chunked", b"identity, chunked", b": ",
    b" : ", b"\r\n\r\n", b"\n\n", b"\r\n ", b"GET ", b"POST ", b"CONNECT ", b"/", b"*", b"#", b"?", b"%00",
)  # fmt: skip
CHUNKED = (
    b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    b"a;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n",
    b"3\r\nabc\r\n5\r\n3\r\nab\r\n0\r\n\r\n",
    b"1f\r\n" + b"x" * 31 + b"\r\n07\r\n1234567\r\n00\r\n\r\n",
)
CHUNK_WORDS = (
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"5\r\n",
    b"00005\r\n",
    b";a=b",
    b"F\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
)
ORIGINS = (
    b"http://localhost:3000\nlocalhost:8080",
    b"https://app.example\ngateway.test",
    b"https://app.example.evil.test\n127.0.0.1:8080",
    b"null\n[::1]:8080",
    b"http://127.0.0.1\nlocalhost.",
)
CREDENTIALS = (
    b"authorization\nBearer sk-good",
    b"x-api-key\nsk-good\nauthorization\nBearer other",
    b"authorization\nBasic sk-good\nx-strom-endpoint\ne1",
    b"x-api-key\n sk-good\nx-strom-policy\neu-only",
)
CONTEXTS = (
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nvendor=1,other=two",
    b"00-00000000000000000000000000000000-0000000000000000-00\n",
    b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more\na=b=c, d@e=f",
)
T = TypeVar("T")
E = TypeVar("E", bound=StromError)
_EMPTY_LINES = re.compile(rb"\n\r?\n\r?\n")
_EMPTY_QUERY = re.compile(rb"\? +HTTP/")
_WIDE_LINE = re.compile(rb"  HTTP/")
_ABSOLUTE = re.compile(rb"^[!-~]+ +[A-Za-z]+://", re.MULTILINE)
_BAD_REASON = re.compile(rb"HTTP/1.[^\r\n]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Nobody is told the reason phrase of an upstream: what stands in it does no harm."""
_LONG_ZERO = re.compile(rb"(?<![0-9a-fA-F])0{20}")
_LATE_CR = re.compile(rb"\r(?!\n)")
_SECOND_CODING = re.compile(rb"\n(?i:transfer-encoding):.*\n(?i:transfer-encoding):", re.DOTALL)
"""llhttp takes any number of leading zeros, a CR alone before the next message, and trailers that name a coding; h11 does not.
None of them moves the end of a message."""
_LENIENT = (_EMPTY_LINES, _BAD_REASON, _LONG_ZERO, _LATE_CR, _SECOND_CODING)
_OWN = "https://app.example"


def told_or(kind: type[E], step: Callable[[], T]) -> T | E:
    """What it gives, or its error of that kind: others leave, and are findings."""
    try:
        return step()
    except kind as error:
        return error


def judge_request(pieces: list[bytes], draw: random.Random) -> None:
    message = b"".join(pieces)[:20_000]
    agree(message)
    if any(each.search(message) for each in (_ABSOLUTE, _WIDE_LINE, _EMPTY_LINES, _LONG_ZERO, _LATE_CR)):
        return  # a target in absolute form loses its origin here, and not in h11, which also knows no empty lines in between
    if _EMPTY_QUERY.search(message):
        return  # the two targets mean the same, and are not written alike
    alone = b"HTTP/1.0" in message or message.endswith(b"\n")
    compare_requests(message if alone else message + GET, draw.choice((0, 1, 7)) if len(message) < 3000 else 0)


def judge_response(pieces: list[bytes], _: random.Random) -> None:
    message = b"".join(pieces)[:20_000]
    agree_upstream(message)
    up = Upstream()
    for piece in pieces:
        if not up.transport.is_closing():
            up.feed(piece)
    up.end()
    lenient = message[:1] in (b"\r", b"\n") or any(each.search(message) for each in _LENIENT)
    if isinstance(up.told.outcome, str) and not lenient and len(message) == sum(map(len, pieces)):
        assert up.told.outcome in ("complete", "closed")
        theirs = by_h11_client(message)
        assert theirs is not None, "accepted, and h11 refuses it"
        assert ("complete", plain(up.told.headers), up.told.body) == theirs


def judge_chunks(pieces: list[bytes], _: random.Random) -> None:
    careful, quick = _chunked(pieces, express=False), _chunked(pieces, express=True)
    assert careful == quick, f"the short way gives {quick}, the long one {careful}"


def _chunked(pieces: list[bytes], *, express: bool) -> tuple[bytes, object, bool]:
    told = Told()
    up = Upstream(told=told).feed(response(b"Transfer-Encoding: chunked"))

    def take(data: bytes) -> None:
        told.body += data

    if express:
        up.call.express(take)
    up.feed(b"5\r\nfirst\r\n")
    for piece in pieces:
        if piece and not up.transport.is_closing():
            up.feed(piece)
    up.end()
    outcome = told.outcome if isinstance(told.outcome, str) or told.outcome is None else told.outcome.kind
    return told.body, outcome, up.pooled


def _pairs(data: bytes) -> Headers:
    """Name and value on lines of their own. No field has a line end in it: that is the transport's promise."""
    lines = data.replace(b"\r", b"").split(b"\n")
    return [(name.lower(), value.strip(b" \t")) for name, value in zip(lines[::2], lines[1::2], strict=False)]


def judge_origin(pieces: list[bytes], draw: random.Random) -> None:
    origin, _, host = b"".join(pieces).partition(b"\n")
    method = draw.choice(("GET", "POST", "OPTIONS"))
    headers = [(b"host", host), (b"origin", origin), (b"access-control-request-method", b"POST")]
    exchange = MemoryExchange(method, "/v1/models", headers=headers[: draw.choice((2, 3))])
    rules = BrowserRules([_OWN], open_to_all=True, hosts=draw.choice((None, ["gateway.test"])))
    try:
        admitted = rules.admit(exchange)
    except PermissionDenied:
        return
    if admitted is not None:
        admitted.respond(200, [], b"")
    allowed = exchange.header_out(b"access-control-allow-origin")
    assert allowed is None or origin.lower() == _OWN.encode(), f"{origin!r} is allowed"


def judge_credentials(pieces: list[bytes], _: random.Random) -> None:
    headers = _pairs(b"".join(pieces))
    key = KeySettings("k", hashlib.sha256(b"sk-good").hexdigest())
    ring = KeyRing((key,), required=True)
    found = told_or(AuthError, lambda: ring.authenticate(headers))
    if isinstance(found, AuthError):
        assert "sk-good" not in str(found), "a key in an error"
    else:
        assert found is key
        assert any(b"sk-good" in value for _name, value in headers), "admitted without the key"
    destination = told_or(BadRequest, lambda: read_destination(headers))
    assert isinstance(destination, BadRequest) or len(destination.endpoint or "") <= 512


def judge_trace_context(pieces: list[bytes], _: random.Random) -> None:
    parent, _break, state = b"".join(pieces).replace(b"\r", b"").partition(b"\n")
    headers = [(b"traceparent", parent), (b"tracestate", state.replace(b"\n", b""))]
    context = _PROPAGATOR.extract(headers, Context(), _GETTER)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    for value in carrier.values():
        assert not set(value) & set("\r\n\0"), "a field with a line end in it"
        value.encode("latin-1")
