"""Streams that are cut and resumed are the streams they would have been.  resume_test.py [--streams N] [--cuts N] [--seed N]

N streams (default 1,000) over all four protocols, each cut three times at places drawn at random and resumed with
`Last-Event-ID`, once at a gateway of two workers that share a port, once at two replicas that share a Redis, where every
resumption goes to the other replica. A cut falls anywhere, also into a frame, and loses what was on its way. What the client
keeps, in order, has to be byte for byte what an uncut run of the same request gives, and what the stream gives when it is
read again from the start. Needs `redis-server` for the second part. The exit code says whether everything was exact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.processes import Gateway
from tests.services import RedisServer
from tools.resume_backend import KINDS, Backend, request_body

LONGEST_STREAM_S = 60.0
AT_ONCE = 40


# --- a client that can be cut ------------------------------------------------------------------------


class Wrong(Exception):
    """What a gateway did that it must not do."""


@dataclass
class Answer:
    """`body`: without framing. `whole`: its end was seen."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    whole: bool = False


async def ask(url: str, head: str, body: bytes = b"", most_bytes: int | None = None) -> Answer:
    """`most_bytes`: so much of the body is read, then the connection is reset."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{head}host: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        answer = Answer(int(lines[0].split(" ")[1]), headers)
        if headers.get("transfer-encoding") == "chunked":
            await _read_chunks(reader, answer, most_bytes)
        else:
            answer.body = await reader.readexactly(int(headers.get("content-length", 0)))
            answer.whole = True
        return answer
    finally:
        _reset(writer)


async def _read_chunks(reader: asyncio.StreamReader, answer: Answer, most_bytes: int | None) -> None:
    while most_bytes is None or len(answer.body) < most_bytes:
        size = int(await reader.readuntil(b"\r\n"), 16)
        data = await reader.readexactly(size + 2)
        answer.body += data[:size]
        if size == 0:
            answer.whole = True
            return
    answer.body = answer.body[:most_bytes]


def _reset(writer: asyncio.StreamWriter) -> None:
    taken = writer.get_extra_info("socket")
    if taken is not None and taken.fileno() >= 0:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


def whole_frames(path: str, data: bytes) -> tuple[bytes, int]:
    """The frames that came whole, and how many they are."""
    end = b"\n" if path == "/api/chat" else b"\n\n"
    kept = data[: data.rfind(end) + len(end)] if end in data else b""
    return kept, kept.count(end)


# --- one stream -------------------------------------------------------------------------------------


@dataclass
class Outcome:
    streams: int = 0
    cuts: int = 0
    frames: int = 0
    """Those that came again, whole, after a cut."""
    resume_ms: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    homes: set[str] = field(default_factory=set)

    @property
    def exact(self) -> bool:
        return not self.faults and self.streams > 0


class Trial:
    """`urls`: gateways; each resumption goes to the next of them."""

    def __init__(self, urls: Sequence[str], cuts: int, seed: int) -> None:
        self._urls = urls
        self._cuts = cuts
        self._seed = seed
        self.outcome = Outcome()

    async def run(self, number: int) -> None:
        path = list(KINDS)[number % len(KINDS)]
        seed = self._seed * 1_000_000 + number
        try:
            async with asyncio.timeout(LONGEST_STREAM_S):
                await self._try(path, seed)
            self.outcome.streams += 1
        except (Wrong, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.outcome.faults.append(f"{path} {seed}: {type(error).__name__} {error}"[:300])

    async def _try(self, path: str, seed: int) -> None:
        uncut = await self._begin(path, seed, None)
        need(uncut.whole and uncut.status == 200, f"the uncut run: status {uncut.status}")
        draw = random.Random(seed)  # noqa: S311 - a test has to be repeatable
        cuts = sorted(draw.randrange(1, len(uncut.body)) for _ in range(self._cuts))
        kept, stream = await self._cut_and_resume(path, seed, cuts)
        need(kept == uncut.body, _difference(kept, uncut.body))
        again = await ask(self._urls[seed % len(self._urls)], f"GET {stream} HTTP/1.1\r\n")
        need(again.whole and again.body == uncut.body, "read again it is another")

    async def _cut_and_resume(self, path: str, seed: int, cuts: list[int]) -> tuple[bytes, str]:
        """What the client keeps, and the path of the stream."""
        answer = await self._begin(path, seed, cuts[0])
        stream_id = answer.headers.get("x-strom-stream-id", "")
        need(stream_id, "no stream id")
        self.outcome.homes.add(stream_id[6:14])
        kept, last = whole_frames(path, answer.body)
        for turn, next_cut in enumerate([*cuts[1:], None], 1):
            began = time.perf_counter()
            head = f"GET /v1/streams/{stream_id} HTTP/1.1\r\nlast-event-id: {last}\r\n"
            most_bytes = None if next_cut is None else max(0, next_cut - len(kept))
            answer = await ask(self._urls[(seed + turn) % len(self._urls)], head, most_bytes=most_bytes)
            self.outcome.resume_ms.append((time.perf_counter() - began) * 1000)
            need(answer.status == 200, f"resumption {turn}: status {answer.status} {answer.body[:120]!r}")
            frames, count = whole_frames(path, answer.body)
            kept += frames
            last += count
            self.outcome.cuts += 1
            self.outcome.frames += count
        need(answer.whole, "the last part has no end")
        return kept, f"/v1/streams/{stream_id}"

    async def _begin(self, path: str, seed: int, most_bytes: int | None) -> Answer:
        body = json.dumps(request_body(path, seed)).encode()
        head = f"POST {path} HTTP/1.1\r\ncontent-type: application/json\r\nx-strom-resumable: 1\r\n"
        return await ask(self._urls[seed % len(self._urls)], head, body, most_bytes)


def need(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


def _difference(kept: bytes, uncut: bytes) -> str:
    at = next((at for at, (one, other) in enumerate(zip(kept, uncut, strict=False)) if one != other), len(kept))
    return f"{len(kept)} bytes for {len(uncut)}, another from {at}: {kept[at : at + 60]!r} for {uncut[at : at + 60]!r}"


async def try_streams(urls: Sequence[str], count: int, cuts: int = 3, seed: int = 1) -> Outcome:
    trial = Trial(urls, cuts, seed)
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await trial.run(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return trial.outcome


# --- gateways ---------------------------------------------------------------------------------------


def configuration(backend: str, workers: int, shared: str) -> str:
    providers = [
        ("chat", "openai-chat"),
        ("messages", "anthropic"),
        ("responses", "openai-responses"),
        ("ollama", "ollama"),
    ]
    tables = [
        f'[[providers]]\nname = "{name}"\nprotocol = "{protocol}"\nbase_url = "{backend}"\n'
        for name, protocol in providers
    ]
    server = f'[server]\nworkers = {workers}\nrouting_block = "off"\nresume_grace_s = 30\nlog_level = "warning"\n'
    return server + f'[store]\nurl = "memory://"\n[shared]\nurl = "{shared}"\n' + "".join(tables)


@contextmanager
def gateways(backend: str, count: int, workers: int, shared: str = "memory://") -> Iterator[list[Gateway]]:
    with ExitStack() as stack:
        started = []
        for number in range(count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"strom-resume-{number}-")))
            (folder / "strom.toml").write_text(configuration(backend, workers, shared))
            running = Gateway(folder, ["--port", "0", "--config", str(folder / "strom.toml")], {})
            stack.callback(running.end)
            started.append(running)
        for running in started:
            running.wait_ready()
        yield started


async def at_two_workers(count: int, cuts: int = 3, seed: int = 1) -> Outcome:
    backend = Backend()
    await backend.start()
    with ExitStack() as stack:
        stack.callback(backend.close)
        running = await asyncio.to_thread(stack.enter_context, gateways(backend.url, 1, 2))
        return await try_streams([running[0].url], count, cuts, seed)


async def at_two_replicas(redis_url: str, count: int, cuts: int = 3, seed: int = 1) -> Outcome:
    backend = Backend()
    await backend.start()
    with ExitStack() as stack:
        stack.callback(backend.close)
        running = await asyncio.to_thread(stack.enter_context, gateways(backend.url, 2, 1, redis_url))
        return await try_streams([each.url for each in running], count, cuts, seed)


# --- the report -------------------------------------------------------------------------------------


def report(name: str, outcome: Outcome, seconds: float) -> None:
    times = sorted(outcome.resume_ms) or [0.0]
    print(
        f"{name}: {outcome.streams} streams, {outcome.cuts} cuts resumed, {outcome.frames} frames after them, "
        f"{len(outcome.homes)} processes, {'byte-exact' if outcome.exact else 'NOT EXACT'}; a resumed part took "
        f"{times[len(times) // 2]:.1f} ms (median), {times[int(len(times) * 0.99)]:.1f} ms (99 %); {seconds:.0f} s"
    )
    for fault in outcome.faults[:10]:
        print("  ", fault)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    workers = asyncio.run(at_two_workers(options.streams, options.cuts, options.seed))
    report("two workers", workers, time.monotonic() - began)
    redis, began = RedisServer(), time.monotonic()
    redis.start()
    try:
        replicas = asyncio.run(at_two_replicas(redis.url, options.streams, options.cuts, options.seed))
    finally:
        redis.stop()
    report("two replicas with Redis", replicas, time.monotonic() - began)
    return 0 if workers.exact and replicas.exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
