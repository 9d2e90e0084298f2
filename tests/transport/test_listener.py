"""The native server on real sockets, relaying to the native client: leaving, lingering, draining, pushing back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator

import pytest
import trustme

from strom.transport import Listener, NativeClient
from strom.transport.types import Exchange, Handler, Origin, OutgoingRequest, ServerLimits
from tests.patience import PATIENCE_S
from tests.transport.fakes import GET, Told, post, request
from tests.transport.loops import on_both_loops


class Desk:
    """A handler that keeps its exchanges and tells when one came or was left."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.came = asyncio.Event()
        self.left = asyncio.Event()

    def __call__(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        exchange.on_disconnect = self.left.set
        if exchange.refusal is not None:
            exchange.respond(exchange.refusal.status, [], exchange.refusal.reason.encode())
        self.came.set()

    async def one(self) -> Exchange:
        await asyncio.wait_for(self.came.wait(), PATIENCE_S)
        return self.exchanges[-1]


@contextlib.asynccontextmanager
async def listening(handler: Handler, limits: ServerLimits | None = None) -> AsyncIterator[Listener]:
    listener = Listener(handler, limits)
    await listener.start("127.0.0.1", 0)
    try:
        yield listener
    finally:
        await listener.close()


async def dial(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port)


@on_both_loops
async def test_a_stream_end_to_end() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        client, told = NativeClient(environ={}), Told()
        origin = Origin("http", "127.0.0.1", listener.port)
        client.send(origin, OutgoingRequest("POST", "/", [], b"hi"), told, connect_timeout_s=5)
        exchange = await desk.one()
        assert exchange.body == b"hi"
        assert exchange.head.peer == "127.0.0.1"
        assert listener.open_exchanges == 1
        exchange.start(200, [])
        exchange.write(b"one")
        await asyncio.wait_for(told.began.wait(), PATIENCE_S)
        assert told.body == b"one"
        exchange.finish(b"two")
        await told.ended()
        assert told.body == b"onetwo"
        assert listener.open_exchanges == 0
        assert listener.open_connections == 1
        client.close()


@on_both_loops
@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("phase", ["before the head", "in silence", "flowing"])
async def test_leaving_is_noticed_at_once(phase: str, how: str) -> None:
    desk = Desk()
    async with listening(desk) as listener:
        reader, writer = await dial(listener)
        writer.write(GET)
        exchange = await desk.one()
        if phase != "before the head":
            exchange.start(200, [])
            exchange.write(b"one")
            await reader.readuntil(b"one\r\n")
        if phase == "flowing":
            exchange.write(b"x" * 1_000_000)
        began = asyncio.get_running_loop().time()
        if how == "half-close":
            writer.write_eof()
        elif how == "reset":
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()
        await asyncio.wait_for(desk.left.wait(), PATIENCE_S)
        assert asyncio.get_running_loop().time() - began < 1.0
        assert exchange.closed
        exchange.write(b"to nobody")
        exchange.finish()
        writer.close()


@on_both_loops
async def test_a_client_that_goes_on_sending_reads_the_413() -> None:
    async with listening(Desk(), ServerLimits(max_body_bytes=1000)) as listener:
        reader, writer = await dial(listener)
        writer.write(post(b"x" * 20_000_000))
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"body_too_large")
        writer.close()


