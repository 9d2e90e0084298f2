"""`/platform/v1/keys` and `/platform/v1/limits`: a key from its making to its end, and what is left of its limits."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from strom.core.access import Budget, KeySettings, Limits
from strom.policies.auth import KeyRing
from strom.policies.limits import LimitBook
from strom.policies.managed_keys import ManagedKeys
from strom.server.platform_keys import PlatformKeys
from strom.server.platform_limits import PlatformLimits
from strom.stores.keys_memory import MemoryKeys
from strom.transport.memory import MemoryExchange
from tests.server.rig import ServerRig, answer, json_script

BOSS = KeySettings("boss", hashlib.sha256(b"boss").hexdigest(), admin=True)
AS_BOSS = [(b"authorization", b"Bearer boss")]
REPLY = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}  # fmt: skip
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


class KeyRig(ServerRig):
    """With one admin key in the configuration, and managed keys in memory."""

    def __init__(self, replies: int = 0) -> None:
        super().__init__(*[json_script(REPLY) for _ in range(replies)], keys=(BOSS,))
        self.keys = MemoryKeys()
        self.managed = ManagedKeys(self.keys)
        book = LimitBook(Limits(concurrent=50))
        ring = KeyRing((BOSS,), required=True, managed=self.managed)
        self.gateway.state = msgspec.structs.replace(self.gateway.state, keys=ring, limits=book)
        PlatformKeys(self.gateway, self.keys, self.managed).register(self.app.platform)
        PlatformLimits(self.gateway, lambda: self.managed.keys).register(self.app.platform)

    async def boss(self, method: str, path: str, body: Any = None) -> MemoryExchange:
        return await self.ask(method, path, body, AS_BOSS)

    async def make(self, name: str, **more: Any) -> Any:
        made = await self.boss("POST", "/platform/v1/keys", {"name": name, **more})
        assert made.status == 201, made.body_out
        return answer(made)

    async def chat(self, secret: str) -> MemoryExchange:
        return await self.ask("POST", "/v1/chat/completions", CHAT, [(b"x-api-key", secret.encode())])


async def test_a_key_counts_at_once_and_its_secret_is_shown_once() -> None:
    rig = KeyRig(replies=1)
    made = await rig.make("ci", models=["m"])
    assert made["secret"].startswith(made["key"]["prefix"] + "-")
    assert len(made["secret"].rpartition("-")[2]) >= 27  # of 62 letters: 160 bits
    assert (await rig.chat(made["secret"])).status == 200
    for path in ("/platform/v1/keys", f"/platform/v1/keys/{made['key']['id']}", "/platform/v1/keys/ci"):
        shown = await rig.boss("GET", path)
        assert shown.status == 200
        assert made["secret"].rpartition("-")[2].encode() not in shown.body_out
    (record,) = rig.store.list().records
    assert record.key_name == "ci"


async def test_rotated_disabled_enabled_revoked() -> None:
    rig = KeyRig(replies=5)
    old = await rig.make("ci")
    fresh = answer(await rig.boss("POST", "/platform/v1/keys/ci/rotate", {"overlap_s": 60}))
    for secret in (old["secret"], fresh["secret"]):
        assert (await rig.chat(secret)).status == 200
    newest = answer(await rig.boss("POST", "/platform/v1/keys/ci/rotate", {"overlap_s": 0}))
    replaced = await rig.chat(fresh["secret"])
    assert (replaced.status, answer(replaced)["error"]["code"]) == (401, "api_key_replaced")
    assert answer(await rig.boss("POST", "/platform/v1/keys/ci/disable"))["disabled"]
    assert answer(await rig.chat(newest["secret"]))["error"]["code"] == "api_key_disabled"
    await rig.boss("POST", "/platform/v1/keys/ci/enable")
    assert (await rig.chat(newest["secret"])).status == 200
    assert answer(await rig.boss("DELETE", "/platform/v1/keys/ci"))["revoked_at"]
    refused = await rig.chat(newest["secret"])
    assert (refused.status, answer(refused)["error"]["code"]) == (401, "api_key_revoked")
    assert (await rig.boss("POST", "/platform/v1/keys/ci/rotate", {})).status == 409


async def test_scopes_bind() -> None:
    rig = KeyRig(replies=1)
    routes = await rig.make("embedder", routes=["/v1/embeddings"])
    assert (await rig.chat(routes["secret"])).status == 403
    models = await rig.make("other", models=["x-*"])
    assert (await rig.chat(models["secret"])).status == 403
    limited = await rig.make("slow", limits={"requests_per_minute": 1})
    assert (await rig.chat(limited["secret"])).status == 200
    assert (await rig.chat(limited["secret"])).status == 429


async def test_pages_of_keys() -> None:
    rig = KeyRig()
    for name in "abc":
        await rig.make(name)
    first = answer(await rig.boss("GET", "/platform/v1/keys?limit=2"))
    rest = answer(await rig.boss("GET", f"/platform/v1/keys?limit=2&cursor={first['next_cursor']}"))
    assert len(first["data"]) == 2
    assert len(rest["data"]) == 1
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": " a"}, {"name": "sk-strom-x"}, {"name": "a", "limit": {}}, {"name": "a", "policy": "no"},
        {"name": "a", "limits": {"requests_per_minute": 0}}, {"name": "a", "limits": {"rpm": 1}}, b"{", b"[]",
        {"name": "a", "expires_at": "2001-01-01T00:00:00Z"}, {"name": "a", "models": [""]}, {"name": "a\nb"},
        {"name": "a", "limits": {"budget": {"amount": 1, "currency": "euro"}}}, {"name": "a", "stream": True},
        {"name": "a", "expires_at": "9999-12-31T23:59:59-12:00"}, {"name": "a", "limits": {"concurrent": 10**12}},
    ],
)  # fmt: skip
async def test_keys_that_cannot_be_made(body: Any) -> None:
    rig = KeyRig()
    assert (await rig.boss("POST", "/platform/v1/keys", body)).status == 400
    assert rig.keys.snapshot().keys == ()


async def test_a_name_that_is_taken() -> None:
    rig = KeyRig()
    await rig.make("ci")
    for name in ("boss", "ci"):
        refused = await rig.boss("POST", "/platform/v1/keys", {"name": name})
        assert (refused.status, answer(refused)["code"], answer(refused)["param"]) == (409, "name_taken", "name")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/platform/v1/keys/nobody", 404),
        ("DELETE", "/platform/v1/keys/nobody", 404),
        ("POST", "/platform/v1/keys/nobody/rotate", 404),
        ("DELETE", "/platform/v1/keys", 405),
        ("PUT", "/platform/v1/keys/nobody", 405),
        ("GET", "/platform/v1/keys/nobody/rotate", 405),
        ("POST", "/platform/v1/keys/nobody/sing", 404),
        ("GET", "/platform/v1/keys?colour=red", 400),
        ("GET", "/platform/v1/keys?cursor=x", 400),
        ("GET", "/platform/v1/limits?limit=0", 400),
        ("POST", "/platform/v1/limits", 405),
    ],
)
async def test_requests_that_are_none(method: str, path: str, status: int) -> None:
    assert (await KeyRig().boss(method, path)).status == status


async def test_a_secret_that_is_pasted_into_a_path_is_not_repeated() -> None:
    exchange = await KeyRig().boss("GET", "/platform/v1/keys/sk-strom-abc-verysecret")
    assert exchange.status == 404
    assert b"verysecret" not in exchange.body_out


async def test_only_admins_may() -> None:
    rig = KeyRig()
    made = await rig.make("ci")
    for headers, status in (([(b"x-api-key", made["secret"].encode())], 403), ([], 401)):
        for method, path in (("GET", "/keys"), ("POST", "/keys"), ("DELETE", "/keys/ci"), ("GET", "/limits")):
            assert (await rig.ask(method, f"/platform/v1{path}", None, headers)).status == status


async def test_limits_and_what_is_left_of_them() -> None:
    rig = KeyRig(replies=1)
    budget = {"amount": 0.1, "currency": "EUR", "per": "day"}
    limits = {"requests_per_minute": 10, "tokens_per_minute": 1000, "concurrent": 2, "budget": budget}
    made = await rig.make("ci", limits=limits)
    await rig.chat(made["secret"])
    rows = answer(await rig.boss("GET", "/platform/v1/limits"))["data"]
    assert [row["scope"] for row in rows] == ["all", "key:ci"]
    assert rows[0]["concurrent"] == {"limit": 50, "running": 0}
    row = rows[1]
    assert row["requests_per_minute"]["remaining"] in (9, 10)
    assert 988 <= row["tokens_per_minute"]["remaining"] <= 1000
    assert (row["budget"]["amount"], row["budget"]["spent"], row["budget"]["currency"]) == ("0.1", "0", "EUR")
    first = answer(await rig.boss("GET", "/platform/v1/limits?limit=1"))
    assert [row["scope"] for row in first["data"]] == ["all"]
    second = answer(await rig.boss("GET", f"/platform/v1/limits?cursor={first['next_cursor']}"))
    assert [row["scope"] for row in second["data"]] == ["key:ci"]
    assert Budget(0.1, "EUR", "day") == rig.managed.keys[0].limits.budget
