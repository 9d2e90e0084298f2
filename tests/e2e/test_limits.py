"""Limits over real processes: four workers, and two replicas over Redis, never admit more than the bucket holds.

The tolerance is what flows back meanwhile: a limit of 60 a minute gives one request a second, over the whole time of the load.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.patience import PATIENCE_S
from tests.services import RedisServer

LIMIT = 60
KEY = "sk-caller-0000000000000000"
CONFIG = """
[server]
routing_block = "strom"
[store]
url = "sqlite:///{folder}/strom.db"
[auth]
required = true
[shared]
url = "{shared}"
on_failure = "{on_failure}"
replicas_hint = 2
[[providers]]
name = "p"
base_url = "http://127.0.0.1:{port}"
[[keys]]
name = "caller"
key_env = "CALLER_KEY"
limits = {{ {limits} }}
"""


LIMITED = {"limits": f"requests_per_minute = {LIMIT}", "shared": "memory://", "on_failure": "closed"}


def serve(stack: ExitStack, folder: Path, origin: Upstream, *arguments: str, **more: str) -> Gateway:
    """`more`: what stands in the configuration in place of LIMITED."""
    folder.mkdir(exist_ok=True)
    config = folder / "strom.toml"
    config.write_text(CONFIG.format(folder=folder, port=origin.port, **{**LIMITED, **more}))
    return stack.enter_context(gateway(folder, "--config", str(config), *arguments, CALLER_KEY=KEY))


async def load(urls: list[str], calls: int, text: str = "n=1") -> Counter[int]:
    """Statuses of so many calls, each over a connection of its own, so that every worker gets its share."""
    statuses: Counter[int] = Counter()
    turns = asyncio.Semaphore(24)

    async with httpx.AsyncClient(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0)) as client:

        async def call(number: int) -> None:
            async with turns:
                url = f"{urls[number % len(urls)]}/v1/chat/completions"
                answer = await client.post(url, json=ask(text), headers={"x-api-key": KEY})
                statuses[answer.status_code] += 1

        await asyncio.gather(*(call(number) for number in range(calls)))
    return statuses


def check(statuses: Counter[int], origin: Upstream, began: float) -> None:
    flowed_back = int((time.monotonic() - began) * LIMIT / 60) + 1
    assert set(statuses) <= {200, 429}, statuses
    assert LIMIT <= statuses[200] <= LIMIT + flowed_back, statuses
    assert sum(head.startswith("POST") for head, _ in origin.requests) == statuses[200]


async def test_four_workers_share_one_bucket(tmp_path: Path) -> None:
    with upstream() as origin, ExitStack() as stack:
        served = serve(stack, tmp_path, origin, "--workers", "4")
        began = time.monotonic()
        check(await load([served.url], 240), origin, began)


async def test_two_replicas_share_one_bucket_through_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    with upstream() as origin, ExitStack() as stack:
        replicas = [
            serve(stack, tmp_path / name, origin, "--workers", "2", shared=redis_server.url) for name in ("a", "b")
        ]
        began = time.monotonic()
        check(await load([replica.url for replica in replicas], 240), origin, began)


@pytest.mark.parametrize("on_failure", ["closed", "local"])
async def test_redis_stopped_in_the_middle(tmp_path: Path, redis_server: RedisServer, on_failure: str) -> None:
    with upstream() as origin, ExitStack() as stack:
        began = time.monotonic()
        served = serve(stack, tmp_path, origin, shared=redis_server.url, on_failure=on_failure)
        before = await load([served.url], 20)
        redis_server.stop()
        during = await load([served.url], 80)
        flowed_back = int(time.monotonic() - began) + 1
        assert before == {200: 20}
        if on_failure == "closed":
            assert set(during) == {503}
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                answer = await client.post(f"{served.url}/v1/messages", json=ask("n=1"), headers={"x-api-key": KEY})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["type"] == "error"
        else:
            assert set(during) == {200, 429}
            assert LIMIT // 2 <= during[200] <= LIMIT // 2 + flowed_back
        redis_server.start()
        deadline = time.monotonic() + PATIENCE_S
        while (await load([served.url], 1))[200] == 0:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
