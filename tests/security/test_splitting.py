"""No value that another side gave becomes a line of a head: towards clients and towards backends, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from strom.app import Runtime
from strom.config.load import load_settings
from strom.config.settings import Overrides
from strom.transport import Listener
from tests.patience import PATIENCE_S
from tests.transport.servers import Answer, Peer, peer

CRLF = "\r\nx-injected: yes\r\n\r\n"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
REPLY = json.dumps(
    {"id": "1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
)


def reply(*lines: bytes) -> Answer:
    async def answer(_request: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = [b"HTTP/1.1 200 OK", b"content-type: application/json", b"content-length: %d" % len(REPLY), *lines]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n" + REPLY.encode())

    return answer


async def ask(it: Peer, message: bytes, folder: Path) -> bytes:
    """What a client gets for these bytes from a gateway before `it`."""
    config = folder / "strom.toml"
    config.write_text(
        f'[store]\nurl = "memory://"\n[[providers]]\nname = "p"\nbase_url = "http://127.0.0.1:{it.port}"\n'
    )
    runtime = Runtime(load_settings(config, Overrides(), {}))
    listener = Listener(runtime.front.handle)
    await listener.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(message)
        got = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        return got
    finally:
        await listener.close()
        await runtime.close()


def post(body: Mapping[str, object], *lines: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    data = json.dumps(body).encode()
    head = [
        b"POST %b HTTP/1.1" % path,
        b"Host: localhost",
        b"Connection: close",
        b"Content-Length: %d" % len(data),
        *lines,
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + data


def head_of(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[0].lower()


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/messages", b"/v1/responses", b"/api/chat"])
async def test_a_model_name_makes_no_line(path: bytes, tmp_path: Path) -> None:
    async with peer(reply()) as it:
        body = {**BODY, "model": f"m{CRLF}", "input": "hi", "max_tokens": 9, "stream": False, "store": False}
        got = await ask(it, post(body, path=path), tmp_path)
        assert b"x-injected" not in head_of(got)
        assert got.count(b"HTTP/1.1 ") == 1
        assert all(b"x-injected" not in head_of(request) for request in it.requests)


@pytest.mark.parametrize(
    "target", [b"/v1/models/%0d%0ax-injected:%20yes", b"/%0d%0ax-injected:%20yes", b"/platform/v1/traces/%0d%0ax"]
)
async def test_a_target_makes_no_line(target: bytes, tmp_path: Path) -> None:
    async with peer(reply()) as it:
        got = await ask(it, b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % target, tmp_path)
        assert b"x-injected" not in head_of(got)
        assert all(b"x-injected" not in head_of(request) for request in it.requests)


async def test_a_clients_headers_stay_here(tmp_path: Path) -> None:
    async with peer(reply()) as it:
        lines = [
            b"X-Own: sent",
            b"Cookie: a=b",
            b"Authorization: Bearer client",
            b"X-Forwarded-For: 1.2.3.4",
            b"traceparent: 00-1",
        ]
        got = await ask(it, post(BODY, *lines, b"User-Agent: curl/8"), tmp_path)
        assert got.startswith(b"HTTP/1.1 200")
        (request,) = it.requests
        for name in (b"x-own", b"cookie", b"authorization", b"x-forwarded-for", b"curl/8", b"1.2.3.4"):
            assert name not in head_of(request)


@pytest.mark.parametrize("value", [b"a\rX-Injected: yes", b"a\nX-Injected: yes", b"a\0b", b"a\r\n X-Injected: yes"])
async def test_a_backends_broken_header_breaks_its_answer_alone(value: bytes, tmp_path: Path) -> None:
    async with peer(reply(b"x-request-id: " + value)) as it:
        got = await ask(it, post(BODY), tmp_path)
        assert b"\nx-injected" not in head_of(got)
        assert got.count(b"HTTP/1.1 ") == 1


async def test_a_backends_headers_are_not_passed_on(tmp_path: Path) -> None:
    lines = [
        b"Set-Cookie: a=b",
        b"Server: inner/1",
        b"X-Own: sent",
        b"Access-Control-Allow-Origin: *",
        b"Location: http://b",
    ]
    async with peer(reply(*lines)) as it:
        got = head_of(await ask(it, post(BODY), tmp_path))
        assert got.startswith(b"http/1.1 200")
        for name in (b"set-cookie", b"server:", b"x-own", b"access-control", b"location"):
            assert name not in got
