"""The quick way beside llhttp: what it takes, the careful way takes with the same meaning; the rest is left alone.

The careful way is had by holding the first byte back from the rest, since the quick one wants a message in one read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strom.transport import whole
from strom.transport.types import RequestHead, ServerLimits
from strom.transport.whole import is_roomy, streamed_response, whole_request, whole_response
from tests.patience import assert_cpu_below
from tests.transport.fakes import GET, Told, Wire, post, request
from tests.transport.test_connection import RESPONSES, Upstream, response
from tests.transport.test_differential import body, header, status_line
from tests.transport.test_server import MESSAGES
from tests.transport.test_smuggling import BAD, OTHER

PEER = "192.0.2.7"
PLAIN = post(b"abc", b"X-Thing: \t a b\xff \t", b"Empty:", b"Connection: keep-alive")
LENGTH = response(b"Content-Length: 5", b"X: y ", b"Connection: keep-alive", body=b"hello")
STREAM_HEAD = response(b"X: y ", b"Transfer-Encoding:  chunked", b"Connection: keep-alive")
STREAM_BODY = b"5\r\nhello\r\n", b"10\r\n0\r\n\r\n3\r\nabc\r\n\r\n\r\n", b"0\r\n\r\n"


def outcome(message: bytes, *reads: bytes, limits: ServerLimits | None = None) -> tuple[object, ...]:
    """What becomes of a message and the connection behind it, given in these reads."""
    wire = Wire(limits, answer=lambda exchange: exchange.respond(200, [], b"x"))
    for read in reads:
        wire.feed(read)
    assert b"".join(reads) == message
    wire.feed(GET)
    seen = [(e.head, e.body, e.refusal, e.closes) for e in wire.exchanges]
    return seen, wire.transport.sent, wire.transport.closed, wire.transport.eof_written


def agree(message: bytes, limits: ServerLimits | None = None) -> bool:
    """Whether the quick way took it. It never takes what the careful way reads otherwise."""
    careful = outcome(message, message[:1], message[1:], limits=limits)
    assert outcome(message, message, limits=limits) == careful
    taken = whole_request(message, PEER)
    if taken is not None and limits is None:
        head, _, refusal, closes = careful[0][0]  # type: ignore[index]
        assert (taken[0], refusal, closes) == (head, None, False)
    return taken is not None and is_roomy(limits or ServerLimits())


def agree_upstream(message: bytes) -> bool:
    def told(*reads: bytes) -> tuple[object, ...]:
        up = Upstream()
        for read in reads:
            up.feed(read)
        pooled = up.connection in up.shelf, up.transport.is_closing()
        up.end()
        return up.told.events, up.told.headers, pooled

    assert told(message) == told(message[:1], message[1:])
    return whole_response(message) is not None


@pytest.mark.parametrize("message", [GET, PLAIN, post(b""), request(b"DELETE /v1/x?a=/b?c HTTP/1.1")])
def test_plain_requests_are_taken(message: bytes) -> None:
    assert agree(message)


def test_what_a_plain_request_becomes() -> None:
    taken = whole_request(b"POST /a%20b?c=d HTTP/1.1\r\nHOST: h\r\nContent-Length:2\r\n\r\nhi", "p")
    headers = [(b"host", b"h"), (b"content-length", b"2")]
    assert taken == (RequestHead("POST", "/a%20b", "c=d", headers, "1.1", "p", dict(headers)), b"hi")


@pytest.mark.parametrize("message", [*BAD.values(), *(message for _, message in OTHER.values())])
def test_what_is_refused_is_never_taken(message: bytes) -> None:
    assert whole_request(message, PEER) is None


@pytest.mark.parametrize("message", [m for m in MESSAGES if len(m) < 1000])
def test_messages_of_other_tests(message: bytes) -> None:
    agree(message)


PLACES: dict[str, Callable[[bytes], bytes]] = {
    "method": lambda b: request(b"POS%bT / HTTP/1.1" % b),
    "path": lambda b: request(b"GET /a%bc HTTP/1.1" % b),
    "query": lambda b: request(b"GET /?a%bc HTTP/1.1" % b),
    "version": lambda b: request(b"GET / HTTP/1.%b" % b),
    "name": lambda b: request(b"GET / HTTP/1.1", b"X%bY: a" % b),
    "value": lambda b: request(b"GET / HTTP/1.1", b"X: a%bb" % b),
    "end of a value": lambda b: request(b"GET / HTTP/1.1", b"X: a%b" % b),
    "start of a line": lambda b: request(b"GET / HTTP/1.1", b"%bX: a" % b),
    "host": lambda b: request(b"GET / HTTP/1.1", b"Host: a%bb" % b, host=False),
    "length": lambda b: request(b"POST / HTTP/1.1", b"Content-Length: %b3" % b, body=b"abc"),
    "connection": lambda b: request(b"GET / HTTP/1.1", b"Connection: keep-alive%b" % b),
}


@pytest.mark.parametrize("place", list(PLACES))
def test_every_byte_in_every_place(place: str) -> None:
    taken = [agree(PLACES[place](bytes([byte]))) for byte in range(256)]
    assert place in ("method",) or any(taken)


def test_every_byte_in_a_response() -> None:
    for byte in range(256):
        one = bytes([byte])
        agree_upstream(response(b"Content-Length: 2", first=b"HTTP/1.1 200 O%bK" % one, body=b"hi"))
        agree_upstream(response(b"Content-Length: 2", b"X%bY: a" % one, body=b"hi"))
        agree_upstream(response(b"Content-Length: 2", b"X: a%b" % one, body=b"hi"))
        agree_upstream(response(b"Content-Length: %b2" % one, body=b"hi"))


LIMITED = {
    "target": ServerLimits(max_target_bytes=10),
    "head": ServerLimits(max_head_bytes=30),
    "count": ServerLimits(max_header_count=2),
    "body": ServerLimits(max_body_bytes=2),
}


@pytest.mark.parametrize("limit", list(LIMITED))
def test_limits_hold_on_the_quick_way(limit: str) -> None:
    assert not agree(post(b"abc", b"X: y", b"Z: y"), LIMITED[limit])


field = st.sampled_from(
    [b"Host: a", b"X: y", b"x:", b"Accept:  a, b ", b"Content-Length: 3", b"content-length: 0", b"Content-Length: 003",
     b"Transfer-Encoding: chunked", b"Connection: close", b"Connection: Keep-Alive", b"Connection: upgrade",
     b"Upgrade: h2c", b"Expect: 100-continue", b"Proxy-Connection: close", b" fold", b"no colon", b"n : a"]
)  # fmt: skip


@settings(max_examples=400)
@given(
    st.sampled_from([b"GET", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT", b"PUT"]),
    st.sampled_from([b"/", b"/a?b", b"//x", b"*", b"http://a/b", b"/a#b", b"/[", b"/\xff"]),
    st.lists(st.one_of(field, header.map(lambda line: line.removesuffix(b"\r\n"))), max_size=4),
    body,
)
@example(b"POST", b"/", [b"Content-Length: 3", b"Connection: Keep-Alive"], b"abc")
def test_quick_and_careful_agree_on_requests(method: bytes, target: bytes, lines: list[bytes], rest: bytes) -> None:
    agree(request(b"%b %b HTTP/1.1" % (method, target), *lines, body=rest))


@settings(max_examples=400)
@given(st.integers(0, len(PLAIN)), st.binary(max_size=2), st.integers(0, 2))
def test_quick_and_careful_agree_on_changed_bytes(at: int, other: bytes, dropped: int) -> None:
    agree(PLAIN[:at] + other + PLAIN[at + dropped :])


# -- responses


@pytest.mark.parametrize("name", list(RESPONSES))
def test_responses_of_other_tests(name: str) -> None:
    taken = agree_upstream(RESPONSES[name])
    assert taken or name != "length"


@settings(max_examples=400)
@given(status_line, st.lists(header, max_size=4), st.sampled_from([b"", b"abc", b"hello", b"0\r\n\r\n"]))
def test_quick_and_careful_agree_on_responses(first: bytes, lines: list[bytes], rest: bytes) -> None:
    agree_upstream(first + b"".join(lines) + b"\r\n" + rest)


@settings(max_examples=400)
@given(st.integers(0, len(LENGTH)), st.binary(max_size=2), st.integers(0, 2))
def test_quick_and_careful_agree_on_changed_responses(at: int, other: bytes, dropped: int) -> None:
    agree_upstream(LENGTH[:at] + other + LENGTH[at + dropped :])


@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(STREAM_HEAD)), st.binary(max_size=2), st.integers(0, 2), st.integers(0, 3))
def test_quick_and_careful_agree_on_changed_heads_of_streams(at: int, other: bytes, dropped: int, more: int) -> None:
    agree_upstream(STREAM_HEAD[:at] + other + STREAM_HEAD[at + dropped :] + b"".join(STREAM_BODY[:more]))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 40), st.binary(max_size=2), st.integers(0, 2), st.sets(st.integers(1, 40)))
def test_quick_and_careful_agree_on_the_body_of_a_stream(at: int, other: bytes, dropped: int, cuts: set[int]) -> None:
    def told(head: tuple[bytes, ...], places: set[int]) -> tuple[object, ...]:
        up = Upstream()
        for read in head:
            up.feed(read)
        for begin, end in pairwise([0, *sorted(place for place in places if place < len(wire)), len(wire)]):
            up.feed(wire[begin:end])
        pooled = up.connection in up.shelf, up.transport.is_closing()
        up.end()
        return up.told.body, up.told.outcome, pooled

    whole = b"".join(STREAM_BODY)
    wire = whole[:at] + other + whole[at + dropped :]
    assert told((STREAM_HEAD,), cuts) == told((STREAM_HEAD[:1], STREAM_HEAD[1:]), cuts)


def test_the_head_of_a_stream_is_taken() -> None:
    taken = streamed_response(STREAM_HEAD + STREAM_BODY[0])
    assert taken is not None
    assert taken.headers == [(b"x", b"y"), (b"transfer-encoding", b"chunked"), (b"connection", b"keep-alive")]
    assert (taken.status, taken.body) == (200, STREAM_BODY[0])


def test_what_frames_a_stream_otherwise_is_not_taken() -> None:
    for line in (
        b"Content-Length: 3",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
    ):
        assert streamed_response(response(b"Transfer-Encoding: chunked", line)) is None
    for coding in (b"gzip, chunked", b"chunked\t", b"chunked, chunked"):
        assert streamed_response(response(b"Transfer-Encoding: " + coding)) is None
    for first in (
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 100 Continue",
    ):
        assert streamed_response(response(b"Transfer-Encoding: chunked", first=first)) is None


def test_the_answer_to_head_is_not_taken() -> None:
    """A body behind it is nobody's: the connection is not used again."""
    up = Upstream("HEAD").feed(LENGTH)
    assert up.transport.is_closing()
    assert not up.pooled


