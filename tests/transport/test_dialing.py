"""A name with several addresses: the next one is tried when one fails or is silent, and nothing is left open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from strom.transport import connect, dialing
from strom.transport.client import NativeClient
from strom.transport.dialing import Address, dial, take_turns
from strom.transport.types import OutgoingRequest
from tests.transport.fakes import Told
from tests.transport.loops import on_both_loops
from tests.transport.servers import fixed, peer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def v4(host: str, port: int) -> Address:
    return Address(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, (host, port))


def v6(host: str) -> Address:
    return Address(socket.AF_INET6, socket.SOCK_STREAM, 0, (host, 1, 0, 0))


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on loopback that answers no connection: its queue is full."""
    with socket.socket() as server, socket.socket() as one, socket.socket() as two:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port = server.getsockname()[1]
        for client in (one, two):
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        yield port


@pytest.fixture
def refusing() -> int:
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@on_both_loops
async def test_the_next_address_is_tried_when_one_refuses(refusing: int) -> None:
    async with peer(fixed(OK)) as it:
        with await dial([v4("127.0.0.1", refusing), v4("127.0.0.1", it.port)]) as connected:
            assert connected.getpeername()[1] == it.port


@on_both_loops
async def test_a_silent_address_costs_a_moment_only(silent: int) -> None:
    async with peer(fixed(OK)) as it:
        async with asyncio.timeout(dialing.STAGGER_S + 20):
            with await dial([v4("127.0.0.1", silent), v4("127.0.0.1", it.port)]) as connected:
                assert connected.getpeername()[1] == it.port


@on_both_loops
async def test_the_first_failure_is_told_when_all_fail(refusing: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        await dial([v4("127.0.0.1", refusing), v4("127.0.0.1", refusing)])


@on_both_loops
async def test_giving_up_leaves_no_attempt(silent: int) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await dial([v4("127.0.0.1", silent)] * 3)
    assert len(asyncio.all_tasks()) == 1


def test_families_take_turns() -> None:
    mixed = [v6("::1"), v6("::2"), v6("::3"), v4("a", 1), v4("b", 1)]
    assert [address.place[0] for address in take_turns(mixed)] == ["::1", "a", "::2", "b", "::3"]


@on_both_loops
async def test_the_client_reaches_a_name_by_its_second_address(monkeypatch: pytest.MonkeyPatch, refusing: int) -> None:
    async with peer(fixed(OK)) as it:

        async def resolve(_host: str, _port: int) -> list[Address]:
            return [v4("127.0.0.1", refusing), v4("127.0.0.1", it.port)]

        monkeypatch.setattr(connect, "resolve", resolve)
        client = NativeClient(environ={})
        told = Told()
        client.send(it.origin(host="two.test"), OutgoingRequest("GET", "/", []), told, connect_timeout_s=5)
        await told.ended()
        assert told.body == b"ok"
        (connection,) = client._pool._shelves[0]  # idle now
        assert connection._transport is not None
        raw = connection._transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.close()
