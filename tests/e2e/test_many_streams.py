"""Many streams at once over real sockets: each gets its own words, usage, id and error, and nothing is left behind.

STROM_STREAMS=1000 makes it as many as an operator would, STROM_STREAMS_SEED another choice of them; the fixed numbers are for
every day. What is played over kept connections, with fallbacks, continuations, resumable streams, whole calls and embeddings,
is the load of tools/soak.py without killed workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.processes import Gateway, ask, gateway, upstream
from tools.soak import raise_file_limit, soak

STREAMS = int(os.environ.get("STROM_STREAMS", "30"))
SEED = int(os.environ.get("STROM_STREAMS_SEED", "7"))
PATIENCE_S = 30 + STREAMS / 5
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
ENDS = ("proof", "proof", "proof", "error", "cut", "hang")
MARK = re.compile(rb"mark\d{4}")
TERMINATORS = (b"data: [DONE]", b"message_stop", b"response.completed", b'"done":true')

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted through /proc")


class Told(msgspec.Struct):
    """One client: what it asked, when it leaves (pieces seen), what it got."""

    mark: str
    path: str
    end: str
    stream: bool
    leaves_after: int | None
    body: bytes = b""


def clients(dice: random.Random) -> list[Told]:
    result = []
    for number in range(STREAMS):
        end = dice.choice(ENDS)
        leaves = dice.choice((None, None, 0, 1, 2))
        told = Told(f"mark{number:04}", dice.choice(PATHS), end, dice.random() < 0.8, 1 if end == "hang" else leaves)
        result.append(told)
    return result


async def play(told: Told, port: int, dice: random.Random) -> None:
    text = f"n={dice.randint(2, 6)} gap={dice.random() * 0.03:.3f} end={told.end} {told.mark}"
    body = ask(text, stream=told.stream)
    if told.path == "/v1/responses":
        body = {"model": "m", "stream": told.stream, "input": text, "store": False}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {told.path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    seen = 0
    while told.leaves_after is None or seen < told.leaves_after:
        waiting = asyncio.wait_for(reader.read(65536), PATIENCE_S if told.leaves_after is None else 0.5)
        try:
            piece = await waiting
        except TimeoutError:
            break
        if not piece:
            break
        told.body += piece
        seen += 1
    if told.leaves_after == 0:
        await asyncio.sleep(dice.random() * 0.05)
    writer.transport.abort()


async def play_all(everyone: list[Told], port: int, seed: int) -> None:
    await asyncio.gather(*(play(told, port, random.Random(f"{seed}{told.mark}")) for told in everyone))


def open_files(running: Gateway) -> int:
    return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))


def settled(running: Gateway, files: int, records: int) -> list[dict[str, Any]]:
    """All records, once every call has one and no socket is left."""
    until = time.monotonic() + PATIENCE_S
    while True:
        traces = running.traces()
        left = open_files(running) - files
        if len(traces) >= records and left <= 1:  # the connection that asks
            return traces
        assert time.monotonic() < until, f"{len(traces)} of {records} records, {left} more open files than before"
        time.sleep(0.2)


@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
def test_nobody_gets_what_is_another_s(protocol: str, tmp_path: Path) -> None:
    raise_file_limit()
    with upstream() as behind:
        arguments = ["--backend", f"http://127.0.0.1:{behind.port}", "--protocol", protocol]
        with gateway(tmp_path, *arguments, STROM_LOG_LEVEL="debug") as running:
            running.traces()
            files = open_files(running)
            everyone = clients(random.Random(SEED))
            asyncio.run(play_all(everyone, int(running.url.rpartition(":")[2]), SEED))
            traces = settled(running, files, STREAMS)
            assert len(traces) == STREAMS
            check(everyone, {trace["trace_id"]: trace for trace in traces})
            log = running.log.read_text()
            assert "defect" not in log
            assert not MARK.search(log.encode()), "message text in the log"


def test_nor_over_kept_connections(tmp_path: Path) -> None:
    raise_file_limit()
    options = argparse.Namespace(minutes=0.1 + STREAMS / 10_000, streams=STREAMS, seed=SEED, no_kills=True)
    outcome = asyncio.run(soak(options, tmp_path))
    assert (outcome.crowd.lies, outcome.faults) == ([], [])
    ends = Counter(told.end for told in outcome.crowd.told.values())
    assert ends["success"] > STREAMS / 4, ends
    assert outcome.crowd.counts["embeds: success"] > 0


def check(everyone: list[Told], traces: dict[str, Any]) -> None:
    for told in everyone:
        assert set(MARK.findall(told.body)) <= {told.mark.encode()}, f"{told.mark} was told another's words"
        found = re.search(rb"x-strom-trace-id: (\w+)", told.body)
        if found is None:
            assert told.leaves_after is not None
            continue
        trace = traces.pop(found[1].decode())
        proven = any(word in told.body for word in TERMINATORS)
        if told.leaves_after is None:
            assert (trace["status"] == "completed") == (told.end == "proof"), (told, trace)
            assert trace["bytes_out"] > 0
        if told.stream and told.leaves_after is None:
            assert proven == (told.end == "proof"), told
        if trace["status"] == "completed":
            assert trace["usage"]["input_tokens"] in range(20, 60), "the upstream reports the length of the text"
    left = list(traces.values())
    assert all(trace["status"] in ("cancelled", "completed", "failed", "incomplete") for trace in left)
