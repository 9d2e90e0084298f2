"""Keys and limits put together from settings: which limiter, which keys, and when there is no sense in a start."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from strom.config.schema import AuthSettings, LimitsTable, ServerSettings, SharedTable
from strom.config.settings import Settings
from strom.core.access import Budget, KeySettings, Limits
from strom.core.errors import ConfigError
from strom.core.record import CallRecord, Cost
from strom.guarding import Guard, make_limiter
from strom.policies.key_making import KeyMaker
from strom.shared.limiter import MONEY, Scope
from strom.shared.mapped import MappedLimiter
from strom.shared.memory import MemoryLimiter
from strom.shared.redis import RedisLimiter
from strom.stores.keys import KeyScopes
from strom.stores.keys_memory import MemoryKeys
from strom.stores.memory import MemoryStore

OPEN = Settings()
SHUT = Settings(server=ServerSettings(host="0.0.0.0"), auth=AuthSettings())


async def test_the_limiter_is_as_wide_as_what_it_binds(tmp_path: Path) -> None:
    assert isinstance(make_limiter(OPEN), MemoryLimiter)
    several = Settings(server=ServerSettings(workers=2), runtime_folder=str(tmp_path))
    assert isinstance(make_limiter(several), MappedLimiter)
    url = "redis://127.0.0.1:1/0"
    assert isinstance(make_limiter(Settings(shared_url=url, shared=SharedTable(url))), RedisLimiter)


async def test_keys_that_nobody_could_present_are_told_at_the_start() -> None:
    with pytest.raises(ConfigError) as caught:
        Guard(SHUT, MemoryKeys(), MemoryStore().usage)
    for way in ("strom keys create", "[[keys]]", "--allow-unauthenticated", "0.0.0.0"):
        assert way in caught.value.message


async def test_a_managed_key_is_reason_enough_to_start() -> None:
    store = MemoryKeys()
    made = KeyMaker(store).create("ci", KeyScopes())
    guard = Guard(SHUT, store, MemoryStore().usage)
    found = guard.ring(SHUT).authenticate([(b"x-api-key", made.secret.encode())])
    assert found is not None
    assert found.name == "ci"
    await guard.close()


async def test_budgets_know_what_was_spent_before_the_start_and_after_a_reload() -> None:
    records = MemoryStore()
    guard = Guard(OPEN, MemoryKeys(), records.usage)
    now = time.time()
    records.put(CallRecord("t", "completed", now, key_name="ci", cost_estimate=Cost(0.25, "EUR", 0.25, 0.0)))
    budget = Limits(budget=Budget(1, "EUR", "month"))
    key = KeySettings("ci", "00", limits=budget)
    guard.book(msgspec.structs.replace(OPEN, keys=(key,), limits=LimitsTable(budget=Budget(2, "EUR", "month"))))
    for name, amount in (("key:ci", MONEY), ("all", 2 * MONEY)):
        scope = Scope(name, budget=amount, currency="EUR")
        assert isinstance(guard.limiter, MemoryLimiter)
        assert guard.limiter.spent(scope) == MONEY // 4
    await guard.close()
