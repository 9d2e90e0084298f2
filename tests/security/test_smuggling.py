"""Request smuggling over real sockets, directly and through nginx: nobody gets a request answered that nobody sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strom.transport import Listener
from strom.transport.types import Exchange
from tests.patience import PATIENCE_S
from tests.security.smuggling import HIDDEN, MESSAGES
from tests.transport.loops import on_both_loops

NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else None)
FINAL = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")
QUIET_S = 0.15
CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 512; }}
http {{
  log_format line '$request_method $uri'; access_log {folder}/log line;
  client_max_body_size 0; large_client_header_buffers 4 128k;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream strom {{ server 127.0.0.1:{port}; keepalive 4; }}
  server {{
    listen unix:{folder}/nginx.sock;
    location / {{
      proxy_pass http://strom; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_request_buffering {buffering};
    }}
  }}
}}
"""


class Server:
    """Answers each request with its method and path. `asked`: what it answered, `refused`: what it would not read."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused = 0
        self.listener = Listener(self._answer)

    def _answer(self, exchange: Exchange) -> None:
        head = exchange.head
        if exchange.refusal is not None:
            self.refused += 1
            exchange.respond(exchange.refusal.status, [], b"refused")
            return
        self.asked.append(f"{head.method} {head.path}")
        exchange.respond(200, [(b"x-path", head.path.encode())], f"{head.method} {head.path}".encode())


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    await server.listener.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.listener.close()


async def exchange(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    *pieces: bytes,
    half_close: bool = False,
    patience_s: float = PATIENCE_S,
) -> bytes:
    """What comes back until the end, or for so long."""
    reader, writer = streams
    got = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if half_close:
            writer.write_eof()
        while True:
            data = await asyncio.wait_for(reader.read(65_536), patience_s)
            if not data:
                break
            got += data
    writer.close()
    return got


def judge(name: str, got: bytes) -> None:
    assert b"/hidden" not in got, name
    statuses = FINAL.findall(got)
    # Bytes behind a whole request are one that is refused, if they are none.
    assert all(status.startswith(b"4") for status in statuses[1:]), (name, got)
    assert len(statuses) <= 2, (name, got)


@on_both_loops
async def test_no_hidden_request_is_answered() -> None:
    async with serving() as server:
        for name, message in MESSAGES.items():
            head = message.find(b"\r\n\r\n") + 4
            cuts = [(message,), (message[:head], message[head:]), (message[: -len(HIDDEN)], HIDDEN)]
            for pieces in cuts:
                streams = await asyncio.open_connection("127.0.0.1", server.listener.port)
                judge(name, await exchange(streams, *filter(None, pieces), half_close=True))
        assert set(server.asked) <= {"POST /first", "GET /first", "HEAD /first"}
        assert server.refused > len(MESSAGES)


@on_both_loops
async def test_what_is_pipelined_openly_is_answered_in_order() -> None:
    async with serving() as server:
        streams = await asyncio.open_connection("127.0.0.1", server.listener.port)
        first = (
            b"POST /first HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"
        )
        got = await exchange(streams, first + HIDDEN, half_close=True)
        assert server.asked == ["POST /first", "GET /hidden"]
        assert got.index(b"x-path: /first") < got.index(b"x-path: /hidden")


@on_both_loops
async def test_a_kept_http_1_0_connection_serves_one_request_after_the_other() -> None:
    async with serving() as server:
        streams = await asyncio.open_connection("127.0.0.1", server.listener.port)
        one = b"GET /first HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        got = await exchange(streams, one + one, half_close=True)
        assert server.asked == ["GET /first"] * 2
        assert got.lower().count(b"connection: keep-alive") == 2


@contextlib.asynccontextmanager
async def nginx(folder: Path, port: int, *, buffering: str) -> AsyncIterator[str]:
    if NGINX is None:
        if os.environ.get("CI"):
            raise AssertionError("nginx is not installed")
        pytest.skip("nginx is not installed")
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, port=port, buffering=buffering))
    arguments = ["-p", str(folder), "-c", str(config), "-e", str(folder / "errors")]
    process = await asyncio.create_subprocess_exec(NGINX, *arguments)
    place = folder / "nginx.sock"
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not place.exists():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.02)
        yield str(place)
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE_S)


@pytest.mark.parametrize("buffering", ["on", "off"])
async def test_no_hidden_request_is_answered_behind_nginx(tmp_path: Path, buffering: str) -> None:
    """Whatever nginx takes for a request, the server answers no other, and shared connections stay in step.

    nginx reads some messages more leniently and passes them on in a form of its own: what it then counts as a second request
    is one for both.
    """
    async with serving() as server:
        gate = asyncio.Semaphore(16)

        async def attack(number: int, name: str, message: bytes) -> None:
            async with gate:
                await exchange(await asyncio.open_unix_connection(place), message, patience_s=QUIET_S)
                probe = b"GET /probe-%d HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n" % number
                got = await exchange(await asyncio.open_unix_connection(place), probe)
                assert b"GET /probe-%d" % number in got, (name, got)

        async with nginx(tmp_path, server.listener.port, buffering=buffering) as place:
            await asyncio.gather(*(attack(number, *item) for number, item in enumerate(MESSAGES.items())))
        passed_on = Counter((tmp_path / "log").read_text().splitlines())
        assert not Counter(server.asked) - passed_on
        assert {f"GET /probe-{number}" for number in range(len(MESSAGES))} <= set(server.asked)
