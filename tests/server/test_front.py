"""One port or two: what answers where."""

from __future__ import annotations

from typing import Any

import pytest

from strom.server.browsers import BrowserRules
from strom.server.front import Front
from strom.transport.memory import MemoryExchange
from strom.transport.types import Refusal
from tests.patience import until
from tests.server.rig import ServerRig, answer, json_script

OPEN = BrowserRules((), open_to_all=True, hosts=["127.0.0.1"])


async def ask(method: str, path: str, *headers: tuple[bytes, bytes], **where: Any) -> MemoryExchange:
    rig = ServerRig(json_script({"data": []}))
    front = Front(rig.app, OPEN, admin_apart=where.get("apart", False))
    exchange = MemoryExchange(method, path, headers=headers, refusal=where.get("refusal"))
    (front.handle_admin if where.get("admin") else front.handle)(exchange)
    await until(lambda: exchange.state == "finished")
    return exchange


@pytest.mark.parametrize("path", ["/platform/v1/endpoints", "/platform/v1/traces"])
async def test_operators_ask_where_they_may(path: str) -> None:
    assert (await ask("GET", path)).status == 200
    assert (await ask("GET", path, apart=True)).status == 404
    assert (await ask("GET", path, apart=True, admin=True)).status == 200


async def test_nothing_is_there_that_could_tell_them_from_nothing() -> None:
    hidden = await ask("GET", "/platform/v1/keys", apart=True)
    absent = await ask("GET", "/platform/no/such", apart=True)
    assert (hidden.status, answer(hidden)["detail"]) == (absent.status, answer(absent)["detail"])
    assert (await ask("GET", "/metrics", apart=True)).status == 404


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/", "/v1/messages"])
async def test_nothing_else_at_their_port(path: str) -> None:
    for method in ("GET", "POST"):
        assert (await ask(method, path, apart=True, admin=True)).status == 404
    assert (await ask("GET", "/healthz", apart=True, admin=True)).status == 200


async def test_a_refusal_is_in_the_words_of_the_path() -> None:
    evil = (b"origin", b"https://evil.example")
    chat = await ask("POST", "/v1/chat/completions", evil)
    assert (chat.status, answer(chat)["error"]["code"]) == (403, "permission_denied")
    messages = await ask("POST", "/v1/messages", evil)
    assert (messages.status, answer(messages)["error"]["type"]) == (403, "permission_error")
    assert isinstance(answer(await ask("POST", "/api/chat", evil))["error"], str)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/", "/api/chat"])
async def test_there_is_no_cors_by_default(path: str) -> None:
    for headers in ([], [(b"origin", b"http://localhost:3000"), (b"access-control-request-method", b"POST")]):
        for method in ("OPTIONS", "GET", "POST"):
            exchange = await ask(method, path, *headers)
            assert not [name for name, _ in exchange.headers if name.startswith(b"access-control")]
            if method == "OPTIONS":
                assert exchange.status == 405


async def test_what_the_transport_refused_is_answered_as_ever() -> None:
    refusal = Refusal(400, "bad_request", "no")
    exchange = await ask("POST", "/v1/messages", (b"host", b"evil.example"), refusal=refusal)
    assert exchange.status == 400
