"""The limiters under one test: made over clocks that a test turns, asked as if they answered at once."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from strom.shared.limiter import Charge, Demand, Lease, Limiter, Refusal, Scope
from strom.shared.mapped import MappedLimiter, MappedTable
from strom.shared.memory import MemoryLimiter
from strom.shared.redis import RedisLimiter, RedisSettings

WALL = 1_790_000_000.0
_PREFIXES = itertools.count()


class Clocks:
    """A minute starts full; `ms` and `wall` go together unless a test says otherwise."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.wall_s = WALL

    def monotonic(self) -> float:
        return self.ms / 1000 + 0.0001  # floats fall below whole milliseconds

    def wall(self) -> float:
        return self.wall_s

    def now_ms(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms
        self.wall_s += ms / 1000


Make = Callable[[Clocks], Limiter]


def make_memory(clocks: Clocks) -> Limiter:
    return MemoryLimiter(clocks.monotonic, clocks.wall)


def make_mapped(clocks: Clocks) -> Limiter:
    path = Path(tempfile.mkdtemp()) / "limits"
    try:
        return MappedLimiter(MappedTable(path, 2, 256), clocks.monotonic, clocks.wall)
    finally:
        path.unlink()
        path.parent.rmdir()


def make_redis(url: str) -> Make:
    def make(clocks: Clocks) -> Limiter:
        prefix = f"test-{time.time_ns()}-{next(_PREFIXES)}"
        return RedisLimiter(RedisSettings(url, timeout_s=5, prefix=prefix), clocks.wall, clocks.now_ms)

    return make


@asynccontextmanager
async def running(limiter: Limiter) -> AsyncIterator[Limiter]:
    limiter.start()
    try:
        yield limiter
    finally:
        await limiter.close()


async def ask(limiter: Limiter, demand: Demand) -> Lease | Refusal:
    answered: asyncio.Future[Lease | Refusal] = asyncio.get_running_loop().create_future()
    limiter.reserve(demand, answered.set_result)
    return await answered


async def granted(limiter: Limiter, demand: Demand) -> Lease:
    outcome = await ask(limiter, demand)
    assert not isinstance(outcome, Refusal), outcome
    return outcome


async def refused(limiter: Limiter, demand: Demand) -> Refusal:
    outcome = await ask(limiter, demand)
    assert isinstance(outcome, Refusal)
    return outcome


def one(wanted: int = 0, prompt: int = 0, **limits: Any) -> Demand:
    return Demand((Scope("key:k", **limits),), wanted, prompt)


def used(tokens: int = 0, money: int = 0, currency: str = "EUR") -> Charge:
    return Charge(tokens, money, currency)


def settle(lease: object, charge: Charge) -> None:
    cast(Lease, lease).settle(charge)
