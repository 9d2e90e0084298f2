"""`/platform/v1/policies/explain`: which endpoints qualify, for keys of the configuration and of the store."""

from __future__ import annotations

import msgspec
import pytest

from strom.core.access import PolicySettings
from strom.gateway.routing import Router
from strom.server.platform_policies import PlatformPolicies
from strom.upstreams.settings import EndpointSettings, ModelSettings
from strom.upstreams.upstream import Upstream
from tests.server.rig import answer, provider
from tests.server.test_platform_keys import KeyRig

PATH = "/platform/v1/policies/explain"


def rig() -> KeyRig:
    made = KeyRig()
    near = msgspec.structs.replace(provider("near"), region="eu-de")
    far = msgspec.structs.replace(provider("far"), region="us-east")
    model = ModelSettings("m", (EndpointSettings("e-near", "near", "x"), EndpointSettings("e-far", "far", "x")))
    router = Router([Upstream(near), Upstream(far)], (model,), (PolicySettings("eu-only", regions=("eu-*",)),))
    made.gateway.state = msgspec.structs.replace(made.gateway.state, router=router)
    PlatformPolicies(made.gateway, lambda: made.managed.keys).register(made.app.platform)
    return made


async def test_what_a_managed_key_can_reach() -> None:
    made = rig()
    key = (await made.make("ci", policy="eu-only"))["key"]
    for name in ("ci", key["id"], key["prefix"], key["prefix"] + "-and-its-secret"):
        shown = await made.boss("GET", f"{PATH}?model=m&key={name}")
        body = answer(shown)
        assert (body["key"], body["policies"]) == ("ci", ["eu-only"])
        assert [(row["endpoint_id"], row["qualifies"]) for row in body["endpoints"]] == [
            ("e-near", True),
            ("e-far", False),
        ]
        assert "us-east" in body["endpoints"][1]["objections"][0]
        assert b"and-its-secret" not in shown.body_out


async def test_without_a_key_everything_qualifies_and_a_policy_binds() -> None:
    made = rig()
    assert all(row["qualifies"] for row in answer(await made.boss("GET", f"{PATH}?model=m&key=&policy="))["endpoints"])
    body = answer(await made.boss("GET", f"{PATH}?model=m&key=boss&policy=eu-only"))
    assert [row["qualifies"] for row in body["endpoints"]] == [True, False]


@pytest.mark.parametrize(
    ("query", "status", "code", "param"),
    [
        ("", 400, "invalid_request", "model"),
        ("?model=", 400, "invalid_request", "model"),
        ("?model=nothing", 404, "model_not_found", "model"),
        ("?model=m&key=nobody", 404, "key_not_found", "key"),
        ("?model=m&policy=none", 400, "invalid_request", "policy"),
    ],
)
async def test_what_is_not_there(query: str, status: int, code: str, param: str) -> None:
    refused = await rig().boss("GET", PATH + query)
    assert (refused.status, answer(refused)["code"], answer(refused)["param"]) == (status, code, param)
