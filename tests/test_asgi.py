"""The gateway as an ASGI application: under a known ASGI server, and mounted without a lifespan."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from strom.asgi import Application, create_app
from strom.core.errors import ConfigError
from strom.transport.listener import Listener
from strom.transport.types import Exchange
from tests.patience import PATIENCE_S

CONFIG = """
[store]
url = "memory://"
[[providers]]
name = "mock"
base_url = "http://127.0.0.1:{port}/v1"
"""
FRAMES = [
    {"role": "assistant", "content": ""},
    {"content": "Hel"},
    {"content": "lo"},
]


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def backend(exchange: Exchange) -> None:
    exchange.start(200, [(b"content-type", b"text/event-stream")])
    for delta in FRAMES:
        exchange.write(chunk(delta))
    exchange.finish(chunk({}, "stop") + b"data: [DONE]\n\n")


async def run(app: Any, ask: Any) -> Any:
    """Serve `app` with uvicorn on a free port while `ask` runs."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # uvicorn tells it in no other way
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
        ) as client:
            return await ask(client)
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def app(tmp_path: Path) -> Any:
    upstream = Listener(backend)
    await upstream.start("127.0.0.1", 0)
    file = tmp_path / "strom.toml"
    file.write_text(CONFIG.format(port=upstream.port))
    yield create_app(file, {})
    await upstream.close()


BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


async def stream(client: httpx.AsyncClient) -> str:
    reply = await client.post("/v1/chat/completions", json=BODY)
    assert reply.status_code == 200
    assert reply.headers["x-strom-trace-id"] == reply.headers["x-request-id"]
    return reply.text


async def test_a_stream_through_uvicorn(app: Application) -> None:
    text = await run(app, stream)
    assert text.startswith((chunk(FRAMES[0]) + chunk(FRAMES[1])).decode())
    assert text.endswith("data: [DONE]\n\n")
    assert '"complete":true' in text


async def test_mounted_without_a_lifespan(app: Application) -> None:
    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        await app({**scope, "root_path": "/llm"}, receive, send)

    async def ask(client: httpx.AsyncClient) -> str:
        client.base_url = client.base_url.join("/llm")
        return await stream(client)

    assert "Hel" in await run(outer, ask)


def test_without_a_provider_it_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="STROM_CONFIG"):
        create_app(None, {})


def test_a_module_attribute_for_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "strom.toml"
    file.write_text(CONFIG.format(port=1))
    monkeypatch.setenv("STROM_CONFIG", str(file))
    import strom.asgi

    assert isinstance(strom.asgi.app, Application)
    with pytest.raises(AttributeError):
        strom.asgi.nothing  # noqa: B018
