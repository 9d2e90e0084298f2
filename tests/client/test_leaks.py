"""Streams that nobody finishes leave nothing behind: no socket, no task, no thread, no memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc

import strom
from strom.transport.memory import MemoryClient
from tests.client.loopback import Loopback
from tests.client.rig import content
from tests.patience import wait_until

MANY = 1000


async def test_async_streams_opened_and_abandoned() -> None:
    transport = MemoryClient()
    model = strom.AsyncModel("m", base_url="http://upstream:1", transport=transport)

    async def leave_early(number: int) -> None:
        stream = model.stream("x")
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        sent = transport.sent.pop()
        sent.response(200, [(b"content-type", b"text/event-stream")])
        sent.read(content("a"))
        await waiting
        if number % 3 == 0:
            await stream.aclose()
        elif number % 3 == 1:
            stream.cancel()
        del stream, waiting
        await asyncio.sleep(0)
        assert sent.aborted

    for number in range(50):
        await leave_early(number)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(MANY):
        await leave_early(number)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 200_000, f"{grown} bytes stayed"
    assert len(asyncio.all_tasks()) == 1


async def test_async_streams_never_started_cost_nothing() -> None:
    transport = MemoryClient()
    model = strom.AsyncModel("m", base_url="http://upstream:1", transport=transport)
    for _ in range(MANY):
        model.stream("x")
    assert transport.sent == []


def test_sync_streams_opened_and_abandoned(backend: Loopback) -> None:
    model = strom.Model("m", base_url=backend.url)
    model.complete("warm up")
    threads = threading.active_count()
    for number in range(300):
        stream = model.stream("hang")
        next(stream)
        if number % 3 == 0:
            stream.close()
        elif number % 3 == 1:
            stream.cancel()
        del stream
    wait_until(lambda: backend.open <= 1)
    assert threading.active_count() == threads
    assert model.complete("still well").text == "still well "
