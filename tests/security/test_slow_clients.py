"""Clients that take for ever, over real sockets: each is let go in bounded time, and the others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

import trustme

from strom.transport import Listener
from strom.transport.types import Exchange, ServerLimits
from tests.patience import PATIENCE_S, until
from tests.transport.loops import on_both_loops

LIMITS = ServerLimits(
    head_timeout_s=0.8, body_timeout_s=0.8, keep_alive_s=0.8, slow_reader_s=0.8, min_body_bytes_per_s=2000
)
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.test\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def answer(exchange: Exchange) -> None:
    if exchange.refusal is not None:
        exchange.respond(exchange.refusal.status, [], exchange.refusal.reason.encode())
    else:
        exchange.respond(200, [], b"x" * (1_000_000 if exchange.head.path == "/large" else 2))


@contextlib.asynccontextmanager
async def serving(
    limits: ServerLimits = LIMITS, handler: Callable[[Exchange], None] = answer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Listener]:
    listener = Listener(handler, limits)
    await listener.start("127.0.0.1", 0, ssl_context=tls)
    try:
        yield listener
    finally:
        await listener.close()


async def drip(streams: Streams, opening: bytes, drop: bytes) -> bytes:
    """Sends `drop` every now and then, and returns what the server said when it had enough."""
    reader, writer = streams

    async def send() -> None:
        writer.write(opening)
        while True:
            await asyncio.sleep(0.05)
            writer.write(drop)

    sending, got = asyncio.create_task(send()), b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while data := await reader.read(65_536):
                got += data
    except ConnectionError:  # a reset, because it went on sending
        pass
    finally:
        sending.cancel()
        writer.close()
    return got


SLOW: list[tuple[bytes, bytes, bytes]] = [
    (b"", b"", b""),
    (b"", b"\r\n", b""),
    (b"G", b"", b"408"),
    (b"GET / HTTP/1.1\r\nHost: a.test\r\nX: ", b"y", b"408"),
    (b"GET / HTTP/1.1\r\nHost: a.test\r\n", b"X: y\r\n", b"408"),
    (POST + b"Content-Length: 100000\r\n\r\n", b"", b"408"),
    (POST + b"Content-Length: 100000\r\n\r\n", b"y", b"408"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\ny\r\n", b"408"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n5;e=", b"y", b"408"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", b"408"),
    (GET, b"", b"200"),
    (GET, b"\r\n", b"200"),
]
"""What is sent first, what drips after it, and the status of the one answer, if any."""


@on_both_loops
async def test_a_crowd_of_slow_senders_is_let_go() -> None:
    async def one(case: tuple[bytes, bytes, bytes]) -> None:
        opening, drop, status = case
        got = await drip(await asyncio.open_connection("127.0.0.1", listener.port), opening, drop)
        assert got[9:12] == status, (case, got)
        assert got.count(b"HTTP/1.1") <= 1

    async with serving() as listener:
        slow = asyncio.gather(*(one(case) for case in SLOW * 8))
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(GET)
            assert b"200 OK" in await asyncio.wait_for(reader.read(1000), PATIENCE_S)
            writer.close()
        await slow
        assert listener.intake.held_bytes == 0
        await until(lambda: not listener.open_connections)


@on_both_loops
async def test_who_begins_no_handshake_is_let_go() -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    async with serving(tls=context) as listener:
        assert await drip(await asyncio.open_connection("127.0.0.1", listener.port), b"", b"") == b""
        # A record that never becomes whole.
        begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
        assert await drip(await asyncio.open_connection("127.0.0.1", listener.port), begun, b"\x03") == b""


class Flood:
    """Pipelines requests for large answers and reads none of them."""

    def __init__(self) -> None:
        self.answered = 0

    def __call__(self, exchange: Exchange) -> None:
        self.answered += 1
        answer(exchange)


@on_both_loops
async def test_who_asks_much_and_reads_nothing_is_held_to_a_few_answers_and_dropped() -> None:
    flood = Flood()
    async with serving(handler=flood) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET.replace(b"/ ", b"/large ") * 2000)
        await until(lambda: listener.open_connections == 1)
        await until(lambda: listener.open_connections == 0)
        # What the kernel's buffers took, and one.
        assert 1 <= flood.answered < 20
        writer.transport.abort()


@on_both_loops
async def test_who_reads_slowly_but_reads_gets_everything() -> None:
    async with serving(ServerLimits(keep_alive_s=0.2, slow_reader_s=PATIENCE_S)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=65_536)
        writer.write(GET.replace(b"/ ", b"/large ") * 8)
        got = 0
        while got < 8_000_000:
            data = await asyncio.wait_for(reader.read(400_000), PATIENCE_S)
            assert data, got
            got += len(data)
            await asyncio.sleep(0.02)
        writer.close()
