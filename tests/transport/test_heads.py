"""Heads that are written: by templates that are kept, which must not keep anybody from looking at the values."""

from __future__ import annotations

import pytest

from strom.transport import heads
from strom.transport.heads import RequestRoute, request_head, response_head
from strom.transport.types import Headers, Origin, OutgoingRequest

ROUTE = RequestRoute.to(Origin("http", "up.test", 81))


def test_a_response_head_twice() -> None:
    for value in (b"a", b"b%d%b"):
        head = response_head(200, [(b"x%b-y", value), (b"z", b"")], b"own: 1\r\n")
        assert head == b"HTTP/1.1 200 OK\r\nx%%b-y: %b\r\nz: \r\nown: 1\r\n\r\n" % value


@pytest.mark.parametrize("value", [b"a\r", b"\nb", b"a\r\nb: c", b"\0", b"\r\n"])
@pytest.mark.parametrize("headers", [[(b"x-same", b"good")], [(b"x-same", b"good"), (b"x-other", b"good")]])
def test_values_are_judged_each_time(headers: Headers, value: bytes) -> None:
    response_head(200, headers, b"")
    for at in range(len(headers)):
        bad = [(name, value if n == at else good) for n, (name, good) in enumerate(headers)]
        with pytest.raises(ValueError, match="CR, LF or NUL"):
            response_head(200, bad, b"")


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"a\r\nb", b"Content-Length", b"transfer-encoding", b"HOST"])
def test_names_are_refused_each_time(name: bytes) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="header"):
            response_head(200, [(b"x", b"y"), (name, b"1")], b"")


def test_a_request_head_twice() -> None:
    for length in (2, 3):
        request = OutgoingRequest("POST", "/v1/x?y", [(b"a", b"b")], b"x" * length)
        head = (
            b"POST /v1/x?y HTTP/1.1\r\na: b\r\ncontent-length: %d\r\nhost: up.test:81\r\nconnection: keep-alive\r\n\r\n"
        )
        assert request_head(ROUTE, request) == head % length


@pytest.mark.parametrize(
    ("method", "target"), [("GET", "/a b"), ("GET", "/\r\n"), ("G T", "/"), ("GET", ""), ("", "/")]
)
def test_bad_first_lines_are_refused_each_time(method: str, target: str) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="method or target"):
            request_head(ROUTE, OutgoingRequest(method, target, []))


def test_what_is_kept_is_bounded() -> None:
    for number in range(2000):
        response_head(200, [(b"x-%d" % number, b"y")], b"")
    assert len(heads._templates) <= 1024
    assert response_head(200, [(b"x-1999", b"y")], b"") == b"HTTP/1.1 200 OK\r\nx-1999: y\r\n\r\n"
