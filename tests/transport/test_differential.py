"""llhttp with our checks beside h11, an independent reader of HTTP/1.1: the same outcome, or we are stricter.

A message that both accept must mean the same to both; one that h11 refuses must not be accepted here, with two exceptions
that RFC 9112 allows: empty lines before a request (section 2.2) and several spaces in its first line (section 3).
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.transport.types import Headers
from tests.effort import examples
from tests.transport.fakes import GET, Wire
from tests.transport.test_connection import RESPONSES, Upstream
from tests.transport.test_server import MESSAGES
from tests.transport.test_smuggling import BAD, OTHER

LENIENT = re.compile(rb"^([A-Z]+) +(\S+) +(?=HTTP)")


class Parsed(NamedTuple):
    start: tuple[str, ...]
    headers: Headers
    body: bytes


def plain(headers: Headers) -> Headers:
    """h11 joins equal content-lengths and lower-cases transfer-encoding; we refuse the first and keep the second."""
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers]


def by_h11_server(message: bytes) -> list[Parsed]:
    """The complete requests at the front of `message`, up to the first that is broken."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
    connection.receive_data(message)
    found: list[Parsed] = []
    start: tuple[str, ...] = ()
    headers: Headers = []
    body = b""
    with contextlib.suppress(h11.RemoteProtocolError, h11.LocalProtocolError):
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                start = (event.method.decode(), event.target.decode("latin-1"), event.http_version.decode())
                headers, body = [(bytes(n), bytes(v)) for n, v in event.headers], b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append(Parsed(start, plain(headers), body))
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
            else:
                break
    return found


def by_us(message: bytes, step: int) -> list[Parsed]:
    """What we accept of it, up to the first refusal."""
    wire = Wire(answer=lambda e: e.respond(200, [], b""))
    wire.feed(message, step=step)
    found = []
    for exchange in wire.exchanges:
        head = exchange.head
        target = f"{head.path}?{head.query}" if head.query else head.path
        if exchange.refusal is None:
            found.append(Parsed((head.method, target, head.http_version), plain(head.headers), exchange.body))
    return found


def compare_requests(message: bytes, step: int = 0) -> None:
    theirs = by_h11_server(LENIENT.sub(rb"\1 \2 ", message.lstrip(b"\r\n"), count=1))
    ours = by_us(message, step)
    assert ours == theirs[: len(ours)], f"not read alike: {message!r}"


HAND_WRITTEN = [*MESSAGES[:5], *MESSAGES[9:], *BAD.values(), *(message for _, message in OTHER.values())]


@pytest.mark.parametrize("message", HAND_WRITTEN)
@pytest.mark.parametrize("step", [0, 1])
def test_hand_written_requests(message: bytes, step: int) -> None:
    compare_requests(message, step if len(message) < 2000 else 500)


token = st.text("abcXYZ09-_!", min_size=1, max_size=6).map(str.encode)
value = st.one_of(
    st.text('ab 1,;=\t"', max_size=8).map(str.encode),
    st.sampled_from([b"chunked", b"3", b"0", b"close", b"keep-alive", b"a.test", b"identity", b"\xff", b"a\x01"]),
    st.just(b"100-continue"),
)
name = st.one_of(
    token,
    st.sampled_from([b"Host", b"host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"X "]),
)
line_end = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\r\n "])
header = st.tuples(name, st.sampled_from([b":", b": ", b" :", b":  "]), value, line_end).map(b"".join)
body = st.sampled_from(
    [
        b"",
        b"abc",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3;x=y\r\nabc\r\n0\r\nT: t\r\n\r\n",
        b"3\nabc\r\n0\r\n\r\n",
    ]
)
first_line = st.tuples(
    st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"G(T", b"get", b"PUT"]),
    st.sampled_from([b" ", b" ", b" ", b"  ", b"\t"]),
    st.sampled_from([b"/", b"/a?b=c", b"*", b"/a%20b", b"//x", b"/\x7f", b"x"]),
    st.sampled_from([b" HTTP/1.1", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/1.2", b" HTTP/11", b"", b" HTTP/1.1 "]),
    line_end,
).map(b"".join)
host = st.sampled_from([b"Host: a.test\r\n"] * 4 + [b""])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    return b"".join(
        [draw(first_line), draw(host), *draw(st.lists(header, max_size=4)), draw(line_end), draw(body)],
    )


@settings(max_examples=examples(250))
@given(requests(), st.sampled_from([0, 1, 5]))
def test_generated_requests(message: bytes, step: int) -> None:
    compare_requests(message + GET, step)


@settings(max_examples=examples(120))
@given(st.sampled_from(HAND_WRITTEN[:4]), st.integers(0, 60), st.binary(max_size=3), st.sampled_from([0, 1]))
def test_requests_with_bytes_changed(message: bytes, at: int, other: bytes, step: int) -> None:
    compare_requests(message[:at] + other + message[at + len(other) :], step)


# -- responses


def by_h11_client(message: bytes) -> tuple[str, Headers, bytes] | None:
    """Outcome (complete or cut), headers and body of the first final response; None: refused."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=100_000)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(message)
    connection.receive_data(b"")
    headers: Headers = []
    seen = b""
    began = False
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                headers, began = [(bytes(n), bytes(v)) for n, v in event.headers], True
            elif isinstance(event, h11.Data):
                seen += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return "complete", plain(headers), seen
            elif not isinstance(event, h11.InformationalResponse):
                return "cut", plain(headers) if began else [], seen
    except h11.RemoteProtocolError:
        return None


async def compare_responses(message: bytes, step: int) -> None:
    up = Upstream().feed(message, step=step).end()
    theirs = by_h11_client(message)
    if not isinstance(up.told.outcome, str):
        return
    assert theirs is not None, f"accepted {message!r}, which h11 refuses"
    assert ("complete", plain(up.told.headers), up.told.body) == theirs


@pytest.mark.parametrize("message", [m for n, m in RESPONSES.items() if n not in ("gzip", "br")])
async def test_hand_written_responses(message: bytes) -> None:
    for step in (0, 1):
        await compare_responses(message, step)


status_line = st.tuples(
    st.sampled_from([b"HTTP/1.1 ", b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/2 ", b"http/1.1 "]),
    st.sampled_from([b"200 OK", b"200", b"200 ", b"204 No", b"304 N", b"100 C", b"404 Not Found", b"20 OK", b"2000 X"]),
    line_end,
).map(b"".join)


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    return b"".join([draw(status_line), *draw(st.lists(header, max_size=4)), draw(line_end), draw(body)])


@settings(max_examples=examples(250))
@given(responses(), st.sampled_from([0, 1, 5]))
async def test_generated_responses(message: bytes, step: int) -> None:
    await compare_responses(message, step)