class Aborting(Told):
    """Ends its request as soon as it hears of the response."""

    up: Upstream

    def on_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        super().on_response(status, headers)
        self.up.call.abort()


def test_an_abort_within_the_response_ends_it() -> None:
    told = Aborting()
    told.up = Upstream(told=told)
    told.up.feed(LENGTH)
    assert told.events == [("response", 200)]
    assert told.up.transport.aborted


def test_a_pause_within_a_whole_response_is_undone() -> None:
    up = Upstream()
    up.told.on_piece = up.call.pause_reading
    up.feed(LENGTH)
    assert not up.transport.paused
    assert up.pooled


def test_long_heads_that_break_late_cost_little() -> None:
    for filling in (b"a" * 8000, b"a: " + b" " * 7900, b"a:b\r\n" * 1600, b"a" * 4000 + b":" + b" \t" * 1900):
        message = request(b"GET / HTTP/1.1", filling + b"\0")
        assert whole_request(message, PEER) is None
        assert_cpu_below(0.05, lambda message=message: whole_request(message, PEER))  # type: ignore[misc]


# -- what is remembered


@pytest.mark.parametrize("name", [b"Authorization", b"X-Api-Key", b"Cookie", b"Proxy-Authorization", b"X-Unknown"])
def test_no_secret_is_remembered(name: bytes) -> None:
    line = name + b": Bearer sk-secret"
    for _ in range(2):
        taken = whole_request(request(b"GET / HTTP/1.1", line), PEER)
        assert taken is not None
        assert taken[0].headers[-1] == (name.lower(), b"Bearer sk-secret")
    assert whole_request(request(b"GET /?key=sk-secret HTTP/1.1"), PEER) is not None
    assert whole_response(response(b"Content-Length: 1", b"Set-Cookie: sk-secret", body=b"x")) is not None
    kept = [*whole._fields, *whole._request_lines, *whole._statuses]
    assert b"Host: a.test" in kept
    assert not [line for line in kept if b"secret" in line]


def test_what_is_remembered_is_bounded() -> None:
    for number in range(3000):
        agent = b"User-Agent: a%d" % number
        taken = whole_request(request(b"GET /%d HTTP/1.1" % number, agent), PEER)
        assert taken is not None
        assert taken[0].header(b"user-agent") == agent[12:]
        assert whole_response(response(b"Content-Length: 1", first=b"HTTP/1.1 200 %d" % number, body=b"x")) is not None
    assert whole_request(request(b"GET /%b HTTP/1.1" % (b"x" * 500), b"Accept: " + b"y" * 500), PEER) is not None
    for kept in (whole._fields, whole._request_lines, whole._statuses):
        assert len(kept) <= 1024
        assert max(map(len, kept)) <= 128
