"""Model lists: both shapes, names with and without provider, what a key may see."""

import hashlib
from typing import Any

import pytest

from strom.core.access import KeySettings
from strom.gateway.gateway import State
from strom.gateway.routing import Router
from strom.transport.memory import Script
from strom.transport.types import TransportFailure
from strom.upstreams.settings import EndpointSettings, ModelSettings
from strom.upstreams.upstream import Upstream
from tests.server.rig import ServerRig, answer, json_script, provider

ANTHROPIC = [(b"anthropic-version", b"2023-06-01")]
DOWN = Script(status=0, failure=TransportFailure("connect", "refused", sent=False))
MODELS = tuple(
    ModelSettings(f"m{n}", (EndpointSettings(f"e{n}", "p1", f"real-{n}", context_window=n * 1000),), aliases=aliases)
    for n, aliases in ((1, ("one", "claude-*")), (2, ()), (3, ()))
)
UPSTREAM_LIST = {"object": "list", "data": [{"id": "org/a", "object": "model"}, {"id": "b"}]}


async def test_configured_models_and_plain_aliases_are_listed() -> None:
    rig = ServerRig(models=MODELS)
    body = answer(await rig.ask("GET", "/v1/models"))
    assert body["object"] == "list"
    assert [item["id"] for item in body["data"]] == ["m1", "m2", "m3", "one"]
    assert {item["object"] for item in body["data"]} == {"model"}
    assert rig.client.sent == []


async def test_the_anthropic_shape_pages_by_id() -> None:
    rig = ServerRig(models=MODELS)
    first = answer(await rig.ask("GET", "/v1/models?limit=2", headers=ANTHROPIC))
    assert [item["id"] for item in first["data"]] == ["m1", "m2"]
    assert (first["has_more"], first["first_id"], first["last_id"]) == (True, "m1", "m2")
    rest = answer(await rig.ask("GET", "/v1/models?limit=2&after_id=m2", headers=ANTHROPIC))
    assert [item["id"] for item in rest["data"]] == ["m3", "one"]
    assert rest["has_more"] is False
    back = answer(await rig.ask("GET", "/v1/models?limit=1&before_id=m3", headers=ANTHROPIC))
    assert ([item["id"] for item in back["data"]], back["has_more"]) == (["m2"], True)
    assert back["data"][0]["type"] == "model"


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1"])
async def test_a_limit_that_is_none(limit: str) -> None:
    assert (await ServerRig(models=MODELS).ask("GET", f"/v1/models?limit={limit}", headers=ANTHROPIC)).status == 400


@pytest.mark.parametrize("headers", [[], ANTHROPIC])
async def test_one_model(headers: list[tuple[bytes, bytes]]) -> None:
    rig = ServerRig(json_script(UPSTREAM_LIST))
    assert answer(await rig.ask("GET", "/v1/models/org%2Fa", headers=headers))["id"] == "org/a"
    assert answer(await rig.ask("GET", "/v1/models/org/a", headers=headers))["id"] == "org/a"
    assert (await rig.ask("GET", "/v1/models/none", headers=headers)).status == 404


async def test_without_configured_models_the_backends_are_asked_once_in_a_while() -> None:
    rig = ServerRig(json_script(UPSTREAM_LIST))
    for _ in range(3):
        body = answer(await rig.ask("GET", "/v1/models"))
        assert [item["id"] for item in body["data"]] == ["org/a", "b"]
    assert len(rig.client.sent) == 1


async def test_with_several_providers_names_start_with_theirs() -> None:
    tags = {"models": [{"name": "llama:8b", "model": "llama:8b"}]}
    rig = ServerRig(
        json_script(UPSTREAM_LIST), json_script(tags), providers=(provider("a"), provider("o", protocol="ollama"))
    )
    body = answer(await rig.ask("GET", "/v1/models"))
    assert [item["id"] for item in body["data"]] == ["a/org/a", "a/b", "o/llama:8b"]


@pytest.mark.parametrize("bad", [b"<html>", b"[]", b'{"data":5}', b""])
async def test_a_backend_that_answers_nonsense_lists_nothing(bad: bytes) -> None:
    body: Any = answer(await ServerRig(json_script(bad)).ask("GET", "/v1/models"))
    assert body["data"] == []


async def test_a_backend_that_is_down_lists_nothing() -> None:
    assert answer(await ServerRig(DOWN).ask("GET", "/v1/models"))["data"] == []


async def test_a_key_sees_what_it_may_use() -> None:
    key = KeySettings("k", hashlib.sha256(b"secret").hexdigest(), models=("m2", "o*"))
    rig = ServerRig(models=MODELS, keys=(key,))
    body = answer(await rig.ask("GET", "/v1/models", headers=[(b"x-api-key", b"secret")]))
    assert [item["id"] for item in body["data"]] == ["m2", "one"]
    assert (await rig.ask("GET", "/v1/models")).status == 401


async def test_a_reload_is_seen_at_once() -> None:
    rig = ServerRig(json_script({"data": [{"id": "old"}]}), json_script({"data": [{"id": "new"}]}))
    assert [item["id"] for item in answer(await rig.ask("GET", "/v1/models"))["data"]] == ["old"]
    router = Router([Upstream(provider("p2"))], [], [])
    rig.gateway.state = State(router, rig.gateway.state.keys)
    assert [item["id"] for item in answer(await rig.ask("GET", "/v1/models"))["data"]] == ["new"]
