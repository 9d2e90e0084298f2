"""Cut and resumed streams over real sockets: at two workers, at two replicas, and by the library through a line that breaks.

The short form of tools/resume_test.py, which cuts a thousand streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from strom import AsyncModel, Model, StreamFailed
from tests.e2e.processes import ask, gateway, upstream
from tests.patience import PATIENCE_S
from tools import resume_test
from tools.resume_backend import Backend, texts


async def test_streams_are_resumed_at_another_worker() -> None:
    outcome = await resume_test.at_two_workers(16, seed=3)
    assert (outcome.faults, outcome.streams, outcome.cuts) == ([], 16, 48)


async def test_streams_are_resumed_at_another_replica(redis_url: str) -> None:
    outcome = await resume_test.at_two_replicas(redis_url, 16, seed=4)
    assert (outcome.faults, outcome.streams, outcome.cuts) == ([], 16, 48)


class BreakingLine:
    """A line to a gateway that breaks after some bytes of each answer."""

    def __init__(self, url: str, longest_bytes: int) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._longest_bytes = longest_bytes
        self._draw = random.Random(5)
        self.breaks = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, and a part of its answer."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            head = re.sub(rb"\r\nconnection: [^\r\n]*", b"", head).replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
            there_writer.write(head + (await reader.readexactly(int(length[1])) if length else b""))
            left = self._draw.randrange(800, self._longest_bytes)
            while left > 0 and (data := await there_reader.read(min(left, 777))):
                writer.write(data)
                await writer.drain()
                left -= len(data)
            if left > 0:
                writer.close()  # that was all of it
        self.breaks += 1
        there_writer.transport.abort()
        if not writer.is_closing():
            writer.transport.abort()


async def test_the_library_goes_on_by_itself() -> None:
    """Text, and nothing but it, although every connection breaks in the middle of its answer."""
    backend = Backend()
    await backend.start()
    with contextlib.ExitStack() as stack:
        stack.callback(backend.close)
        running = await asyncio.to_thread(stack.enter_context, resume_test.gateways(backend.url, 1, 2))
        line = BreakingLine(running[0].url, 3000)
        async with line.open() as url:
            model = AsyncModel("chat/m", base_url=url, provider="generic", environ={})
            same = Model("chat/m", base_url=url, provider="generic", environ={})
            for seed in (11, 13, 15):
                replies = await asyncio.gather(
                    model.complete(str(seed), resume=True),
                    asyncio.to_thread(same.complete, str(seed), resume=True),
                    return_exceptions=True,
                )
                for reply in replies:
                    if isinstance(reply, StreamFailed):
                        pytest.fail(f"{reply!r}: {reply.detail}\n{running[0].log.read_text()}")
                    assert not isinstance(reply, BaseException), reply
                    assert reply.text == "".join(texts(seed))
                    assert (reply.metadata.resumed or 0) > 0
        assert line.breaks > 6


def test_a_worker_that_is_killed_takes_its_streams_with_it(tmp_path: Path) -> None:
    """They are gone, not silent; the other worker serves on."""
    with (
        upstream() as backend,
        gateway(
            tmp_path, "--workers", "2", "--backend", f"http://127.0.0.1:{backend.port}/v1", STROM_STORE_URL="memory://"
        ) as running,
    ):
        with httpx.stream(
            "POST",
            f"{running.url}/v1/chat/completions",
            json=ask("n=500 gap=0.05"),
            headers={"x-strom-resumable": "1"},
            timeout=PATIENCE_S,
        ) as answer:
            stream_id = answer.headers["x-strom-stream-id"]
            next(answer.iter_raw())
        for child in Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                found = httpx.get(f"{running.url}/v1/streams/{stream_id}", timeout=PATIENCE_S)
                assert (found.status_code, found.json()["error"]["code"]) == (404, "stream_not_found")
                return
            time.sleep(0.1)
        pytest.fail("the gateway did not come back")
