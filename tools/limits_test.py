"""Limits and token counts at length, over real processes.  limits_test.py [CALLS [SECONDS]]

CALLS (default 10,000) end in every way (proven, cut, refused, their client leaves): records and usage must count the tokens
that the backend counted, over four workers; and as many again in memory, where a bucket must have given exactly those. Then
four workers, and two replicas of two workers over Redis, are asked for more than a bucket of 120 a minute holds, for SECONDS
(default 30) each: never more than that and what flows back meanwhile gets through. Last, Redis is stopped in the middle, with
both settings of `on_failure`. A 503 is an answer of Redis that took longer than `timeout_ms`. Needs Redis; with the defaults
about 5 minutes on two cores.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from strom.core.access import Limits
from tests.e2e.accounting import account
from tests.e2e.processes import upstream
from tests.e2e.test_limits import load, serve, test_redis_stopped_in_the_middle
from tests.gateway.test_limits import AUTH, Backend, left_of, rig_estimate, rig_with
from tests.services import RedisServer

A_MINUTE = 120
LIMITS = {"limits": f"requests_per_minute = {A_MINUTE}"}


def main() -> int:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # the upstream's connections, cancelled at its end
    good = [
        _in_folder(lambda folder: _tokens(folder, calls)),
        _bucket(calls),
        _in_folder(lambda folder: asyncio.run(_workers(folder, seconds))),
        _in_folder(lambda folder: asyncio.run(_replicas(folder, seconds))),
    ]
    for on_failure in ("closed", "local"):
        good.append(_in_folder(lambda folder, setting=on_failure: _redis_stops(folder, setting)))  # type: ignore[misc]
    return 0 if all(good) else 1


def _in_folder(run: Callable[[Path], bool]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder))


def _tokens(folder: Path, calls: int) -> bool:
    found = account(folder, calls, workers=4)
    equal = found.backend == found.records == found.usage
    print(
        f"{found.calls} calls over sockets in {found.took_s:.0f} s, {found.left} left by their client: {found.statuses}"
    )
    print(f"  backend {found.backend}, records {found.records}, usage {found.usage}: {_word(equal)}", flush=True)
    return equal


def _bucket(calls: int) -> bool:
    limit = 1_000_000_000
    limits = Limits(tokens_per_minute=limit, concurrent=1)
    backend_prompt = rig_estimate()
    rig = rig_with(limits)
    backend, chance = Backend(rig, backend_prompt), random.Random(7)  # noqa: S311 - fates, no secrets
    for _ in range(calls):
        backend.serve(rig.call(headers=AUTH, max_tokens=chance.randint(1, 9000)), chance)
        rig.client.sent.clear()
    given = limit - left_of(rig, "key:ci", limits)
    print(
        f"{calls} calls in memory: backend {backend.counted}, bucket {given}: {_word(given == backend.counted)}",
        flush=True,
    )
    return given == backend.counted


async def _workers(folder: Path, seconds: float) -> bool:
    with upstream() as origin, ExitStack() as stack:
        served = serve(stack, folder, origin, "--workers", "4", **LIMITS)
        return await _press([served.url], seconds, "4 workers")


async def _replicas(folder: Path, seconds: float) -> bool:
    redis = RedisServer()
    redis.start()
    try:
        with upstream() as origin, ExitStack() as stack:
            replicas = [
                serve(stack, folder / name, origin, "--workers", "2", shared=redis.url, **LIMITS) for name in ("a", "b")
            ]
            return await _press([replica.url for replica in replicas], seconds, "2 replicas over Redis")
    finally:
        redis.stop()


async def _press(urls: list[str], seconds: float, name: str) -> bool:
    began, told = time.monotonic(), Counter[int]()
    while time.monotonic() - began < seconds:
        told += await load(urls, 240)
    took = time.monotonic() - began
    most = A_MINUTE + int(took * A_MINUTE / 60) + 1
    good = told[200] <= most and set(told) <= {200, 429, 503}
    pressed = "" if told[429] else " (too slow a machine: nobody was refused)"
    print(f"{name}, {took:.0f} s: statuses {dict(told)}, at most {most} times 200: {_word(good)}{pressed}", flush=True)
    return good


def _redis_stops(folder: Path, on_failure: str) -> bool:
    redis = RedisServer()
    redis.start()
    try:
        asyncio.run(test_redis_stopped_in_the_middle(folder, redis, on_failure))
    finally:
        redis.stop()
    print(f"Redis stopped under load, on_failure = {on_failure}: as stated", flush=True)
    return True


def _word(good: object) -> str:
    return "good" if good else "WRONG"


if __name__ == "__main__":
    sys.exit(main())
