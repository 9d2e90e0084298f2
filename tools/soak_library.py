"""Streams that are opened and abandoned leave nothing behind.  soak_library.py [STREAMS]

A server in a process of its own answers every request with one token and then with silence. STREAMS streams (default 10,000)
are opened, read to their first token and left, in turn in every way there is: closed, cancelled, dropped, their reading task
cancelled, or never started; half of them sync, half async. After a tenth of them (warm-up) and at the end, open files, threads,
tasks, connections at the server and resident memory are counted; the exit code says whether anything stayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import strom

MODEL = "soak"
MOST_MEMORY_BYTES = 8 * 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


# --- the server --------------------------------------------------------------------------------------


async def serve() -> None:
    """GET is answered with the number of other connections that stand."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                count = b"%d" % (connections - 1)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(count), count)
                )
            else:
                writer.write(HEAD + b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
                while await reader.read(65536):
                    pass
        connections -= 1
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait(10)


# --- the streams -------------------------------------------------------------------------------------


def abandon(model: strom.Model, number: int) -> None:
    stream = model.stream("x")
    if number % 4 == 3:
        return
    next(stream)
    if number % 4 == 0:
        stream.close()
    elif number % 4 == 1:
        stream.cancel()


async def abandon_async(model: strom.AsyncModel, number: int) -> None:
    stream = model.stream("x")
    match number % 5:
        case 0:
            await anext(stream)
            await stream.aclose()
        case 1:
            await anext(stream)
            stream.cancel()
        case 2:
            await anext(stream)
        case 3:
            reading = asyncio.ensure_future(stream.reply())
            await asyncio.sleep(0.002)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        case _:
            pass


# --- what stays --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """`connections`: at the server."""

    files: int
    threads: int
    tasks: int
    connections: int
    memory_bytes: int

    def __str__(self) -> str:
        parts = (
            f"{self.files} files",
            f"{self.threads} threads",
            f"{self.tasks} tasks",
            f"{self.connections} connections",
        )
        return ", ".join((*parts, f"{self.memory_bytes / 1e6:.1f} MB"))


async def count(url: str) -> Count:
    """Once everything that is on its way out has gone, or after five seconds."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + 5
    while True:
        gc.collect()
        await asyncio.sleep(0.02)
        reply = await asyncio.to_thread(opener.open, url)
        connections = int(reply.read())
        reply.close()
        if connections == 0 or time.monotonic() > end:
            files = len(os.listdir("/dev/fd"))
            return Count(files, threading.active_count(), len(asyncio.all_tasks()), connections, _resident_bytes())


def _resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes, and the most there ever was


def stayed(before: Count, after: Count) -> list[str]:
    """What is more than before, in words; memory may grow a little."""
    grown = [
        f"{name}: {was} before, {now} after"
        for name in ("files", "threads", "tasks", "connections")
        if (now := getattr(after, name)) > (was := getattr(before, name))
    ]
    if after.memory_bytes - before.memory_bytes > MOST_MEMORY_BYTES:
        grown.append(f"memory: {(after.memory_bytes - before.memory_bytes) / 1e6:.1f} MB more")
    return grown


async def soak(streams: int, url: str) -> tuple[Count, Count]:
    """Counted after a tenth of the streams, and after all."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # it would start threads as it likes
    sync, other = strom.Model(MODEL, base_url=url), strom.AsyncModel(MODEL, base_url=url)

    async def some(numbers: range) -> None:
        for number in numbers:
            if number % 2:
                await asyncio.to_thread(abandon, sync, number // 2)
            else:
                await abandon_async(other, number // 2)

    await some(range(streams // 10))
    before = await count(url)
    await some(range(streams // 10, streams))
    return before, await count(url)


def main(streams: int) -> int:
    started = time.monotonic()
    with running_server() as url:
        before, after = asyncio.run(soak(streams, url))
    found = stayed(before, after)
    print(f"{streams} streams opened and abandoned in {time.monotonic() - started:.1f} s")
    print(f"after a tenth: {before}\nat the end:    {after}")
    print("left behind: " + "; ".join(found) if found else "nothing stayed")
    return 1 if found else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve"]:
            asyncio.run(serve())
        case [streams]:
            sys.exit(main(int(streams)))
        case _:
            sys.exit(main(10_000))
