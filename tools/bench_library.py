"""CPU per event of the library, beside other clients that read the same loopback stream.  bench_library.py [EVENTS] [GAP_US]

A server in a process of its own sends a Chat stream of EVENTS deltas (default 5000), one write each, GAP_US microseconds
apart (default 200; 0: as fast as it can, then many events come in one read). Each client runs in a process of its own and
reads the stream several times; the best round counts. Printed: user and system time of the client per event, and the time
to the first event. Clients whose package is missing are left out.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator

ROUNDS = 4
MODEL = "bench"


# --- the server --------------------------------------------------------------------------------------


def frame(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(events: int, gap_us: int) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    deltas = [frame({"content": f" token{number % 97}"}) for number in range(events)]
    tail = frame({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(head + frame({"role": "assistant", "content": ""}))
            due = time.perf_counter()
            for delta in deltas:
                writer.write(delta)
                due += gap_us / 1e6
                while gap_us and time.perf_counter() < due:  # noqa: ASYNC110 - a busy wait keeps the gap exact
                    await asyncio.sleep(0)
            writer.write(tail)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def read_request(reader: asyncio.StreamReader) -> bool:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))
    return True


# --- the clients: each gives something for every delta -------------------------------------------------


def strom_sync(url: str) -> Iterator[object]:
    import strom

    for event in strom.Model(MODEL, base_url=url).stream("go"):
        if type(event) is strom.StreamContent:
            yield event.text


async def strom_async(url: str) -> AsyncIterator[object]:
    import strom

    async for event in strom.AsyncModel(MODEL, base_url=url).stream("go"):
        if type(event) is strom.StreamContent:
            yield event.text


def openai_sync(url: str) -> Iterator[object]:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    for chunk in client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "go"}], stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def openai_async(url: str) -> AsyncIterator[object]:
    import openai

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    create = client.chat.completions.create
    async for chunk in await create(model=MODEL, messages=[{"role": "user", "content": "go"}], stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def httpx_lines(url: str) -> Iterator[object]:
    """The least a program can do over httpx: lines and json, no rules."""
    import httpx

    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content"):
                    yield delta["content"]


SYNC: dict[str, Callable[[str], Iterator[object]]] = {
    "strom": strom_sync,
    "openai": openai_sync,
    "httpx": httpx_lines,
}
ASYNC: dict[str, Callable[[str], AsyncIterator[object]]] = {"strom-async": strom_async, "openai-async": openai_async}


def read_once(name: str, url: str, loop: asyncio.AbstractEventLoop) -> tuple[int, float, float]:
    """Events, CPU seconds, seconds to the first event."""
    started, cpu = time.perf_counter(), time.process_time()
    first, count = 0.0, 0
    if name in SYNC:
        for _ in SYNC[name](url):
            first = first or time.perf_counter() - started
            count += 1
        return count, time.process_time() - cpu, first

    async def read() -> None:
        nonlocal first, count
        async for _ in ASYNC[name](url):
            first = first or time.perf_counter() - started
            count += 1

    loop.run_until_complete(read())
    return count, time.process_time() - cpu, first


def client(name: str, url: str) -> None:
    loop = asyncio.new_event_loop()
    rounds = [read_once(name, url, loop) for _ in range(ROUNDS)]
    count, cpu, _ = min(rounds, key=lambda found: found[1])
    first = min(found[2] for found in rounds[1:])
    print(
        f"{name:14} {count:7} events  {cpu / count * 1e6:8.1f} us CPU each   first event {first * 1e3:6.1f} ms",
        flush=True,
    )


def main(events: int, gap_us: int) -> None:
    itself = [sys.executable, __file__]
    server = subprocess.Popen([*itself, "--serve", str(events), str(gap_us)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        for name in (*SYNC, *ASYNC):
            subprocess.run([*itself, "--client", name, url], check=False)
    finally:
        server.terminate()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", events, gap]:
            asyncio.run(serve(int(events), int(gap)))
        case ["--client", name, url]:
            client(name, url)
        case [*numbers]:
            given = [int(number) for number in numbers]
            main(*(given + [5000, 200][len(given) :]))
