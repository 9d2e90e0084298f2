"""What a caller's policy lets through besides model calls: lists, embeddings, the state of endpoints."""

from __future__ import annotations

import asyncio
import hashlib

from strom.core.access import KeySettings, PolicySettings
from strom.gateway.board import Board
from strom.transport.memory import Script
from strom.upstreams.settings import EndpointSettings, ModelSettings, ProviderSettings
from tests.patience import until
from tests.server.rig import JSON, ServerRig, answer, json_script

EU = PolicySettings("eu", regions=("eu-*",))
KEY = KeySettings("k", hashlib.sha256(b"k").hexdigest(), policy="eu")
ME = [(b"x-api-key", b"k")]
NAMES = {"data": [{"id": "m1"}]}
VECTOR = {"data": [{"index": 0, "embedding": [0.5]}], "model": "real", "usage": {"prompt_tokens": 2, "total_tokens": 2}}


def at(name: str, region: str, port: int, protocol: str = "openai-chat") -> ProviderSettings:
    return ProviderSettings(name, "generic", protocol, f"http://127.0.0.1:{port}/v1", region=region)  # type: ignore[arg-type]


HOME, FAR = at("home", "eu-de", 1), at("far", "us-east", 2)


def model(name: str, *providers: str, **more: object) -> ModelSettings:
    endpoints = tuple(
        EndpointSettings(f"{name}-{each}", each, "real", order=order, **more)  # type: ignore[arg-type]
        for order, each in enumerate(providers)
    )
    return ModelSettings(name, endpoints)


def asked(rig: ServerRig) -> list[int]:
    return [sent.origin.port for sent in rig.client.sent]


async def test_models_that_a_key_cannot_reach_are_not_listed() -> None:
    models = (model("both", "far", "home"), model("theirs", "far"))
    rig = ServerRig(providers=(HOME, FAR), models=models, keys=(KEY,), policies=(EU,))
    listed = answer(await rig.ask("GET", "/v1/models", headers=ME))["data"]
    assert [(row["id"], row["owned_by"]) for row in listed] == [("both", "home")]
    assert (await rig.ask("GET", "/v1/models/theirs", headers=ME)).status == 404


async def test_a_forbidden_provider_is_not_asked_what_it_has() -> None:
    rig = ServerRig(json_script(NAMES), providers=(HOME, FAR), keys=(KEY,), policies=(EU,))
    listed = answer(await rig.ask("GET", "/v1/models", headers=ME))["data"]
    assert [row["id"] for row in listed] == ["home/m1"]
    assert asked(rig) == [1]


async def test_a_request_tightens_lists_too() -> None:
    rig = ServerRig(json_script(NAMES), providers=(HOME, FAR), policies=(EU,))
    await rig.ask("GET", "/v1/models", headers=[(b"x-strom-policy", b"eu")])
    assert asked(rig) == [1]
    assert (await rig.ask("GET", "/v1/models", headers=[(b"x-strom-policy", b"none")])).status == 400


async def test_embeddings_go_on_as_calls_do_and_tell_the_board() -> None:
    rig = ServerRig(
        json_script({}, 503), json_script(VECTOR), providers=(HOME, at("other", "eu-fr", 3)),
        models=(model("m", "home", "other"),), policies=(EU,),
    )  # fmt: skip
    board = rig.gateway.services.health = Board(rig.gateway.services.clock.time)
    reply = await rig.ask("POST", "/v1/embeddings", {"model": "m", "input": "x"}, [(b"x-strom-policy", b"eu")])
    assert reply.status == 200
    assert asked(rig) == [1, 3]
    conditions = [board.condition(endpoint) for _, endpoint in rig.gateway.state.router.endpoints()]
    assert [(each.attempts, each.faults, each.in_flight) for each in conditions] == [(1, 1, 0), (1, 0, 0)]


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_embeddings_wait_for_a_place() -> None:
    rig = ServerRig(providers=(HOME,), models=(model("m", "home", max_concurrent=1, queue=1),))
    body = {"model": "m", "input": "x"}
    first = asyncio.create_task(rig.ask("POST", "/v1/embeddings", body))
    second = asyncio.create_task(rig.ask("POST", "/v1/embeddings", body))
    await until(lambda: rig.client.sent)
    await turns()
    assert len(rig.client.sent) == 1
    (row,) = answer(await rig.ask("GET", "/platform/v1/endpoints"))["data"]
    assert (row["queued"], row["max_concurrent"]) == (1, 1)
    full = await rig.ask("POST", "/v1/embeddings", body)
    assert (full.status, full.header_out(b"retry-after")) == (503, b"2")
    for number in range(2):
        await until(lambda number=number: len(rig.client.sent) > number)  # type: ignore[misc]
        rig.client.sent[number].play(Script(200, JSON, ((json_script(VECTOR).reads[0]),)))
    assert [(await each).status for each in (first, second)] == [200, 200]


async def test_the_state_of_endpoints_is_told() -> None:
    rig = ServerRig(json_script({}, 500), models=(model("m", "p1"),))
    rig.gateway.services.health = Board(rig.gateway.services.clock.time)
    await rig.ask("POST", "/v1/embeddings", {"model": "m", "input": "x"})
    (row,) = answer(await rig.ask("GET", "/platform/v1/endpoints"))["data"]
    assert row["health"] == {
        "circuit": "closed", "in_flight": 0, "attempts": 1, "faults": 1, "consecutive_faults": 1, "retry_in_s": None,
        "time_to_first_token_ms": None, "last_error": "upstream_error",
    }  # fmt: skip