def blocking_upload(port: int) -> bytes:
    """Sends everything and only then reads, as simple clients do."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.settimeout(10)
        with contextlib.suppress(ConnectionError):
            raw.sendall(post(b"x" * 20_000_000))
        return raw.recv(65_536)


@on_both_loops
async def test_a_client_that_reads_only_afterwards_reads_the_413() -> None:
    async with listening(Desk(), ServerLimits(max_body_bytes=1000)) as listener:
        answer = await asyncio.to_thread(blocking_upload, listener.port)
        assert answer.startswith(b"HTTP/1.1 413 ")


@on_both_loops
async def test_a_client_that_does_not_read_is_not_buffered_for() -> None:
    desk = Desk()
    async with listening(desk, ServerLimits(write_high_water_bytes=65_536)) as listener:
        raw = socket.create_connection(("127.0.0.1", listener.port))
        raw.sendall(GET)
        exchange = await desk.one()
        paused, resumed = asyncio.Event(), asyncio.Event()
        exchange.on_pause, exchange.on_resume = paused.set, resumed.set
        exchange.start(200, [])
        sent = 0
        while not exchange.paused:
            exchange.write(b"x" * 50_000)
            sent += 50_000
            await asyncio.sleep(0)
            assert sent < 100_000_000
        assert paused.is_set()
        taker = asyncio.to_thread(lambda: [raw.recv(1_000_000) for _ in range(sent // 1_000_000 + 20) if sent])
        reading = asyncio.create_task(taker)
        await asyncio.wait_for(resumed.wait(), PATIENCE_S)
        exchange.abort()
        raw.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            await reading
        raw.close()


@on_both_loops
async def test_abort_after_a_piece_delivers_the_piece_and_no_end() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        reader, writer = await dial(listener)
        writer.write(GET)
        exchange = await desk.one()
        exchange.start(200, [])
        exchange.write(b"last words")
        exchange.abort()
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.endswith(b"last words\r\n")
        writer.close()


@on_both_loops
async def test_abort_of_a_body_delimited_by_close_is_a_reset() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        reader, writer = await dial(listener)
        writer.write(request(b"GET / HTTP/1.0"))
        exchange = await desk.one()
        exchange.start(200, [])
        exchange.write(b"some")
        await asyncio.wait_for(reader.readuntil(b"some"), PATIENCE_S)
        exchange.abort()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()


@on_both_loops
async def test_draining() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        port = listener.port
        idle_reader, idle_writer = await dial(listener)
        busy_reader, busy_writer = await dial(listener)
        busy_writer.write(GET)
        exchange = await desk.one()
        exchange.start(200, [])
        exchange.write(b"one")
        draining = asyncio.create_task(listener.drain(5))
        assert await asyncio.wait_for(idle_reader.read(), PATIENCE_S) == b""
        with pytest.raises(OSError, match=r".*"):
            await asyncio.open_connection("127.0.0.1", port)
        assert not draining.done()
        exchange.finish(b"two")
        assert (await asyncio.wait_for(busy_reader.read(), PATIENCE_S)).endswith(b"two\r\n0\r\n\r\n")
        await asyncio.wait_for(draining, PATIENCE_S)
        assert listener.open_connections == 0
        idle_writer.close()
        busy_writer.close()


@on_both_loops
async def test_draining_cuts_after_the_grace() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        _, writer = await dial(listener)
        writer.write(GET)
        exchange = await desk.one()
        await asyncio.wait_for(listener.drain(0.05), PATIENCE_S)
        assert exchange.closed
        assert desk.left.is_set()
        assert listener.open_connections == 0
        writer.close()


@on_both_loops
async def test_tls_and_shared_ports() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    listener = Listener(lambda exchange: exchange.respond(200, [], b"ok"))
    await listener.start("127.0.0.1", 0, ssl_context=server, reuse_port=True)
    other = Listener(lambda exchange: exchange.respond(200, [], b"ok"))
    await other.start("127.0.0.1", listener.port, ssl_context=server, reuse_port=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client, server_hostname="localhost")
    writer.write(request(b"GET / HTTP/1.1", b"Connection: close"))
    assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).endswith(b"ok")
    writer.close()
    await other.close()
    await listener.close()


@on_both_loops
async def test_nodelay_is_set_on_accepted_connections() -> None:
    desk = Desk()
    async with listening(desk) as listener:
        _, writer = await dial(listener)
        writer.write(GET)
        await desk.one()
        (connection,) = listener._connections
        raw = connection.transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        writer.close()


async def test_an_address_in_use() -> None:
    async with listening(Desk()) as listener:
        other = Listener(Desk())
        with pytest.raises(OSError, match="in use"):
            await other.start("127.0.0.1", listener.port)
        with pytest.raises(RuntimeError, match="listening"):
            _ = other.port
        await other.close()
