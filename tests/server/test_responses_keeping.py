"""Where retention is "none", nothing of a call is stored, and the client is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from strom.server.responses import Archive
from strom.stores.memory_responses import MemoryResponses
from strom.stores.responses import ResponseLimits, StoredResponse
from strom.transport.memory import Script
from tests.server.responses_rig import OPENED, PATH, ResponsesRig, chat_reply
from tests.server.rig import answer, provider


class Watched(MemoryResponses):
    def __init__(self) -> None:
        super().__init__(ResponseLimits())
        self.put_bytes = b""

    def put(self, stored: StoredResponse) -> bool:
        self.put_bytes += stored.response + stored.input_items
        return super().put(stored)


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[Archive]]:
    yield OPENED
    OPENED.clear()


def rig(store: Watched, *scripts: Script, retention: str | None, protocol: str = "openai-chat") -> ResponsesRig:
    behind = msgspec.structs.replace(provider("p1", protocol=protocol), retention=retention)
    return ResponsesRig(*scripts, behind=behind, store=store)


async def ask(found: ResponsesRig, **more: Any) -> Any:
    exchange = await found.ask("POST", PATH, {"model": "m", "input": "my secret", **more})
    return exchange.status, answer(exchange)


async def test_nothing_is_kept_where_nothing_may_be(store: Watched) -> None:
    found = rig(store, chat_reply("hush"), retention="none")
    status, body = await ask(found)
    assert (status, body["store"]) == (200, False)
    await found.app.close()
    assert store.put_bytes == b""


async def test_elsewhere_it_is(store: Watched) -> None:
    found = rig(store, chat_reply("hush"), retention="30d")
    status, body = await ask(found)
    assert (status, body["store"]) == (200, True)
    await found.app.close()
    assert b"my secret" in store.put_bytes


@pytest.mark.parametrize("wish", [{"store": True}, {"background": True}, {"store": True, "background": True}])
async def test_a_request_that_insists_is_refused(store: Watched, wish: dict[str, bool]) -> None:
    found = rig(store, retention="none")
    status, body = await ask(found, **wish)
    assert (status, body["error"]["param"]) == (400, "background" if "background" in wish else "store")
    assert "retention" in body["error"]["message"]
    assert not found.client.sent
    await found.app.close()
    assert store.put_bytes == b""


async def test_the_upstream_is_told_to_keep_nothing_too(store: Watched) -> None:
    found = rig(store, chat_reply("x"), retention="none", protocol="openai-responses")
    await ask(found)
    assert json.loads(found.client.sent[0].request.body)["store"] is False
    await found.app.close()
