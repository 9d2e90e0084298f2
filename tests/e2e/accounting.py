"""Calls that end in every way, and a backend that counts for itself what it was asked and what it said.

Its tokens are four characters each, as the gateway estimates where nothing was reported: so both counts must be equal to the
token, also for calls whose clients left and whose backend never came to its report.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from strom.core.usage import estimate_tokens
from strom.gateway.estimate import MESSAGE_CHARACTERS
from tests.e2e.crashing import all_records
from tests.e2e.processes import ORDER, Upstream, ask, chat_frames, gateway, last_text
from tests.patience import PATIENCE_S

TEXT_CHARACTERS = 40
PROMPT = estimate_tokens(TEXT_CHARACTERS + MESSAGE_CHARACTERS)
AT_ONCE = 24


class CountingUpstream(Upstream):
    """`counted`: prompt and output tokens of everything it answered with 200."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        super().__init__()

    async def _answer(self, head: str, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        orders = dict(ORDER.findall(last_text(request)))
        if "n" not in orders:  # refused, or no model call
            writer.write(REFUSAL)
            return
        self.counted.update(input=PROMPT, output=int(orders["n"]))
        writer.write(HEAD)
        for frame in frames(int(orders["n"]), orders["end"]):
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
        if orders["end"] == "cut":
            raise ConnectionResetError
        if orders["end"] == "proof":
            writer.write(b"0\r\n\r\n")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 500 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def frames(pieces: int, end: str) -> Iterator[bytes]:
    """As the upstream speaks, but each piece is one token, and usage says what was counted."""
    for frame in chat_frames("", pieces, end):
        spoken = re.sub(rb'"#\d+ "', b'"abcd"', frame)
        yield spoken.replace(b'"prompt_tokens": 0', f'"prompt_tokens": {PROMPT}'.encode())


class Account(NamedTuple):
    calls: int
    left: int
    """Calls whose client left in the middle."""
    backend: dict[str, int]
    records: dict[str, int]
    usage: dict[str, int]
    """As `/platform/v1/usage` sums it."""
    statuses: dict[str, int]
    took_s: float


async def _call(client: httpx.AsyncClient, url: str, chance: random.Random) -> bool:
    """Whether it left."""
    fate, pieces = chance.random(), chance.randint(1, 6)
    leaves = fate < 0.4
    end = "hang" if leaves else "cut" if fate < 0.5 else "proof"
    text = ("refuse=500" if fate > 0.9 else f"n={pieces} end={end}").ljust(TEXT_CHARACTERS)
    try:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=ask(text)) as answer:
            seen = 0
            async for piece in answer.aiter_raw():
                seen += piece.count(b'"abcd"')
                if leaves and seen == pieces:
                    return True
    except httpx.HTTPError:
        assert not leaves
    return False


async def _load(url: str, calls: int, chance: random.Random) -> int:
    turns = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0)) as client:

        async def call() -> bool:
            async with turns:
                return await _call(client, url, chance)

        return sum(await asyncio.gather(*(call() for _ in range(calls))))


def account(folder: Path, calls: int, workers: int, seed: int = 5) -> Account:
    began = time.monotonic()
    backend = CountingUpstream()
    store = f"sqlite:///{folder / 'strom.db'}"
    arguments = ("--backend", f"http://127.0.0.1:{backend.port}", "--workers", str(workers))
    try:
        with gateway(folder, *arguments, STROM_STORE_URL=store) as running:
            left = asyncio.run(_load(running.url, calls, random.Random(seed)))
            records = _settled(store, calls)
            rows = httpx.get(f"{running.url}/platform/v1/usage?by=model", timeout=PATIENCE_S).json()["data"]
    finally:
        backend.close()
    return Account(
        calls,
        left,
        dict(backend.counted),
        _sums((r.usage.input_tokens or 0, r.usage.output_tokens or 0) for r in records),
        _sums((row["input_tokens"] or 0, row["output_tokens"] or 0) for row in rows),
        dict(Counter(str(r.status) for r in records)),
        time.monotonic() - began,
    )


def _sums(pairs: Iterable[tuple[int, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for given, produced in pairs:
        found.update(input=given, output=produced)
    return dict(found)


def _settled(store: str, calls: int) -> list[Any]:
    until = time.monotonic() + PATIENCE_S
    while True:
        records = all_records(store)
        if len(records) == calls and all(record.status != "started" for record in records):
            return records
        assert time.monotonic() < until, (len(records), calls)
        time.sleep(0.2)
