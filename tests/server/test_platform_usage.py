"""`/platform/v1/usage`: sums, groups, who may ask."""

from __future__ import annotations

import pytest

from strom.core.record import CallRecord, Cost, RecordUsage
from tests.server.rig import ServerRig, answer
from tests.server.test_platform import KEYS

PATH = "/platform/v1/usage"


def filled(rig: ServerRig) -> ServerRig:
    for number in range(4):
        usage, cost = RecordUsage(10, 20), Cost(0.000014, "EUR", 0.0, 0.0)
        rig.store.put(
            CallRecord(f"t{number}", "completed", 1.7e9 + number, key_name=f"k{number % 2}", model_requested="m",
                       usage=usage, cost_estimate=cost)
        )  # fmt: skip
    return rig


async def test_sums_by_key_model_and_day() -> None:
    exchange = await filled(ServerRig()).ask("GET", PATH)
    assert b'"amount":0.000028' in exchange.body_out
    body = answer(exchange)
    assert [(row["key"], row["model"], row["day"], row["calls"]) for row in body["data"]] == [
        ("k0", "m", "2023-11-14", 2),
        ("k1", "m", "2023-11-14", 2),
    ]
    assert body["next_cursor"] is None


async def test_pages_groups_and_filters() -> None:
    rig = filled(ServerRig())
    first = answer(await rig.ask("GET", f"{PATH}?by=key&limit=1"))
    second = answer(await rig.ask("GET", f"{PATH}?by=key&limit=1&cursor={first['next_cursor']}"))
    assert [page["data"][0]["key"] for page in (first, second)] == ["k0", "k1"]
    one = answer(await rig.ask("GET", f"{PATH}?by=day&key_name=k1"))["data"]
    assert [(row["calls"], row["output_tokens"]) for row in one] == [(2, 40)]


@pytest.mark.parametrize(
    "query", ["by=colour", "by=key,key", "by=", "limit=0", "cursor=x", "colour=red", "stream=true"]
)
async def test_queries_that_are_none(query: str) -> None:
    assert (await filled(ServerRig()).ask("GET", f"{PATH}?{query}")).status == 400


async def test_only_admin_keys_may_ask() -> None:
    rig = filled(ServerRig(keys=KEYS))
    assert (await rig.ask("GET", PATH)).status == 401
    assert (await rig.ask("GET", PATH, headers=[(b"x-api-key", b"user")])).status == 403
    assert (await rig.ask("GET", PATH, headers=[(b"x-api-key", b"boss")])).status == 200
