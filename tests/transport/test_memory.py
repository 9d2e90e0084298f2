"""The in-memory twins keep the same promises as the real ones."""

from __future__ import annotations

import asyncio

import pytest

from strom.transport.memory import MemoryClient, MemoryExchange, Script
from strom.transport.types import Exchange, Origin, OutgoingRequest, TransportFailure, UpstreamClient
from tests.transport.fakes import Told

ORIGIN = Origin("http", "up.test", 80)
REQUEST = OutgoingRequest("POST", "/", [], b"x")
CUT = TransportFailure("cut", "cut", sent=True)


def test_an_exchange_keeps_what_was_answered() -> None:
    exchange = MemoryExchange("POST", "/v1/x?a=b", headers=[(b"x", b"y")], body=b"hi")
    same: Exchange = exchange
    assert (same.head.path, same.head.query, same.head.header(b"x")) == ("/v1/x", "a=b", b"y")
    assert same.head.header_all(b"x") == [b"y"]
    assert same.head.header(b"z") is None
    same.start(200, [(b"a", b"b")])
    same.write(b"one")
    same.finish(b"two")
    assert (exchange.status, exchange.body_out, exchange.writes) == (200, b"onetwo", [b"one", b"two"])
    assert (exchange.header_out(b"a"), exchange.header_out(b"z")) == (b"b", None)
    assert (exchange.state, exchange.bytes_out, exchange.closed) == ("finished", 6, False)
    exchange.abort()
    exchange.disconnect()
    assert exchange.state == "finished"


def test_an_exchange_minds_the_order() -> None:
    exchange = MemoryExchange()
    with pytest.raises(AssertionError):
        exchange.write(b"x")
    exchange.respond(200, [], b"")
    with pytest.raises(AssertionError):
        exchange.start(200, [])
    assert exchange.length == 0


def test_a_client_that_leaves() -> None:
    exchange = MemoryExchange()
    seen: list[str] = []
    exchange.on_disconnect = lambda: seen.append("left")
    exchange.disconnect()
    exchange.disconnect()
    exchange.respond(200, [], b"x")
    exchange.write(b"x")
    exchange.finish()
    exchange.abort()
    assert seen == ["left"]
    assert (exchange.closed, exchange.state, exchange.writes) == (True, "left", [])
    aborted = MemoryExchange()
    aborted.abort()
    aborted.disconnect()
    assert aborted.state == "aborted"


def test_a_slow_client() -> None:
    exchange = MemoryExchange()
    exchange.pause()
    assert exchange.paused
    exchange.resume()
    seen: list[str] = []
    exchange.on_pause = lambda: seen.append("pause")
    exchange.on_resume = lambda: seen.append("resume")
    exchange.pause()
    exchange.resume()
    assert seen == ["pause", "resume"]


def test_responses_by_hand() -> None:
    client = MemoryClient()
    same: UpstreamClient = client
    told = Told()
    same.send(ORIGIN, REQUEST, told, connect_timeout_s=1)
    (upstream,) = client.sent
    assert (upstream.origin, upstream.request) == (ORIGIN, REQUEST)
    assert client.stats() == {"sent": 1, "open": 1}
    upstream.response(200, [(b"a", b"b")])
    upstream.read(b"one", b"two")
    upstream.end(b"three")
    upstream.end()
    upstream.fail(CUT)
    assert told.events == [
        ("response", 200), ("body", b"one"), ("body", b"two"), ("read_end",), ("body", b"three"), ("end", "complete"),
    ]  # fmt: skip
    upstream.abort()
    assert not upstream.aborted
    client.close()
    with pytest.raises(AssertionError):
        client.send(ORIGIN, REQUEST, told, connect_timeout_s=1)


def test_nothing_is_told_after_an_abort() -> None:
    client, told = MemoryClient(), Told()
    upstream = client.send(ORIGIN, REQUEST, told, connect_timeout_s=1)
    told.on_piece = upstream.abort
    upstream.response()
    upstream.read(b"one", b"two")
    upstream.response()
    upstream.end(b"x")
    upstream.fail(CUT)
    assert told.events == [("response", 200), ("body", b"one")]
    assert upstream.aborted


async def test_scripts_play_in_order_and_wait_while_paused() -> None:
    client = MemoryClient(Script(201, [(b"a", b"b")], ((b"1", b"2"), (b"3",))), Script(0, failure=CUT))
    told = Told()
    upstream = client.send(ORIGIN, REQUEST, told, connect_timeout_s=1)
    assert told.events == []
    upstream.pause_reading()
    await asyncio.sleep(0.01)
    assert told.events == []
    upstream.resume_reading()
    await told.ended()
    assert told.events == [
        ("response", 201), ("body", b"1"), ("body", b"2"), ("read_end",), ("body", b"3"), ("read_end",), ("end", "complete"),
    ]  # fmt: skip
    failing = Told()
    client.send(ORIGIN, REQUEST, failing, connect_timeout_s=1)
    await failing.ended()
    assert failing.events == [("failure", "cut")]
