"""Records and endpoints for operators: paging, filters, who may ask."""

import hashlib

import pytest

from strom.core.access import KeySettings
from strom.core.record import CallRecord
from strom.upstreams.settings import EndpointSettings, ModelSettings
from tests.server.rig import ServerRig, answer

KEYS = tuple(
    KeySettings(name, hashlib.sha256(name.encode()).hexdigest(), admin=name == "boss") for name in ("boss", "user")
)


def filled() -> ServerRig:
    rig = ServerRig()
    for number in range(5):
        status = "completed" if number % 2 else "failed"
        rig.store.put(CallRecord(f"t{number}", status=status, started_at=1.7e9 + number))  # type: ignore[arg-type]
    return rig


async def test_newest_first_with_a_cursor() -> None:
    rig = filled()
    first = answer(await rig.ask("GET", "/platform/v1/traces?limit=2"))
    assert [record["trace_id"] for record in first["data"]] == ["t4", "t3"]
    rest = answer(await rig.ask("GET", f"/platform/v1/traces?cursor={first['next_cursor']}"))
    assert [record["trace_id"] for record in rest["data"]] == ["t2", "t1", "t0"]
    assert rest["next_cursor"] is None


async def test_filters_bind() -> None:
    body = answer(await filled().ask("GET", "/platform/v1/traces?status=failed&since=2023-11-14T22:13:22Z"))
    assert [record["trace_id"] for record in body["data"]] == ["t4", "t2"]


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "colour=red", "since=yesterday", "cursor=x"])
async def test_queries_that_are_none(query: str) -> None:
    assert (await filled().ask("GET", f"/platform/v1/traces?{query}")).status == 400


async def test_one_trace() -> None:
    rig = filled()
    assert answer(await rig.ask("GET", "/platform/v1/traces/t3"))["status"] == "completed"
    assert (await rig.ask("GET", "/platform/v1/traces/none")).status == 404


async def test_only_admin_keys_may_ask_when_keys_are_required() -> None:
    rig = ServerRig(keys=KEYS)
    for path in ("/platform/v1/traces", "/platform/v1/endpoints", "/platform/v1/traces/x"):
        assert (await rig.ask("GET", path)).status == 401
        assert (await rig.ask("GET", path, headers=[(b"x-api-key", b"user")])).status == 403
        assert (await rig.ask("GET", path, headers=[(b"x-api-key", b"boss")])).status in (200, 404)


async def test_endpoints() -> None:
    rig = ServerRig(models=(ModelSettings("m", (EndpointSettings("e1", "p1", "real"),)),))
    (row,) = answer(await rig.ask("GET", "/platform/v1/endpoints"))["data"]
    assert (row["endpoint_id"], row["model"], row["model_used"], row["provider"]) == ("e1", "m", "real", "p1")
    (bare,) = answer(await ServerRig().ask("GET", "/platform/v1/endpoints"))["data"]
    assert (bare["endpoint_id"], bare["model"]) == ("p1", None)
