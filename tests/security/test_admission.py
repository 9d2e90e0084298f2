"""A gateway that is full says so in the caller's protocol, reads nothing more, records it, and recovers by itself."""

from __future__ import annotations

import json
from typing import cast

import pytest

from strom.core.access import KeySettings
from strom.gateway.services import Running
from strom.policies.admission import Admission
from strom.transport.memory import MemoryExchange, Script
from strom.transport.types import Refusal
from tests.security.test_json_depth import CALLS, FRONTS
from tests.server.rig import ServerRig, answer

FULL = Admission(max_active_calls=1)


def full(rig: ServerRig) -> None:
    """As if one call were under way, of one that may be."""

    rig.gateway.services.running.add(cast(Running, object()))
    rig.gateway.admission = FULL


def is_told(path: str, exchange: MemoryExchange) -> None:
    assert exchange.status == (529 if path == "/v1/messages" else 503)
    wait = exchange.header_out(b"retry-after")
    assert wait is not None
    assert 1 <= int(wait) <= 4
    told = answer(exchange)
    if path == "/v1/messages":
        assert told["error"]["type"] == "overloaded_error"
    assert "try again" in (told["error"] if path.startswith("/api") else told["error"]["message"])


@pytest.mark.parametrize("path", CALLS)
async def test_one_call_too_many(path: str) -> None:
    rig = ServerRig()
    full(rig)
    exchange = await rig.ask("POST", path, b"this is not even decoded")
    is_told(path, exchange)
    assert rig.client.sent == []
    (record,) = rig.store.list().records
    assert (record.status, record.fault, record.error and record.error.code) == ("rejected", "gateway", "overloaded")
    rig.gateway.services.running.clear()
    assert (await rig.ask("POST", path, b"this is decoded again")).status == 400


@pytest.mark.parametrize("path", CALLS)
async def test_a_body_that_the_transport_had_no_room_for(path: str) -> None:
    rig = ServerRig()
    exchange = MemoryExchange("POST", path, refusal=Refusal(503, "overloaded", "full"))
    rig.app.handle(exchange)
    is_told(path, exchange)


async def test_a_stranger_is_told_nothing_of_the_load() -> None:
    rig = ServerRig(keys=(KeySettings("k", "00" * 32),))
    full(rig)
    exchange = await rig.ask("POST", CALLS[0], json.dumps(FRONTS[CALLS[0]]).encode())
    assert exchange.status == 401


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/platform/v1/endpoints"])
async def test_operators_still_see_it(path: str) -> None:
    rig = ServerRig(Script(200, [(b"content-type", b"application/json")], ((b'{"data":[]}',),)))
    full(rig)
    assert (await rig.ask("GET", path)).status == 200
