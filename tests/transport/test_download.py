"""One GET to a chosen address, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from strom.transport.connect import ConnectError, TlsContexts
from strom.transport.download import Downloaded, TooLong, download
from strom.transport.types import Origin, OutgoingRequest
from tests.patience import PATIENCE_S

ASK = OutgoingRequest("GET", "/a", [(b"accept", b"image/png")])


class _Trusting(TlsContexts):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def choose(self, origin: Origin) -> ssl.SSLContext:
        return self._context


async def ask(
    answer: bytes, host: str = "name.example", certificate: trustme.CA | None = None, max_bytes: int = 100
) -> tuple[Downloaded, bytes]:
    """What was downloaded from a server that answers so, and what it was asked."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    theirs = mine = None
    if certificate is not None:
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.issue_cert("name.example").configure_cert(theirs)
        mine = ssl.create_default_context()
        certificate.configure_trust(mine)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=theirs)
    async with server:
        port = server.sockets[0].getsockname()[1]
        origin = Origin("https" if mine else "http", host, port)
        tls = _Trusting(mine) if mine is not None else TlsContexts()
        found = await asyncio.wait_for(download(origin, "127.0.0.1", ASK, tls=tls, max_bytes=max_bytes), PATIENCE_S)
        return found, heard[0]


async def test_the_name_goes_along_and_the_address_is_connected_to() -> None:
    found, heard = await ask(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\nabc")
    assert (found.status, found.body) == (200, b"abc")
    assert (b"content-type", b"image/png") in found.headers
    assert heard.startswith(b"GET /a HTTP/1.1\r\n")
    assert b"\r\nhost: name.example:" in heard


async def test_a_certificate_is_verified_against_the_name() -> None:
    authority = trustme.CA()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"
    found, _ = await ask(answer, certificate=authority)
    assert found.body == b"x"
    with pytest.raises(ConnectError) as raised:
        await ask(answer, host="other.example", certificate=authority)
    assert raised.value.failure.kind == "tls"


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 101\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n",
        b"\r\n",
    ],
)
async def test_a_long_body_is_not_read_to_its_end(head: bytes) -> None:
    with pytest.raises(TooLong):
        await ask(b"HTTP/1.1 200 OK\r\n" + head + b"x" * 101)


async def test_of_another_status_the_head_is_enough() -> None:
    found, _ = await ask(b"HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 999\r\n\r\nxxx")
    assert (found.status, found.body) == (302, b"")
    assert (b"location", b"/b") in found.headers


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", b"nonsense\r\n\r\n"])
async def test_a_cut_is_an_error(answer: bytes) -> None:
    with pytest.raises(ConnectError):
        await ask(answer)


async def test_nobody_listens(free_port: int) -> None:
    with pytest.raises(ConnectError):
        await download(Origin("http", "x", free_port), "127.0.0.1", ASK, tls=TlsContexts(), max_bytes=9)
