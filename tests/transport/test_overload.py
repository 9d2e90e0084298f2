"""More than is good: connections, bodies that crawl, bodies all at once, answers that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from strom.transport import Listener
from strom.transport.types import Exchange, ServerLimits
from tests.patience import PATIENCE_S, until
from tests.transport.fakes import GET, Wire, post, request
from tests.transport.loops import on_both_loops

CHUNKED = request(b"POST /v1/x HTTP/1.1", b"Transfer-Encoding: chunked")


def large(exchange: Exchange) -> None:
    exchange.respond(200, [], b"x" * 100_000)


# -- bodies


@pytest.mark.parametrize("framed", [False, True])
def test_a_body_that_crawls_is_refused_in_the_end(*, framed: bool) -> None:
    wire = Wire(ServerLimits(body_timeout_s=10, min_body_bytes_per_s=100))
    wire.feed(CHUNKED if framed else post(b"x" * 1000)[:-1000])
    for _ in range(20):
        wire.feed(b"1\r\nx\r\n" if framed else b"x")
        wire.clock.advance(1)
    assert wire.one.refusal is not None
    assert (wire.one.refusal.status, wire.one.refusal.reason) == (408, "timeout")


def test_a_body_at_the_minimum_rate_may_take_long() -> None:
    wire = Wire(ServerLimits(body_timeout_s=10, min_body_bytes_per_s=100))
    wire.feed(post(b"x" * 10_000)[:-10_000])
    for _ in range(100):
        wire.feed(b"x" * 100)
        wire.clock.advance(1)
    assert wire.one.refusal is None


def test_chunk_framing_alone_is_no_progress() -> None:
    wire = Wire(ServerLimits(body_timeout_s=10)).feed(CHUNKED + b"1;")
    for _ in range(12):
        wire.feed(b"e" * 40)
        wire.clock.advance(1)
    assert wire.one.refusal is not None
    assert wire.one.refusal.status == 408


@pytest.mark.parametrize("step", [0, 7])
def test_bodies_are_bounded_together(step: int) -> None:
    limits = ServerLimits(max_receiving_bytes=1500)
    first = Wire(limits)
    second = Wire(limits, intake=first.intake)
    first.feed(post(b"x" * 2000)[:-1000])
    second.feed(post(b"x" * 1000)[:-100], step=step)
    assert second.one.refusal is not None
    assert (second.one.refusal.status, second.one.refusal.reason) == (503, "overloaded")
    assert first.intake.held_bytes == 1000
    first.connection.connection_lost(None)
    assert first.intake.held_bytes == 0


def test_what_is_complete_makes_room() -> None:
    wire = Wire(ServerLimits(max_receiving_bytes=1500), answer=large)
    for _ in range(3):
        wire.feed(post(b"x" * 1000), step=200)
    assert [exchange.refusal for exchange in wire.exchanges] == [None] * 3
    assert wire.intake.held_bytes == 0


def test_a_body_is_not_awaited_when_there_is_no_room() -> None:
    wire = Wire()
    wire.intake.admits = lambda: False
    wire.feed(post(b"x" * 1000)[:-1000])
    assert wire.one.refusal is not None
    assert wire.one.refusal.reason == "overloaded"
    assert wire.one.head.path == "/v1/x"


# -- answers


def test_who_pipelines_and_does_not_read_gets_one_answer() -> None:
    wire = Wire(answer=large)
    wire.feed(GET * 10)
    assert len(wire.exchanges) == 10
    wire.connection.pause_writing()
    wire.feed(GET * 3000, step=1000)
    assert len(wire.exchanges) == 10
    assert wire.transport.paused
    wire.connection.resume_writing()
    assert len(wire.exchanges) > 1000
    assert not wire.transport.paused


def test_an_answer_that_nobody_reads_is_dropped() -> None:
    wire = Wire(ServerLimits(slow_reader_s=20), answer=lambda exchange: pausing(wire, exchange))
    wire.feed(GET)
    wire.clock.advance(19)
    assert not wire.transport.aborted
    wire.clock.advance(2)
    assert wire.transport.aborted


def test_an_answer_under_way_that_nobody_reads_is_dropped() -> None:
    left: list[bool] = []
    wire = Wire(ServerLimits(slow_reader_s=20), answer=lambda exchange: unending(wire, exchange, left))
    wire.feed(GET)
    wire.clock.advance(1000)
    wire.connection.pause_writing()
    wire.clock.advance(19)
    wire.connection.resume_writing()
    wire.clock.advance(1000)
    wire.connection.pause_writing()
    for _ in range(5):
        wire.transport.unsent -= 16_000
        wire.clock.advance(20)
        assert not wire.transport.aborted
    wire.clock.advance(61)
    assert wire.transport.aborted
    wire.connection.connection_lost(None)
    assert left == [True]


def unending(wire: Wire, exchange: Exchange, left: list[bool]) -> None:
    wire.transport.unsent = 1_000_000
    exchange.on_disconnect = lambda: left.append(True)
    exchange.start(200, [])
    exchange.write(b"x")


@pytest.mark.parametrize("last", [GET, request(b"GET / HTTP/1.1", b"Connection: close")])
def test_an_answer_that_is_read_slowly_is_not_cut(last: bytes) -> None:
    wire = Wire(ServerLimits(slow_reader_s=20, keep_alive_s=10), answer=lambda exchange: pausing(wire, exchange))
    wire.feed(last)
    for _ in range(40):
        wire.transport.unsent -= 16_000
        wire.clock.advance(20)
        assert not wire.transport.aborted
    wire.clock.advance(60)
    assert wire.transport.aborted


def pausing(wire: Wire, exchange: Exchange) -> None:
    wire.transport.unsent = 1_000_000
    wire.connection.pause_writing()
    exchange.respond(200, [], b"x" * 1_000_000)


# -- connections


def test_a_connection_too_many_is_told_so_and_closed() -> None:
    wire = Wire(full=True)
    head, _, body = wire.transport.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in head + b"\r\n"
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    wire.feed(GET)
    assert wire.exchanges == []
    wire.clock.advance(2)
    assert wire.transport.aborted


@on_both_loops
@pytest.mark.parametrize("limits", [ServerLimits(max_connections=3), ServerLimits(max_connections_per_address=3)])
async def test_connections_are_bounded_and_recover(limits: ServerLimits) -> None:
    listener = Listener(lambda exchange: exchange.respond(200, [], b"ok"), limits)
    await listener.start("127.0.0.1", 0)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(listener.close)
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)]
        for reader, writer in held:
            writer.write(GET)
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE_S)
        for _ in range(400):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(GET)
            assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).startswith(b"HTTP/1.1 503 ")
            writer.close()
        assert listener.open_connections == 3
        assert listener.turned_away == 400
        held[0][1].close()
        await until(lambda: listener.open_connections == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(GET)
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE_S)
        for _, open_one in [*held, (reader, writer)]:
            open_one.close()
