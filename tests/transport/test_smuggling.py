"""What the server refuses: requests that another reader could understand otherwise, and requests that are too much.

llhttp refuses most of it by itself; these tests hold it to that, whole and byte by byte, so that a new version cannot
become lenient unnoticed.
"""

from __future__ import annotations

import pytest

from strom.transport.types import Refusal, ServerLimits
from tests.transport.fakes import GET, Wire, post, request

CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"


def chunked(body: bytes, *lines: bytes) -> bytes:
    return request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked", *lines, body=body)


BAD = {
    "both framings": request(b"POST / HTTP/1.1", b"Content-Length: 3", b"Transfer-Encoding: chunked", body=CHUNKS),
    "both framings, other order": chunked(CHUNKS, b"Content-Length: 3"),
    "length twice": post(b"abc", b"Content-Length: 3"),
    "lengths that differ": post(b"abc", b"Content-Length: 4"),
    "length list": request(b"POST / HTTP/1.1", b"Content-Length: 3, 3", body=b"abc"),
    "length with sign": request(b"POST / HTTP/1.1", b"Content-Length: +3", body=b"abc"),
    "length negative": request(b"POST / HTTP/1.1", b"Content-Length: -3", body=b"abc"),
    "length in hex": request(b"POST / HTTP/1.1", b"Content-Length: 0x3", body=b"abc"),
    "length with underscore": request(b"POST / HTTP/1.1", b"Content-Length: 1_0", body=b"0123456789"),
    "length empty": request(b"POST / HTTP/1.1", b"Content-Length:", body=b"abc"),
    "length with a gap": request(b"POST / HTTP/1.1", b"Content-Length: 3 3", body=b"abc"),
    "length beyond 64 bits": request(b"POST / HTTP/1.1", b"Content-Length: 99999999999999999999", body=b"abc"),
    "chunked not last": request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked, identity", body=CHUNKS),
    "chunked twice": chunked(CHUNKS, b"Transfer-Encoding: chunked"),
    "coding empty": request(b"POST / HTTP/1.1", b"Transfer-Encoding:", body=CHUNKS),
    "coding with vertical tab": request(b"POST / HTTP/1.1", b"Transfer-Encoding: \x0bchunked", body=CHUNKS),
    "chunked in HTTP/1.0": request(b"POST / HTTP/1.0", b"Transfer-Encoding: chunked", body=CHUNKS),
    "bare LF after the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "bare LF at the end": b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    "bare CR in a value": request(b"GET / HTTP/1.1", b"X: a\rb"),
    "bare CR before CRLF": request(b"GET / HTTP/1.1", b"X: a\r"),
    "folded line": request(b"GET / HTTP/1.1", b"X: a", b" b"),
    "folded first line": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "space before the colon": request(b"GET / HTTP/1.1", b"X : a"),
    "NUL in a value": request(b"GET / HTTP/1.1", b"X: a\0b"),
    "control character in a value": request(b"GET / HTTP/1.1", b"X: a\x01b"),
    "name that is no token": request(b"GET / HTTP/1.1", b"X(y: a"),
    "name beyond ASCII": request(b"GET / HTTP/1.1", b"X\xff: a"),
    "no name": request(b"GET / HTTP/1.1", b": a"),
    "no colon": request(b"GET / HTTP/1.1", b"X"),
    "no host": request(b"GET / HTTP/1.1", host=False),
    "two hosts": request(b"GET / HTTP/1.1", b"Host: b.test"),
    "host with a path": request(b"GET / HTTP/1.1", b"Host: a/b", host=False),
    "host with user": request(b"GET / HTTP/1.1", b"Host: u@a", host=False),
    "host with a space": request(b"GET / HTTP/1.1", b"Host: a b", host=False),
    "fragment": request(b"GET /a#b HTTP/1.1"),
    "target with a space": request(b"GET /a b HTTP/1.1"),
    "target beyond ASCII": request(b"GET /\xff HTTP/1.1"),
    "target with a control character": request(b"GET /\x01 HTTP/1.1"),
    "target in no form": request(b"GET foo HTTP/1.1"),
    "star for GET": request(b"GET * HTTP/1.1"),
    "unknown method": request(b"FOO / HTTP/1.1"),
    "method in lower case": request(b"get / HTTP/1.1"),
    "tab after the method": request(b"GET\t/ HTTP/1.1"),
    "space after the version": request(b"GET / HTTP/1.1 "),
    "version in lower case": request(b"GET / http/1.1"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "chunk size with space": chunked(b"3 \r\nabc\r\n0\r\n\r\n"),
    "chunk size with prefix": chunked(b"0x3\r\nabc\r\n0\r\n\r\n"),
    "chunk size negative": chunked(b"-3\r\nabc\r\n0\r\n\r\n"),
    "chunk size empty": chunked(b"\r\nabc\r\n0\r\n\r\n"),
    "chunk size beyond 64 bits": chunked(b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    "chunk size with bare LF": chunked(b"3\nabc\r\n0\r\n\r\n"),
    "chunk longer than told": chunked(b"3\r\nabcd\r\n0\r\n\r\n"),
    "chunk shorter than told": chunked(b"5\r\nabc\r\n0\r\n\r\n"),
    "LF in a chunk extension": chunked(b"3;a=\nb\r\nabc\r\n0\r\n\r\n"),
    "length in a trailer": chunked(b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "coding in a trailer": chunked(b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "too many trailers": chunked(b"0\r\n" + b"X: y\r\n" * 100 + b"\r\n"),
}

OTHER = {
    "HTTP/2": (505, request(b"GET / HTTP/2.0")),
    "HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/1.2": (505, request(b"GET / HTTP/1.2")),
    "HTTP/0.9": (505, b"GET /\r\n\r\n"),
    "gzip as transfer coding": (501, request(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip", body=b"abc")),
    "identity before chunked": (501, request(b"POST / HTTP/1.1", b"Transfer-Encoding: identity, chunked", body=CHUNKS)),
    "CONNECT": (501, request(b"CONNECT a.test:80 HTTP/1.1")),
    "unknown expectation": (417, request(b"POST / HTTP/1.1", b"Expect: tea", b"Content-Length: 0")),
    "long target": (414, request(b"GET /%b HTTP/1.1" % (b"x" * 20_000))),
    "many headers": (431, request(b"GET / HTTP/1.1", *[b"X: y"] * 300)),
    "long header": (431, request(b"GET / HTTP/1.1", b"X: " + b"y" * 70_000)),
    "endless header": (431, b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000),
    "endless line ends": (431, b"\r\n" * 40_000),
    "long body": (413, request(b"POST / HTTP/1.1", b"Content-Length: 33554433")),
}


def refusal(message: bytes, step: int) -> Refusal:
    wire = Wire()
    wire.feed(message, step=step)
    assert len(wire.exchanges) == 1
    exchange = wire.exchanges[0]
    assert exchange.refusal is not None, "accepted"
    exchange.respond(exchange.refusal.status, [], b"no")
    assert b"connection: close\r\n" in wire.transport.sent
    wire.feed(GET)
    assert len(wire.exchanges) == 1, "went on after a refusal"
    return exchange.refusal


@pytest.mark.parametrize("name", BAD)
def test_refused_as_bad(name: str) -> None:
    whole = refusal(BAD[name], 0)
    assert (whole.status, whole.reason) == (400, "bad_request")
    assert refusal(BAD[name], 1).status == 400


@pytest.mark.parametrize("name", OTHER)
def test_refused_otherwise(name: str) -> None:
    status, message = OTHER[name]
    assert refusal(message, 0).status == status
    assert refusal(message, 1 if len(message) < 1000 else 999).status == status


def test_what_is_known_of_a_refused_request() -> None:
    head = (
        Wire()
        .feed(request(b"POST /v1/messages?beta=1 HTTP/1.1", b"Anthropic-Version: 1", b"X: y", b"Bad : x"))
        .one.head
    )
    assert (head.method, head.path, head.query) == ("POST", "/v1/messages", "beta=1")
    assert head.header(b"anthropic-version") == b"1"
    head = Wire().feed(b"\x16\x03\x01").one.head
    assert (head.method, head.path, head.headers) == ("GET", "/", [])
    assert Wire().feed(request(b"GET //?#x HTTP/1.1", b"Bad : x")).one.head.path == "//"
    assert Wire().feed(b"OPTIONS * HTTP/1.1\r\nBad : x\r\n\r\n").one.head.path == "*"


def test_a_refused_head_request_gets_no_body() -> None:
    wire = Wire().feed(request(b"HEAD / HTTP/1.1", b"Expect: tea"))
    wire.one.respond(417, [], b"words")
    assert wire.transport.sent.endswith(b"\r\n\r\n")


# -- too much


def test_a_body_over_the_limit_is_refused_before_it_comes() -> None:
    wire = Wire(ServerLimits(max_body_bytes=10)).feed(post(b"x" * 11)[:-11])
    assert wire.one.refusal is not None
    assert (wire.one.refusal.status, wire.one.refusal.reason) == (413, "body_too_large")
    assert wire.one.head.path == "/v1/x"


@pytest.mark.parametrize("step", [0, 1])
def test_a_chunked_body_over_the_limit(step: int) -> None:
    body = b"5\r\n01234\r\n6\r\n567890\r\n0\r\n\r\n"
    wire = Wire(ServerLimits(max_body_bytes=10)).feed(chunked(body), step=step)
    assert wire.one.refusal is not None
    assert wire.one.refusal.status == 413


def test_a_body_at_the_limit() -> None:
    assert Wire(ServerLimits(max_body_bytes=10)).feed(post(b"x" * 10)).one.refusal is None


def test_endless_chunk_extensions_are_refused() -> None:
    wire = Wire().feed(chunked(b"3;"))
    for _ in range(100):
        wire.feed(b"x" * 1000)
    assert wire.one.refusal is not None
    assert wire.one.refusal.status == 400


def test_one_byte_chunks_are_not_refused() -> None:
    wire = Wire().feed(chunked(b""))
    for _ in range(300):
        wire.feed(b"1\r\nx\r\n" * 100)
    wire.feed(b"0\r\n\r\n")
    assert wire.one.refusal is None
    assert len(wire.one.body) == 30_000


def test_a_head_at_the_limit_and_one_over() -> None:
    limits = ServerLimits(max_head_bytes=200)
    fits = request(b"GET / HTTP/1.1", b"X: ")
    fits = fits.replace(b"X: ", b"X: " + b"y" * (200 - len(fits)))
    for step in (0, 1, 50):
        assert Wire(limits).feed(fits, step=step).one.refusal is None
        assert Wire(limits).feed(fits.replace(b"X: ", b"X: y"), step=step).one.refusal is not None
    assert Wire(limits).feed(fits + GET).exchanges[0].refusal is None


# -- the end of a refused connection


def test_a_refused_connection_lingers_so_that_the_answer_can_be_read() -> None:
    wire = Wire(ServerLimits(max_body_bytes=10)).feed(post(b"x" * 50)[:-50])
    wire.feed(b"x" * 20)
    wire.one.respond(413, [], b"too large")
    assert wire.transport.sent.endswith(b"connection: close\r\n\r\ntoo large")
    assert wire.transport.eof_written
    assert not wire.transport.is_closing()
    wire.feed(b"x" * 1_000_000)
    assert not wire.transport.is_closing()
    wire.connection.eof_received()
    assert wire.transport.closed


def test_lingering_is_bounded_in_time_and_bytes() -> None:
    wire = Wire(eof_possible=False).feed(b"NONSENSE\r\n")
    wire.one.respond(400, [], b"")
    assert not wire.transport.eof_written
    wire.clock.advance(6)
    assert wire.transport.aborted
    wire = Wire().feed(b"NONSENSE\r\n")
    wire.one.respond(400, [], b"")
    for _ in range(65):
        wire.feed(b"x" * 1_048_576)
    assert wire.transport.aborted


def test_lingering_reads_on_after_pipelining_had_paused() -> None:
    wire = Wire(ServerLimits(max_pipelined_bytes=10)).feed(GET)
    wire.feed(b"NONSENSE and more\r\n")
    assert wire.transport.paused
    wire.exchanges[0].respond(200, [], b"")
    wire.exchanges[1].respond(400, [], b"")
    assert not wire.transport.paused
