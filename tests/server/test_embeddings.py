"""Embeddings in three forms in front, over OpenAI- and Ollama-like backends; every call leaves its record."""

import asyncio
import base64
import json
import struct
from typing import Any

import pytest

from strom.transport.memory import MemoryExchange, Script
from strom.transport.types import TransportFailure
from strom.upstreams.settings import EndpointSettings, ModelSettings, Price
from tests.patience import until
from tests.server.rig import ServerRig, answer, json_script, provider

OPENAI = {"object": "list", "model": "real", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}],
          "usage": {"prompt_tokens": 3, "total_tokens": 3}}  # fmt: skip
OLLAMA = {"model": "real", "embeddings": [[0.5, -1.0]], "prompt_eval_count": 3}
BEHIND = {"openai-chat": OPENAI, "ollama": OLLAMA}
FRONTS: dict[str, Any] = {
    "/v1/embeddings": lambda body: body["data"][0]["embedding"],
    "/api/embed": lambda body: body["embeddings"][0],
    "/api/embeddings": lambda body: body["embedding"],
}


def wish(path: str) -> dict[str, Any]:
    return {"model": "m", "prompt" if path == "/api/embeddings" else "input": "hello"}


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("behind", BEHIND)
async def test_every_form_over_every_backend(path: str, behind: str) -> None:
    rig = ServerRig(json_script(BEHIND[behind]), providers=(provider("p", protocol=behind),))
    exchange = await rig.ask("POST", path, wish(path))
    assert exchange.status == 200, exchange.body_out
    assert FRONTS[path](answer(exchange)) == [0.5, -1.0]
    assert rig.client.sent[0].request.target == ("/api/embed" if behind == "ollama" else "/v1/embeddings")
    (record,) = rig.store.list().records
    assert (record.status, record.usage.input_tokens, record.usage_source) == ("completed", 3, "reported")
    assert record.attempts[0].outcome == "ok"


async def test_base64_is_little_endian_float32() -> None:
    rig = ServerRig(json_script(OLLAMA), providers=(provider("p", protocol="ollama"),))
    exchange = await rig.ask("POST", "/v1/embeddings", {"model": "m", "input": ["x"], "encoding_format": "base64"})
    raw = base64.b64decode(answer(exchange)["data"][0]["embedding"])
    assert struct.unpack("<2f", raw) == (0.5, -1.0)


async def test_the_same_form_is_relayed_as_it_came() -> None:
    body = json.dumps({**OPENAI, "x_extra": 1}).encode()
    exchange = await ServerRig(json_script(body)).ask("POST", "/v1/embeddings", wish("/v1/embeddings"))
    assert exchange.body_out == body


@pytest.mark.parametrize(
    "body", [{"model": "m", "input": "x", "stream": True}, {"model": "m"}, b"[]", {"model": "m", "input": []}]
)
async def test_requests_that_are_none(body: Any) -> None:
    rig = ServerRig()
    assert (await rig.ask("POST", "/v1/embeddings", body)).status == 400
    assert rig.client.sent == []
    assert rig.store.list().records[0].status == "rejected"


async def test_a_backend_without_embeddings_says_so() -> None:
    rig = ServerRig(providers=(provider("p", "anthropic", "anthropic"),))
    exchange = await rig.ask("POST", "/v1/embeddings", wish("/v1/embeddings"))
    assert exchange.status == 400
    assert "'p'" in answer(exchange)["error"]["message"]


def two_endpoints() -> tuple[ModelSettings, ...]:
    price = Price(2.0, 0.0, "EUR")
    return (ModelSettings("m", tuple(EndpointSettings(f"e{n}", "p1", "real", n, price=price) for n in (1, 2))),)


async def test_the_next_endpoint_answers_when_the_first_is_busy() -> None:
    rig = ServerRig(json_script({"error": {"message": "busy"}}, 503), json_script(OPENAI), models=two_endpoints())
    assert (await rig.ask("POST", "/v1/embeddings", wish("/v1/embeddings"))).status == 200
    (record,) = rig.store.list().records
    assert [attempt.outcome for attempt in record.attempts] == ["refused", "ok"]
    assert record.cost_estimate is not None
    assert record.cost_estimate.amount == pytest.approx(6e-6)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (json_script({"error": {"message": "no"}}, 400), 400),
        (json_script({"error": {"message": "no"}}, 401), 502),
        (json_script({"data": []}), 502),
        (json_script(b"<html>"), 502),
        (Script(status=0, failure=TransportFailure("connect", "", sent=False)), 502),
    ],
)
async def test_failures_are_told_and_recorded(script: Script, status: int) -> None:
    rig = ServerRig(script)
    exchange = await rig.ask("POST", "/v1/embeddings", wish("/v1/embeddings"))
    assert exchange.status == status
    assert rig.store.list().records[0].status == "failed"


async def test_a_client_that_leaves_stops_the_backend() -> None:
    rig = ServerRig()
    exchange = MemoryExchange("POST", "/v1/embeddings", body=json.dumps(wish("/v1/embeddings")).encode())
    rig.app.handle(exchange)
    await until(lambda: rig.client.sent)
    exchange.disconnect()
    await until(lambda: rig.client.sent[0].aborted and rig.store.list().records)
    assert rig.store.list().records[0].status == "cancelled"


ASK = {"model": "m", "input": ["text"]}


async def test_a_backend_that_fails_is_named() -> None:
    rig = ServerRig(json_script({"error": {"message": "no memory"}}, 500))
    exchange = await rig.ask("POST", "/v1/embeddings", ASK)
    assert exchange.status == 502
    assert "Backend 'p1': no memory" in str(answer(exchange))


async def test_a_backend_that_cannot_be_reached_is_named() -> None:
    rig = ServerRig(Script(0, failure=TransportFailure("connect", "", sent=False)))
    exchange = await rig.ask("POST", "/v1/embeddings", ASK)
    assert exchange.status == 502
    assert "'p1'" in str(answer(exchange))
    (record,) = rig.store.list().records
    assert [attempt.outcome for attempt in record.attempts] == ["unreachable"]


async def test_a_client_that_leaves_is_recorded_as_it_was() -> None:
    rig = ServerRig()
    exchange = MemoryExchange("POST", "/v1/embeddings", body=b'{"model":"m","input":"x"}')
    rig.app.handle(exchange)
    for _ in range(3):  # turns of the loop: the task begins, and sends
        await asyncio.sleep(0)
    exchange.disconnect()
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.client.sent[0].aborted
    (record,) = rig.store.list().records
    assert (record.status, record.http_status) == ("cancelled", 499)
    assert [attempt.outcome for attempt in record.attempts] == ["cancelled"]
    assert (record.usage_source, record.usage.input_tokens, record.usage.output_tokens) == ("estimated", 1, 0)
    assert record.complete is False


async def test_a_defect_leaves_a_record() -> None:
    rig = ServerRig(json_script({"object": "list", "data": []}))
    rig.gateway.state = None  # type: ignore[assignment]
    exchange = await rig.ask("POST", "/v1/embeddings", ASK)
    assert exchange.status == 500
    (record,) = rig.store.list().records
    assert (record.status, record.fault, record.http_status) == ("rejected", "gateway", 500)
