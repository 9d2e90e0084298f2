"""The upstream client on real sockets, under asyncio's loop and uvloop."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Iterator

import pytest
import uvloop

from strom.transport.client import NativeClient
from strom.transport.types import OutgoingRequest
from tests.patience import PATIENCE_S, until
from tests.transport.fakes import Told
from tests.transport.loops import on_both_loops
from tests.transport.servers import Peer, fixed, peer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
POST = OutgoingRequest("POST", "/v1/x?y=z", [(b"content-type", b"text/plain")], b"hello")


@pytest.fixture
def client() -> Iterator[NativeClient]:
    it = NativeClient(environ={})
    yield it
    it.close()


async def call(client: NativeClient, it: Peer, request: OutgoingRequest = POST) -> Told:
    told = Told()
    client.send(it.origin(), request, told, connect_timeout_s=PATIENCE_S)
    assert told.events == []
    await told.ended()
    return told


@on_both_loops
async def test_request_and_reuse(client: NativeClient) -> None:
    async with peer(fixed(OK)) as it:
        for _ in range(3):
            assert (await call(client, it)).body == b"ok"
        assert it.connections == 1
        assert it.requests[0] == (
            b"POST /v1/x?y=z HTTP/1.1\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n"
            b"host: 127.0.0.1:%d\r\nconnection: keep-alive\r\n\r\nhello" % it.port
        )
        assert client.stats() == {"idle": 1, "connecting": 0, "opened": 1, "reused": 2, "sent_again": 0}


@on_both_loops
async def test_a_get_has_no_content_length(client: NativeClient) -> None:
    async with peer(fixed(OK)) as it:
        await call(client, it, OutgoingRequest("GET", "/", []))
        assert b"content-length" not in it.requests[0]
        await call(client, it, OutgoingRequest("POST", "/", []))
        assert b"content-length: 0\r\n" in it.requests[1]


@on_both_loops
async def test_the_youngest_idle_connection_comes_first(client: NativeClient) -> None:
    async with peer(fixed(OK)) as it:
        await asyncio.gather(*(call(client, it) for _ in range(3)))
        assert it.connections == 3
        for _ in range(5):
            await call(client, it)
        assert it.connections == 3
        assert client.stats()["idle"] == 3


@on_both_loops
async def test_idle_connections_are_closed_in_time() -> None:
    client = NativeClient(idle_s=0.4, environ={})
    async with peer(fixed(OK)) as it:
        await call(client, it)
        assert client.stats()["idle"] == 1
        await asyncio.wait_for(it.ended.wait(), PATIENCE_S)
        assert client.stats()["idle"] == 0
        await call(client, it)
        assert it.connections == 2
    client.close()


@on_both_loops
async def test_a_stale_connection_is_replaced_unnoticed(client: NativeClient) -> None:
    async def answer(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(it.requests) == 2:  # the second request dies unanswered
            writer.transport.abort()
        else:
            await fixed(OK)(request, reader, writer)

    async with peer(answer) as it:
        await call(client, it)
        assert (await call(client, it)).body == b"ok"
        assert it.requests[1] == it.requests[2]
        assert client.stats()["sent_again"] == 1


@on_both_loops
async def test_an_idle_connection_closed_by_the_upstream_is_dropped(client: NativeClient) -> None:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with peer(answer) as it:
        await call(client, it)
        await asyncio.wait_for(it.ended.wait(), PATIENCE_S)
        await until(lambda: not client.stats()["idle"])


@on_both_loops
async def test_a_fresh_connection_that_ends_is_a_failure(client: NativeClient) -> None:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with peer(answer) as it:
        told = await call(client, it)
        assert told.failure.kind == "closed_before_response"
        assert told.failure.sent
        assert len(it.requests) == 1


@on_both_loops
async def test_delimited_by_close(client: NativeClient) -> None:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        await writer.drain()
        writer.write(b"data: 2\n\n")
        writer.close()

    async with peer(answer) as it:
        told = await call(client, it)
        assert told.body == b"data: 1\n\ndata: 2\n\n"
        assert told.outcome == "closed"


@on_both_loops
async def test_a_reset_mid_stream_is_a_cut(client: NativeClient) -> None:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with peer(answer) as it:
        told = await call(client, it)
        assert told.failure.kind == "cut"


@on_both_loops
async def test_gzip_pieces_leave_as_they_come(client: NativeClient) -> None:
    go_on = asyncio.Event()

    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(wbits=31)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        piece = packer.compress(b"data: 1\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await go_on.wait()
        piece = packer.compress(b"data: 2\n\n") + packer.flush()
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece))

    async with peer(answer) as it:
        told = Told()
        told.on_piece = go_on.set
        client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        await told.ended()
        assert told.body == b"data: 1\n\ndata: 2\n\n"
        assert client.stats()["idle"] == 1


@on_both_loops
async def test_a_paused_gzip_body_waits_and_then_ends(client: NativeClient) -> None:
    packed = gzip.compress(bytes(1_000_000))
    async with peer(
        fixed(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed))
    ) as it:
        told = Told()
        upstream = client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        first = asyncio.Event()

        def pause() -> None:
            upstream.pause_reading()
            first.set()

        told.on_piece = pause
        await asyncio.wait_for(first.wait(), PATIENCE_S)
        await asyncio.sleep(0.02)
        assert len(told.body) == 65_536
        assert told.outcome is None
        told.on_piece = None
        upstream.resume_reading()
        await told.ended()
        assert len(told.body) == 1_000_000


@on_both_loops
async def test_backpressure_reaches_the_upstream(client: NativeClient) -> None:
    total = 12_000_000

    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        writer.write(bytes(total))
        await writer.drain()

    async with peer(answer) as it:
        told = Told()
        upstream = client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        upstream.pause_reading()
        await asyncio.sleep(0.1)
        assert told.events == []
        upstream.resume_reading()
        await told.ended()
        assert len(told.body) == total


@pytest.mark.parametrize("when", ["connecting", "waiting", "mid-stream"])
@on_both_loops
async def test_abort_closes_the_upstream_at_once(client: NativeClient, when: str) -> None:
    async def answer(_request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if when == "mid-stream":
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await reader.read()

    async with peer(answer) as it:
        told = Told()
        upstream = client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        if when != "connecting":
            await asyncio.wait_for((told.began if when == "mid-stream" else it.asked).wait(), PATIENCE_S)
        before = list(told.events)
        upstream.abort()
        upstream.abort()
        if when != "connecting":
            await asyncio.wait_for(it.ended.wait(), PATIENCE_S)
        await asyncio.sleep(0.02)
        assert told.events == before
        assert client.stats()["connecting"] == 0


@on_both_loops
async def test_failures_to_connect(client: NativeClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        closed = probe.getsockname()[1]
    for host, port in (("127.0.0.1", closed), ("no-such-host.invalid", 80), ("127.0.0.1", 70_000), ("x" * 70, 80)):
        told = Told()
        origin = Peer(fixed(OK)).origin(host=host).__class__("http", host, port)
        client.send(origin, POST, told, connect_timeout_s=PATIENCE_S)
        assert told.outcome is None
        await told.ended()
        assert (told.failure.kind, told.failure.sent) == ("connect", False)


@on_both_loops
async def test_a_connection_that_does_not_come_times_out(client: NativeClient) -> None:
    # A listener whose queue is full answers nothing.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        await asyncio.sleep(0.05)
        told = Told()
        it = Peer(fixed(OK))
        it.port = address[1]
        client.send(it.origin(), POST, told, connect_timeout_s=0.1)
        await told.ended()
        assert told.failure.kind == "connect_timeout"
        for filler in fillers:
            filler.close()


@on_both_loops
async def test_a_closed_client_refuses(client: NativeClient) -> None:
    async with peer(fixed(OK)) as it:
        await call(client, it)
        client.close()
        told = Told()
        client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        assert told.outcome is None
        await told.ended()
        assert told.failure.kind == "connect"
        await asyncio.wait_for(it.ended.wait(), PATIENCE_S)


@pytest.mark.parametrize(
    "request_",
    [
        OutgoingRequest("POST", "/a b", []),
        OutgoingRequest("POST", "/a\r\nX: y", []),
        OutgoingRequest("PO ST", "/", []),
        OutgoingRequest("POST", "/", [(b"x", b"a\r\nb: c")]),
        OutgoingRequest("POST", "/", [(b"host", b"a")]),
        OutgoingRequest("POST", "/", [(b"content-length", b"1")]),
    ],
)
@on_both_loops
async def test_requests_that_are_none(client: NativeClient, request_: OutgoingRequest) -> None:
    with pytest.raises(ValueError, match=r"not a|header"):
        client.send(Peer(fixed(OK)).origin(), request_, Told(), connect_timeout_s=PATIENCE_S)


@on_both_loops
async def test_a_host_that_is_none(client: NativeClient) -> None:
    with pytest.raises(ValueError, match="host"):
        client.send(Peer(fixed(OK)).origin(host="a\r\nb"), POST, Told(), connect_timeout_s=PATIENCE_S)


@on_both_loops
async def test_what_a_receiver_raises_reaches_the_loop(client: NativeClient) -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))

    class Raising(Told):
        def on_body(self, data: bytes) -> None:
            raise LookupError("mine")

    async with peer(fixed(OK)) as it:
        told = Raising()
        client.send(it.origin(), POST, told, connect_timeout_s=PATIENCE_S)
        await told.ended()
        assert told.failure.kind == "protocol"
        assert any(isinstance(error, LookupError) for error in reported)
        assert (await call(client, it)).body == b"ok"


def test_one_client_in_one_loop_after_the_other() -> None:
    client = NativeClient(environ={})

    async def once() -> None:
        async with peer(fixed(OK)) as it:
            assert (await call(client, it)).body == b"ok"
            assert client.stats()["idle"] == 1

    asyncio.run(once())
    uvloop.run(once())
    client.close()


@on_both_loops
async def test_a_loop_that_runs_in_another_thread_is_not_taken_for_this_one(client: NativeClient) -> None:
    async def elsewhere() -> bytes:
        async with peer(fixed(OK)) as it:
            await call(client, it)
            return (await call(client, it)).body

    async with peer(fixed(OK)) as it:
        await call(client, it)
        assert await asyncio.to_thread(asyncio.run, elsewhere()) == b"ok"
        assert (await call(client, it)).body == b"ok"


@on_both_loops
async def test_nodelay_is_set(client: NativeClient) -> None:
    async with peer(fixed(OK)) as it:
        await call(client, it)
        (shelf,) = [route.shelf for route in client._routes.values()]
        (connection,) = shelf
        raw = connection._open_transport().get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
