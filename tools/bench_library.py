"""CPU per event of the library, beside other clients that read the same loopback stream.  bench_library.py [EVENTS] [GAP_US]

A server in a process of its own sends a stream of EVENTS deltas (default 5000), one write each, GAP_US microseconds apart
(default 200; 0: as fast as it can, then many events come in one read): a Chat stream, or a Messages stream for what speaks to
Anthropic. Each client runs in a process of its own and reads the stream several times; the best round counts. Printed: user and
system time of the client per event, how many times less that is than the openai SDK's of the same colour, and the time to the
first event; a client is built once, before the rounds that count.
Clients whose package is missing are left out (`pip install openai anthropic httpx-sse mojentic`).
"""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

ROUNDS = 4
MODEL = "bench"


# --- the server --------------------------------------------------------------------------------------


def frame(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return framed(data)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


Frames = tuple[bytes, list[bytes], bytes]
"""What comes first, the deltas, and the end with the end of the body."""


def chat_stream(events: int) -> Frames:
    deltas = [frame({"content": f" token{number % 97}"}) for number in range(events)]
    end = frame({}, "stop") + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return frame({"role": "assistant", "content": ""}), deltas, end


def messages_stream(events: int) -> Frames:
    def event(kind: str, **fields: object) -> bytes:
        return framed(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    begun = event("message_start", message={**message, "stop_reason": None, "stop_sequence": None})
    texts = ({"type": "text_delta", "text": f" token{number % 97}"} for number in range(events))
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        begun + event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        [event("content_block_delta", index=0, delta=text) for text in texts],
        event("content_block_stop", index=0)
        + event("message_delta", delta=ending, usage={"output_tokens": events})
        + event("message_stop")
        + b"0\r\n\r\n",
    )


async def serve(events: int, gap_us: int) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    streams = {True: messages_stream(events), False: chat_stream(events)}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await read_request(reader):
            first, deltas, tail = streams[b"/messages" in request]
            writer.write(head + first)
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


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """The request line; nothing when the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))
    return head.partition(b"\r\n")[0]


# --- the clients, built once: each gives something for every delta -------------------------------------------------


@functools.cache
def _strom(url: str, protocol: Any, *, is_async: bool) -> Any:
    import strom

    return (strom.AsyncModel if is_async else strom.Model)(MODEL, base_url=url, protocol=protocol)


@functools.cache
def _openai(url: str, *, is_async: bool) -> Any:
    import openai

    return (openai.AsyncOpenAI if is_async else openai.OpenAI)(base_url=f"{url}/v1", api_key="none")


@functools.cache
def _anthropic(url: str) -> Any:
    import anthropic

    return anthropic.Anthropic(base_url=url, api_key="none")


@functools.cache
def _httpx() -> Any:
    import httpx

    return httpx.Client(trust_env=False)


def strom_sync(url: str) -> Iterator[object]:
    import strom

    for event in _strom(url, "openai-chat", is_async=False).stream("go"):
        if type(event) is strom.StreamContent:
            yield event.text


async def strom_async(url: str) -> AsyncIterator[object]:
    import strom

    async for event in _strom(url, "openai-chat", is_async=True).stream("go"):
        if type(event) is strom.StreamContent:
            yield event.text


def openai_sync(url: str) -> Iterator[object]:
    for chunk in _openai(url, is_async=False).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "go"}], stream=True
    ):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def openai_async(url: str) -> AsyncIterator[object]:
    create = _openai(url, is_async=True).chat.completions.create
    async for chunk in await create(model=MODEL, messages=[{"role": "user", "content": "go"}], stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def strom_messages(url: str) -> Iterator[object]:
    import strom

    for event in _strom(url, "anthropic", is_async=False).stream("go", max_tokens=9999):
        if type(event) is strom.StreamContent:
            yield event.text


def anthropic_sync(url: str) -> Iterator[object]:
    for event in _anthropic(url).messages.create(
        model=MODEL, max_tokens=9999, messages=[{"role": "user", "content": "go"}], stream=True
    ):
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            yield event.delta.text


def mojentic_text(url: str) -> Iterator[object]:
    broker, messages = _broker(url)
    yield from broker.generate_stream(messages)


def mojentic_events(url: str) -> Iterator[object]:
    broker, messages = _broker(url)
    for event in broker.generate_stream_events(messages):
        if type(event).__name__ == "StreamContent":
            yield event


@functools.cache
def _broker(url: str) -> tuple[Any, list[Any]]:
    """A broker, and what it is asked. Its own tokenizer would be downloaded; its logs take no part."""
    import logging
    from types import SimpleNamespace

    from mojentic.llm import LLMBroker
    from mojentic.llm.gateways import OpenAIGateway
    from mojentic.llm.gateways.models import LLMMessage

    logging.disable()
    gateway = OpenAIGateway(api_key="none", base_url=f"{url}/v1")
    return LLMBroker(MODEL, gateway=gateway, tokenizer=SimpleNamespace(encode=str.split)), [LLMMessage(content="go")]


def httpx_sse(url: str) -> Iterator[object]:
    """httpx-sse and json, no rules."""
    from httpx_sse import connect_sse

    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    with connect_sse(_httpx(), "POST", f"{url}/v1/chat/completions", json=body) as source:
        for event in source.iter_sse():
            if event.data != "[DONE]" and (text := event.json()["choices"][0]["delta"].get("content")):
                yield text


def httpx_lines(url: str) -> Iterator[object]:
    """The least a program can do over httpx: lines and json, no rules."""
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "go"}]}
    with _httpx().stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content"):
                    yield delta["content"]


SYNC: dict[str, Callable[[str], Iterator[object]]] = {
    "strom": strom_sync,
    "openai": openai_sync,
    "httpx-sse": httpx_sse,
    "httpx lines": httpx_lines,
    "mojentic text": mojentic_text,
    "mojentic events": mojentic_events,
    "strom (messages)": strom_messages,
    "anthropic": anthropic_sync,
}
ASYNC: dict[str, Callable[[str], AsyncIterator[object]]] = {"strom async": strom_async, "openai async": openai_async}


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
    """Prints a line of JSON."""
    loop = asyncio.new_event_loop()
    rounds = [read_once(name, url, loop) for _ in range(ROUNDS)]
    count, cpu, _ = min(rounds[1:], key=lambda found: found[1])
    print(
        json.dumps({"events": count, "us": cpu / count * 1e6, "first_ms": min(found[2] for found in rounds[1:]) * 1e3})
    )


def measure(name: str, url: str) -> dict[str, float] | None:
    """None when its package is missing."""
    done = subprocess.run(
        [sys.executable, __file__, "--client", name, url], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    if "ModuleNotFoundError" not in done.stderr:
        raise SystemExit(f"{name}:\n{done.stderr}")
    return None


def main(events: int, gap_us: int) -> None:
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(events), str(gap_us)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        measured = {name: found for name in (*SYNC, *ASYNC) if (found := measure(name, url))}
    finally:
        server.terminate()
    for name, found in measured.items():
        openai = measured.get("openai async" if name in ASYNC else "openai")
        ratio = f"{openai['us'] / found['us']:5.1f} x less than openai" if openai else ""
        line = f"{name:17}{found['events']:6.0f} events {found['us']:8.1f} us CPU each, first event {found['first_ms']:6.1f} ms"
        print(f"{line}  {ratio}", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", events, gap]:
            asyncio.run(serve(int(events), int(gap)))
        case ["--client", name, url]:
            client(name, url)
        case [*numbers]:
            given = [int(number) for number in numbers]
            main(*(given + [5000, 200][len(given) :]))
