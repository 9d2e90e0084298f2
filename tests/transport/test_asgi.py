"""The ASGI adapter, by hand and under uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
import uvicorn

from strom.transport.asgi import AsgiAdapter
from strom.transport.types import Exchange, ServerLimits
from tests.patience import PATIENCE_S, until
from tests.transport.fakes import GET, post, request
from tests.transport.loops import on_both_loops
from tests.transport.test_listener import Desk

SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "path": "/a b",
    "raw_path": b"/a%20b",
    "query_string": b"x=y",
    "headers": [(b"Content-Type", b"text/plain")],
    "client": ["192.0.2.7", 1],
}


class Server:
    """Plays an ASGI server: messages given, messages taken."""

    def __init__(self, *bodies: bytes, hold: bool = False) -> None:
        self.incoming: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        for at, body in enumerate(bodies):
            self.put("http.request", body=body, more_body=at < len(bodies) - 1)
        self.sent: list[MutableMapping[str, Any]] = []
        self.go_on = asyncio.Event()
        if not hold:
            self.go_on.set()

    def put(self, kind: str, **fields: Any) -> None:
        self.incoming.put_nowait({"type": kind, **fields})

    async def receive(self) -> MutableMapping[str, Any]:
        return await self.incoming.get()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.go_on.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent if message["type"] == "http.response.body")


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def serve(desk: Desk, server: Server, *, limits: ServerLimits | None = None, **scope: Any) -> asyncio.Task[None]:
    running = asyncio.create_task(AsgiAdapter(desk, limits)({**SCOPE, **scope}, server.receive, server.send))
    await turn()
    return running


async def test_request_and_stream() -> None:
    desk, server = Desk(), Server(b"one", b"two")
    running = await serve(desk, server)
    (exchange,) = desk.exchanges
    head = exchange.head
    assert (head.method, head.path, head.query, head.peer) == ("POST", "/a%20b", "x=y", "192.0.2.7")
    assert (head.headers, exchange.body) == ([(b"content-type", b"text/plain")], b"onetwo")
    exchange.start(200, [(b"a", b"b")])
    await turn()
    assert server.sent == []
    exchange.write(b"1")
    exchange.write(b"2")
    await turn()
    exchange.finish(b"3")
    await running
    assert server.sent == [
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b"), (b"connection", b"keep-alive")]},
        {"type": "http.response.body", "body": b"12", "more_body": True},
        {"type": "http.response.body", "body": b"3", "more_body": False},
    ]
    assert exchange.bytes_out == 3
    assert not exchange.closed


async def test_what_is_written_while_sending_goes_next() -> None:
    desk, server = Desk(), Server(b"", hold=True)
    running = await serve(desk, server, limits=ServerLimits(write_high_water_bytes=10))
    (exchange,) = desk.exchanges
    seen: list[str] = []
    exchange.on_pause = lambda: seen.append("pause")
    exchange.on_resume = lambda: seen.append("resume")
    exchange.start(200, [])
    exchange.write(b"x")
    await turn()
    exchange.write(b"y" * 11)
    exchange.write(b"z")
    assert exchange.paused
    assert seen == ["pause"]
    server.go_on.set()
    await turn()
    assert not exchange.paused
    assert seen == ["pause", "resume"]
    exchange.finish()
    await running
    assert server.body == b"x" + b"y" * 11 + b"z"


async def test_whole_responses() -> None:
    for method, status, headers, body in (
        ("GET", 200, [(b"content-length", b"2")], b"ok"),
        ("HEAD", 200, [(b"content-length", b"2")], b""),
        ("GET", 204, [], b""),
    ):
        desk, server = Desk(), Server(b"")
        running = await serve(desk, server, method=method)
        desk.exchanges[0].respond(status, [], b"ok" if status == 200 else b"")
        await running
        assert (server.sent[0]["headers"], server.body) == (headers, body)


async def test_the_path_without_raw_path_and_no_peer() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server, raw_path=None, client=None, http_version="2")
    exchange = desk.exchanges[0]
    assert (exchange.head.path, exchange.head.peer) == ("/a%20b", "")
    exchange.start(200, [])
    exchange.finish()
    await running
    assert server.sent[0]["headers"] == []


async def test_a_client_that_leaves() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    server.put("http.disconnect")
    await running
    exchange = desk.exchanges[0]
    assert desk.left.is_set()
    assert exchange.closed
    exchange.start(200, [])
    exchange.write(b"x")
    exchange.finish()
    exchange.respond(200, [], b"")
    exchange.abort()
    assert server.sent == []


async def test_a_client_that_leaves_amid_its_request() -> None:
    desk, server = Desk(), Server()
    server.put("http.request", body=b"x", more_body=True)
    server.put("http.disconnect")
    await (await serve(desk, server))
    assert desk.exchanges == []


async def test_send_that_fails_means_gone() -> None:
    desk, server = Desk(), Server(b"")

    async def send(_message: MutableMapping[str, Any]) -> None:
        raise OSError

    running = asyncio.create_task(AsgiAdapter(desk)(SCOPE, server.receive, send))
    await turn()
    desk.exchanges[0].start(200, [])
    desk.exchanges[0].write(b"x")
    await running
    assert desk.left.is_set()


async def test_cancellation_is_told_and_passed_on() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert desk.left.is_set()


async def test_abort_sends_what_was_written_and_no_end() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    exchange = desk.exchanges[0]
    exchange.start(200, [])
    exchange.write(b"x")
    exchange.abort()
    exchange.abort()
    await running
    assert server.sent[-1] == {"type": "http.response.body", "body": b"x", "more_body": True}
    assert not desk.left.is_set()


async def test_abort_before_anything() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    desk.exchanges[0].start(200, [])
    desk.exchanges[0].abort()
    await running
    assert server.sent == []


async def test_a_body_over_the_limit() -> None:
    limits = ServerLimits(max_body_bytes=3)
    for server, headers in ((Server(b"12", b"34"), []), (Server(), [(b"content-length", b"4")])):
        desk = Desk()
        await (await serve(desk, server, limits=limits, headers=headers))
        assert server.sent[0]["status"] == 413
        assert server.body == b"body_too_large"


async def test_misuse() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    exchange = desk.exchanges[0]
    with pytest.raises(RuntimeError):
        exchange.write(b"x")
    with pytest.raises(ValueError, match="header"):
        exchange.start(200, [(b"x", b"a\r\nb: c")])
    exchange.start(200, [], length=2)
    with pytest.raises(RuntimeError):
        exchange.start(200, [])
    with pytest.raises(ValueError, match="content-length"):
        exchange.write(b"abc")
    assert exchange.closed
    await running


async def test_less_than_told_is_an_abort() -> None:
    desk, server = Desk(), Server(b"")
    running = await serve(desk, server)
    desk.exchanges[0].start(200, [], length=2)
    desk.exchanges[0].finish(b"a")
    assert desk.exchanges[0].closed
    await running


async def test_websockets_are_refused_and_other_scopes_unknown() -> None:
    server = Server()
    server.put("websocket.connect")
    await AsgiAdapter(Desk())({"type": "websocket"}, server.receive, server.send)
    assert server.sent == [{"type": "websocket.close", "code": 1008}]
    with pytest.raises(ValueError, match="unknown"):
        await AsgiAdapter(Desk())({"type": "carrier-pigeon"}, server.receive, server.send)


async def test_lifespan_without_hooks() -> None:
    server = Server()
    server.put("lifespan.startup")
    server.put("lifespan.shutdown")
    await AsgiAdapter(Desk())({"type": "lifespan"}, server.receive, server.send)
    assert [message["type"] for message in server.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


# -- under uvicorn


class Hooks:
    def __init__(self) -> None:
        self.ran: list[str] = []

    async def start(self) -> None:
        self.ran.append("start")

    async def stop(self) -> None:
        self.ran.append("stop")


@contextlib.asynccontextmanager
async def uvicorn_with(app: AsgiAdapter) -> AsyncIterator[int]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="on")
    server = uvicorn.Server(config)
    # Its signal handlers are of no use here; everything else is as in `uvicorn module:app`.
    running = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(running, PATIENCE_S)


@on_both_loops
async def test_under_uvicorn() -> None:
    desk, hooks = Desk(), Hooks()
    app = AsgiAdapter(desk, ServerLimits(max_body_bytes=1000), hooks.start, hooks.stop)
    async with uvicorn_with(app) as port:
        assert hooks.ran == ["start"]
        await _stream(desk, port)
        await _leave(desk, port)
        await _abort(desk, port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(b"x" * 2000))
        assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"HTTP/1.1 413")
        writer.close()
    assert hooks.ran == ["start", "stop"]


async def _next(desk: Desk, port: int, message: bytes) -> tuple[Exchange, asyncio.StreamReader, asyncio.StreamWriter]:
    desk.came.clear()
    desk.left.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message)
    return await desk.one(), reader, writer


async def _stream(desk: Desk, port: int) -> None:
    exchange, reader, writer = await _next(
        desk, port, request(b"POST /v1?a=b HTTP/1.1", b"Content-Length: 2", body=b"hi")
    )
    assert (exchange.head.path, exchange.head.query, exchange.body) == ("/v1", "a=b", b"hi")
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    exchange.write(b"one")
    head = await asyncio.wait_for(reader.readuntil(b"one\r\n"), PATIENCE_S)
    assert b"connection: keep-alive\r\n" in head.lower()
    exchange.finish(b"two")
    assert (await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), PATIENCE_S)).startswith(b"3\r\ntwo\r\n")
    writer.close()


async def _leave(desk: Desk, port: int) -> None:
    exchange, _, writer = await _next(desk, port, GET)
    writer.close()
    await asyncio.wait_for(desk.left.wait(), PATIENCE_S)
    assert exchange.closed


async def _abort(desk: Desk, port: int) -> None:
    exchange, reader, writer = await _next(desk, port, GET)
    exchange.start(200, [])
    exchange.write(b"one")
    exchange.abort()
    assert (await asyncio.wait_for(reader.read(), PATIENCE_S)).endswith(b"one\r\n")
    writer.close()
