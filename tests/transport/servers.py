"""Small servers on loopback for tests of the client: scripted upstreams and a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from strom.transport.types import Origin

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body; b"" when the connection ends instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head + (await reader.readexactly(length) if length else b"")


class Peer:
    """Serves `answer` for every request and remembers requests, connections and ends."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()
        self.port = 0

    def origin(self, scheme: str = "http", host: str = "127.0.0.1", *, verify_tls: bool = True) -> Origin:
        return Origin("https" if scheme == "https" else "http", host, self.port, verify_tls)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await read_request(reader):
                self.requests.append(request)
                self.asked.set()
                await self._answer(request, reader, writer)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended.set()
            writer.close()


@contextlib.asynccontextmanager
async def peer(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    it = Peer(answer)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, ssl=tls)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()


def fixed(message: bytes) -> Answer:
    """Answers every request with the same bytes."""

    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(message)
        await writer.drain()

    return answer


async def tunnel(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A proxy's answer to CONNECT: a pipe to the same port on loopback, whatever the host is called."""
    port = int(request.split(b" ")[1].rsplit(b":", 1)[1])
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                sink.write(data)
        sink.close()

    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
