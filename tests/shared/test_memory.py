"""Limits of one process: what is forgotten, and what never is."""

from __future__ import annotations

import pytest

from strom.shared import memory
from strom.shared.limiter import MONEY, Demand, Scope
from strom.shared.memory import MemoryLimiter
from tests.shared.limiters import granted, refused, used


async def test_only_scopes_that_say_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_IDLE", 4)
    now = [1000.0]
    limiter = MemoryLimiter(lambda: now[0], lambda: 1.79e9)
    busy, spent = Scope("busy", concurrent=1), Scope("spent", budget=MONEY, currency="EUR")
    fresh = Scope("fresh", requests=1)
    await granted(limiter, Demand((busy,)))
    (await granted(limiter, Demand((spent,)))).settle(used(0, MONEY))
    (await granted(limiter, Demand((Scope("old", requests=1),)))).settle(used())
    now[0] += 601
    (await granted(limiter, Demand((fresh,)))).settle(used())
    for number in range(20):
        (await granted(limiter, Demand((Scope(f"more:{number}", requests=1),)))).settle(used())
    for scope, kind in ((busy, "concurrent"), (spent, "budget"), (fresh, "requests")):
        assert (await refused(limiter, Demand((scope,)))).kind == kind
    assert "old" not in limiter._levels
