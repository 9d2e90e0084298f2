"""The upstream connection on a fake transport: responses in, outcomes out, what goes back to the pool."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, cast

import pytest

from strom.transport.connection import NativeUpstreamExchange, UpstreamConnection
from strom.transport.types import Headers, Origin
from tests.transport.fakes import FakeTransport, Told

ORIGIN = Origin("http", "up.test", 80)


class Upstream:
    """A connection, its owner and its transport, with a request under way unless told otherwise."""

    def __init__(self, method: str = "POST", *, reused: bool = False, told: Told | None = None) -> None:
        self.transport = FakeTransport()
        self.shelf: dict[UpstreamConnection, None] = {}
        self.sent_again: list[NativeUpstreamExchange] = []
        self.closed = False
        self.connection = UpstreamConnection(self, ORIGIN, self.shelf)
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))
        self.told = told or Told()
        self.call = self.request(method, self.told, reused=reused)

    def request(self, method: str, told: Told, *, reused: bool, body: bytes = b"body") -> NativeUpstreamExchange:
        call = NativeUpstreamExchange(method, b"HEAD|", body, told)
        self.connection.begin(call, told, reused=reused)
        return call

    def release(self, connection: UpstreamConnection) -> bool:
        if not self.closed:
            self.shelf[connection] = None
        return not self.closed

    def send_again(self, call: NativeUpstreamExchange, origin: Origin) -> None:
        assert origin == ORIGIN
        self.sent_again.append(call)

    def feed(self, data: bytes, *, step: int = 0) -> Upstream:
        for at in range(0, len(data), step or max(1, len(data))):
            if self.transport.is_closing():
                break
            self.connection.data_received(data[at : at + (step or len(data))])
        return self

    def end(self, exc: Exception | None = None) -> Upstream:
        if exc is None and not self.transport.is_closing():
            self.connection.eof_received()
        self.connection.connection_lost(exc)
        return self

    @property
    def pooled(self) -> bool:
        assert (self.connection in self.shelf) != self.transport.is_closing()
        return self.connection in self.shelf


def response(*lines: bytes, body: bytes = b"", first: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body


LENGTH = response(b"Content-Length: 5", b"X: y ", body=b"hello")
CHUNKED = response(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\nT: t\r\n\r\n")
BY_CLOSE = response(first=b"HTTP/1.0 200 OK", body=b"until close")


async def test_a_response_with_length() -> None:
    up = Upstream()
    assert up.transport.writes == [b"HEAD|body"]
    up.feed(LENGTH)
    assert up.told.events == [("response", 200), ("body", b"hello"), ("end", "complete")]
    assert up.told.headers == [(b"content-length", b"5"), (b"x", b"y")]
    assert up.pooled


async def test_pieces_of_one_read_then_its_end() -> None:
    cut = CHUNKED.index(b"de") + 1
    up = Upstream().feed(CHUNKED[:cut])
    assert up.told.events == [("response", 200), ("body", b"abc"), ("body", b"d"), ("read_end",)]
    up.feed(CHUNKED[cut:])
    assert up.told.events[4:] == [("body", b"e"), ("end", "complete")]
    assert up.pooled


async def test_a_large_body_is_sent_whole() -> None:
    up = Upstream().feed(LENGTH)
    up.transport.take()
    up.request("POST", Told(), reused=True, body=b"x" * 100_000)
    assert up.transport.sent == b"HEAD|" + b"x" * 100_000


RESPONSES = {
    "length": LENGTH,
    "chunked": CHUNKED,
    "empty": response(b"Content-Length: 0"),
    "by close": BY_CLOSE,
    "by close, 1.1": response(body=b"until close"),
    "interim first": response(first=b"HTTP/1.1 100 Continue") + response(b"L: x", first=b"HTTP/1.1 103 Hints") + LENGTH,
    "204": response(first=b"HTTP/1.1 204 No Content"),
    "304 with length": response(b"Content-Length: 9", first=b"HTTP/1.1 304 Not Modified"),
    "close": response(b"Connection: close", b"Content-Length: 5", body=b"hello"),
    "upgrade offered": response(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 5", body=b"hello"),
    "extra": LENGTH + b"HTTP/1.1 200 OK",
    "extra after close": response(b"Connection: close", b"Content-Length: 5", body=b"hello") + b"rest",
    "rubbish behind": LENGTH + b"rubbish",
    "rubbish": b"SSH-2.0-OpenSSH\r\n",
    "HTTP/2": response(first=b"HTTP/2 200"),
    "two framings": response(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "bad chunk": response(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\nxyz\r\n"),
    "gzip transfer": response(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "two codings": response(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "101": response(b"Connection: upgrade", b"Upgrade: x", first=b"HTTP/1.1 101 Switching"),
    "gzip": response(b"Content-Encoding: gzip", b"Content-Length: 25", body=b""),
    "br": response(b"Content-Encoding: br", b"Content-Length: 5", body=b"hello"),
}


@pytest.mark.parametrize("name", RESPONSES)
async def test_cuts_do_not_matter(name: str) -> None:
    def outcome(step: int) -> tuple[Any, ...]:
        up = Upstream().feed(RESPONSES[name], step=step)
        pooled = up.connection in up.shelf
        up.end()
        result = up.told.outcome if isinstance(up.told.outcome, str) else up.told.failure.kind
        return up.told.status, up.told.headers, up.told.body, result, pooled if "behind" not in name else None

    # Bytes behind a message that come in a later read meet an idle connection, which ends them as well.
    whole = outcome(0)
    if name.startswith("extra"):
        whole, steps = whole[:4], [outcome(step)[:4] for step in (1, 3, 20)]
    else:
        steps = [outcome(step) for step in (1, 3, 20)]
    assert steps == [whole] * 3


@pytest.mark.parametrize(
    ("name", "result", "pooled"),
    [
        ("length", "complete", True),
        ("empty", "complete", True),
        ("interim first", "complete", True),
        ("204", "complete", True),
        ("304 with length", "complete", True),
        ("upgrade offered", "complete", True),
        ("close", "complete", False),
        ("extra", "complete", False),
        ("extra after close", "complete", False),
        ("rubbish behind", "complete", False),
        ("rubbish", "protocol", False),
        ("HTTP/2", "protocol", False),
        ("two framings", "protocol", False),
        ("bad chunk", "protocol", False),
        ("gzip transfer", "protocol", False),
        ("two codings", "protocol", False),
        ("101", "protocol", False),
        ("br", "decoding", False),
    ],
)
async def test_outcomes(name: str, result: str, *, pooled: bool) -> None:
    up = Upstream().feed(RESPONSES[name])
    outcome = up.told.outcome
    assert (outcome if isinstance(outcome, str) else up.told.failure.kind) == result
    assert up.pooled is pooled
    if result != "complete":
        assert up.told.failure.sent


async def test_a_message_without_a_body_for_head() -> None:
    up = Upstream("HEAD").feed(response(b"Content-Length: 5"))
    assert up.told.outcome == "complete"
    assert not up.pooled


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
async def test_what_follows_the_head_that_answers_head_reaches_nobody(framing: bytes, step: int) -> None:
    up = Upstream("HEAD").feed(response(framing, body=b"5\r\nwords\r\n0\r\n\r\n"), step=step)
    assert up.told.outcome == "complete"
    assert up.told.body == b""
    assert not up.pooled


async def test_unsent_request_bytes_keep_a_connection_from_the_pool() -> None:
    up = Upstream()
    up.transport.unsent = 10
    up.feed(LENGTH)
    assert up.told.outcome == "complete"
    assert not up.pooled


async def test_a_closed_client_takes_no_connection_back() -> None:
    up = Upstream()
    up.closed = True
    up.feed(LENGTH)
    assert up.transport.aborted


# -- ends


async def test_delimited_by_close() -> None:
    up = Upstream().feed(BY_CLOSE)
    assert up.told.events[-1] == ("read_end",)
    up.end()
    assert up.told.outcome == "closed"


@pytest.mark.parametrize("exc", [None, ConnectionResetError()])
@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"", "closed_before_response"),
        (b"HTTP/1.1 2", "cut"),
        (LENGTH[:-1], "cut"),
        (CHUNKED[:-2], "cut"),
        (response(first=b"HTTP/1.1 100 Continue"), "cut"),
    ],
)
async def test_cut_responses(sent: bytes, kind: str, exc: Exception | None) -> None:
    up = Upstream().feed(sent).end(exc)
    assert up.told.failure.kind == kind
    assert up.told.failure.sent


async def test_a_reset_is_no_end_by_close() -> None:
    assert Upstream().feed(BY_CLOSE).end(ConnectionResetError()).told.failure.kind == "cut"


async def test_every_cut_of_a_response_is_told_once() -> None:
    for message in (LENGTH, CHUNKED):
        for at in range(1, len(message)):
            up = Upstream().feed(message[:at]).end()
            assert up.told.failure.kind == "cut"


@pytest.mark.parametrize("exc", [None, BrokenPipeError()])
async def test_a_stale_connection_sends_again(exc: Exception | None) -> None:
    up = Upstream(reused=True).end(exc)
    assert up.sent_again == [up.call]
    assert (up.call.head, up.call.body) == (b"HEAD|", b"body")
    assert up.told.events == []


async def test_a_reused_connection_that_answered_does_not_send_again() -> None:
    up = Upstream(reused=True).feed(b"HTTP/1.1 100 Continue\r\n\r\n").end()
    assert up.sent_again == []
    assert up.told.failure.kind == "cut"


async def test_an_idle_connection_that_ends_or_speaks_leaves_the_pool() -> None:
    up = Upstream().feed(LENGTH)
    assert up.connection.is_whole()
    up.end()
    assert not up.shelf
    up = Upstream().feed(LENGTH)
    up.feed(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert not up.shelf
    assert up.transport.aborted
    up.connection.connection_lost(None)
    assert up.told.events[-1] == ("end", "complete")


# -- bounds


@pytest.mark.parametrize("step", [1000, 100_000])
@pytest.mark.parametrize(
    "message",
    [
        response(b"X: " + b"y" * 70_000, b"Content-Length: 0"),
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        response(*[b"X: y"] * 20_000),
        response(first=b"HTTP/1.1 100 Continue") * 3000,
        response(b"Transfer-Encoding: chunked", body=b"3;" + b"x" * 300_000),
        response(b"Transfer-Encoding: chunked", body=b"0\r\nT: " + b"x" * 300_000),
    ],
)
async def test_heads_extensions_and_trailers_are_bounded(message: bytes, step: int) -> None:
    up = Upstream().feed(message, step=step)
    assert up.told.failure.kind == "too_large"
    assert up.transport.aborted


async def test_a_large_body_behind_a_head_in_one_read_is_fine() -> None:
    up = Upstream().feed(response(b"Content-Length: 200000", body=b"x" * 200_000))
    assert up.told.outcome == "complete"


# -- abort


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 2", CHUNKED[:-8]])
async def test_abort_is_silent_and_idempotent(sent: bytes) -> None:
    up = Upstream().feed(sent)
    before = list(up.told.events)
    up.call.abort()
    assert up.transport.aborted
    up.call.abort()
    up.call.pause_reading()
    up.call.resume_reading()
    up.connection.data_received(b"late bytes")
    up.end(ConnectionResetError())
    assert up.told.events == before
    assert not up.shelf


async def test_abort_inside_a_callback_ends_the_callbacks() -> None:
    up = Upstream()
    up.told.on_piece = up.call.abort
    up.feed(CHUNKED)
    assert up.told.events == [("response", 200), ("body", b"abc")]
    assert not up.pooled


async def test_abort_after_the_end_leaves_the_connection() -> None:
    up = Upstream().feed(LENGTH)
    up.call.abort()
    assert up.pooled


# -- pausing


async def test_pause_and_resume_reading() -> None:
    up = Upstream()
    up.call.pause_reading()
    up.call.pause_reading()
    assert up.transport.paused
    up.call.resume_reading()
    up.call.resume_reading()
    assert not up.transport.paused


async def test_a_pause_before_the_connection_is_remembered() -> None:
    up = Upstream().feed(LENGTH)
    told = Told()
    call = NativeUpstreamExchange("POST", b"HEAD|", b"", told)
    call.pause_reading()
    up.connection.begin(call, told, reused=True)
    assert up.transport.paused


async def test_a_pause_inside_the_last_read_does_not_lose_the_end() -> None:
    up = Upstream()
    up.told.on_piece = up.call.pause_reading
    up.feed(LENGTH)
    assert up.told.outcome == "complete"
    assert up.pooled
    assert not up.transport.paused
    up.call.resume_reading()
    assert not up.transport.paused


async def test_pausing_a_closing_connection_does_nothing() -> None:
    up = Upstream()
    up.transport.closed = True
    up.call.pause_reading()
    up.call.resume_reading()
    assert not up.transport.paused


# -- a receiver that raises


class Raising(Told):
    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def _maybe(self, where: str) -> None:
        if where == self._where:
            raise LookupError(where)

    def on_response(self, status: int, headers: Headers) -> None:
        self._maybe("response")
        super().on_response(status, headers)

    def on_body(self, data: bytes) -> None:
        self._maybe("body")
        super().on_body(data)

    def on_read_end(self) -> None:
        self._maybe("read_end")
        super().on_read_end()

    def on_end(self, *, delimited_by_close: bool) -> None:
        super().on_end(delimited_by_close=delimited_by_close)
        self._maybe("end")


@pytest.mark.parametrize("where", ["response", "body", "read_end"])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_what_a_receiver_raises_surfaces_and_ends_the_connection(where: str, coding: str) -> None:
    up = Upstream(told=Raising(where))
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(b"body") + packer.flush() if coding == "gzip" else b"body"
    head = response(b"Content-Encoding: " + coding.encode(), b"Content-Length: %d" % (len(body) + 1))
    with pytest.raises(LookupError, match=where) as caught:
        up.feed(head + body)
    # As the loop does with what leaves data_received.
    up.transport.abort()
    up.connection.connection_lost(caught.value)
    assert up.told.failure.kind == "protocol"
    assert not up.shelf


async def test_what_is_raised_at_the_end_takes_the_connection_from_the_pool() -> None:
    up = Upstream(told=Raising("end"))
    with pytest.raises(LookupError) as caught:
        up.feed(LENGTH)
    up.connection.connection_lost(caught.value)
    assert not up.shelf
    assert up.told.outcome == "complete"
