"""What becomes of limits when Redis does not answer, and when it comes back: as the setting says."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import pytest

from strom.shared.limiter import MONEY, Demand, Refusal, Scope
from strom.shared.redis import RedisLimiter, RedisSettings
from tests.patience import PATIENCE_S, until
from tests.services import RedisServer
from tests.shared.limiters import ask, granted, one, refused, running, used

TIMEOUT_S = 1.0
SOON_S = 15.0
"""Far less than it would take if each of fifty had to wait for itself, on any machine."""


def limiter_over(
    server: RedisServer, on_failure: Literal["closed", "local"], shares: int = 2, lease_s: float = 60
) -> RedisLimiter:
    return RedisLimiter(RedisSettings(server.url, on_failure, shares, TIMEOUT_S, lease_s))


async def test_closed_refuses_within_the_time_and_recovers(redis_server: RedisServer) -> None:
    async with running(limiter_over(redis_server, "closed")) as limiter:
        assert isinstance(limiter, RedisLimiter)
        await granted(limiter, one(requests=100))
        redis_server.stop()
        began = time.monotonic()
        assert (await refused(limiter, one(requests=100))).kind == "unavailable"
        assert time.monotonic() - began < SOON_S
        began = time.monotonic()
        for _ in range(100):
            assert (await refused(limiter, one(requests=100))).kind == "unavailable"
        assert time.monotonic() - began < SOON_S
        redis_server.start()
        await until(lambda: not limiter.away)
        await granted(limiter, one(requests=100))


async def test_a_redis_that_hangs_is_waited_for_no_longer_than_that(redis_server: RedisServer) -> None:
    async with running(limiter_over(redis_server, "closed")) as limiter:
        assert isinstance(limiter, RedisLimiter)
        await granted(limiter, one(requests=100))
        redis_server.pause()
        began = time.monotonic()
        outcomes = await asyncio.gather(*(ask(limiter, one(requests=100)) for _ in range(50)))
        assert time.monotonic() - began < SOON_S
        assert all(isinstance(outcome, Refusal) and outcome.kind == "unavailable" for outcome in outcomes)
        redis_server.resume()
        await until(lambda: not limiter.away)
        await granted(limiter, one(requests=100))


async def test_local_gives_each_process_its_share(redis_server: RedisServer) -> None:
    async with running(limiter_over(redis_server, "local")) as limiter:
        assert isinstance(limiter, RedisLimiter)
        await granted(limiter, one(requests=10))
        redis_server.stop()
        outcomes = [await ask(limiter, one(requests=10)) for _ in range(12)]
        assert sum(not isinstance(outcome, Refusal) for outcome in outcomes) == 5
        assert (await refused(limiter, one(requests=10))).kind == "requests"


async def test_money_spent_while_it_was_away_is_charged_when_it_is_back_even_empty(redis_server: RedisServer) -> None:
    scope = Scope("key:k", budget=10 * MONEY, per="month", currency="EUR")
    demand = Demand((scope,))
    async with running(limiter_over(redis_server, "local")) as limiter:
        assert isinstance(limiter, RedisLimiter)
        (await granted(limiter, demand)).settle(used(0, 4 * MONEY))
        running_call = await granted(limiter, demand)  # also learns of the 4
        redis_server.stop()
        (await granted(limiter, demand)).settle(used(0, 3 * MONEY))
        running_call.settle(used(0, MONEY))
        assert (await refused(limiter, demand)).kind == "budget"  # its share: (10 - 4) / 2
        redis_server.start()
        await until(lambda: not limiter.away)
        (level,) = await limiter.look([scope])
        assert level is not None
        assert level.spent == 8 * MONEY


async def test_money_that_a_full_redis_does_not_take_is_charged_when_it_has_room(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers, so that it does not count as away. A replica that may not write is the same case."""
    from redis.asyncio import Redis

    scope = Scope("key:k", budget=10 * MONEY, per="month", currency="EUR")
    demand = Demand((scope,))
    redis = Redis.from_url(redis_server.url)
    async with running(limiter_over(redis_server, "closed")) as limiter:
        assert isinstance(limiter, RedisLimiter)
        under_way = await granted(limiter, demand)
        await redis.config_set("maxmemory", 1)
        under_way.settle(used(0, 4 * MONEY))
        for _ in range(3):
            assert (await refused(limiter, demand)).kind == "unavailable"
        assert not limiter.away
        assert sum("Redis refuses" in record.message for record in caplog.records) == 1
        await redis.config_set("maxmemory", 0)
        (await granted(limiter, demand)).settle(used(0, 3 * MONEY))
        await granted(limiter, demand)
        (level,) = await limiter.look([scope])
        assert level is not None
        assert level.spent == 7 * MONEY
    await redis.aclose()


async def test_slots_of_a_process_that_is_gone_come_back_and_those_of_a_living_one_do_not(redis_url: str) -> None:
    settings = RedisSettings(redis_url, lease_s=2, timeout_s=PATIENCE_S, prefix=f"lease-{time.time_ns()}")
    dead, living = RedisLimiter(settings), RedisLimiter(settings)
    dead.start()
    async with running(living):
        await granted(dead, one(concurrent=2))
        await granted(living, one(concurrent=2))
        assert (await refused(living, one(concurrent=2))).kind == "concurrent"
        await dead.close()  # without settling, as if it had been killed
        end = time.monotonic() + PATIENCE_S
        while isinstance(await ask(living, one(concurrent=2)), Refusal):
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        # A lease has passed, in which the living one has renewed its own.
        assert (await refused(living, one(concurrent=2))).kind == "concurrent"


async def test_one_round_trip_for_many_decisions_at_once(redis_url: str) -> None:
    settings = RedisSettings(redis_url, timeout_s=PATIENCE_S, prefix=f"many-{time.time_ns()}")
    stopped = 1_000_000  # the clock: on a busy machine 0.6 s may pass here, which give one more
    async with running(RedisLimiter(settings, now_ms=lambda: stopped)) as limiter:
        outcomes = await asyncio.gather(*(ask(limiter, one(requests=100)) for _ in range(300)))
        assert sum(not isinstance(outcome, Refusal) for outcome in outcomes) == 100
