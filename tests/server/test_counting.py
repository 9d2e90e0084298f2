"""count_tokens: the backend's number where it has one, an estimate that says so elsewhere."""

import json
from typing import Any

import pytest

from strom.transport.memory import Script
from strom.transport.types import TransportFailure
from tests.server.rig import ServerRig, answer, json_script, provider

BODY = {"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "How many tokens are these?"}]}
PATH = "/v1/messages/count_tokens"


def source(exchange: Any) -> bytes | None:
    return exchange.header_out(b"x-strom-usage-source")  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "protocol"), [("anthropic", "anthropic"), ("llama-cpp", "openai-chat")])
async def test_backends_that_count_messages(kind: str, protocol: str) -> None:
    rig = ServerRig(json_script({"input_tokens": 4242}), providers=(provider("p", kind, protocol),))
    exchange = await rig.ask("POST", PATH + "?beta=true", {**BODY, "temperature": None})
    assert answer(exchange) == {"input_tokens": 4242}
    assert source(exchange) == b"reported"
    sent = rig.client.sent[0].request
    assert sent.target == "/v1/messages/count_tokens"
    assert json.loads(sent.body) == BODY


async def test_vllm_tokenizes_a_chat() -> None:
    rig = ServerRig(json_script({"count": 17, "tokens": []}), providers=(provider("p", "vllm"),))
    exchange = await rig.ask("POST", PATH, BODY)
    assert (answer(exchange), source(exchange)) == ({"input_tokens": 17}, b"reported")
    sent = json.loads(rig.client.sent[0].request.body)
    assert set(sent) == {"model", "messages"}


async def test_others_give_an_estimate_that_grows_with_the_request() -> None:
    rig = ServerRig()
    exchange = await rig.ask("POST", PATH, BODY)
    assert source(exchange) == b"estimated"
    full = answer(exchange)["input_tokens"]
    less = answer(await rig.ask("POST", PATH, {k: v for k, v in BODY.items() if k != "system"}))["input_tokens"]
    assert full > less > 0
    assert rig.client.sent == []


@pytest.mark.parametrize(
    "script",
    [
        Script(status=0, failure=TransportFailure("connect", "", sent=False)),
        json_script(b"nothing", 404),
        json_script(b"not json"),
        json_script({"tokens": 1}),
        json_script({"error": {"type": "api_error", "message": "x"}}, 500),
    ],
)
async def test_a_backend_that_fails_to_count_gives_an_estimate(script: Script) -> None:
    rig = ServerRig(script, providers=(provider("p", "llama-cpp"),))
    exchange = await rig.ask("POST", PATH, BODY)
    assert (exchange.status, source(exchange)) == (200, b"estimated")


async def test_what_the_backend_says_of_the_caller_s_mistake_is_passed_on() -> None:
    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": "messages: odd"}}
    rig = ServerRig(json_script(refusal, 400), providers=(provider("p", "anthropic", "anthropic"),))
    exchange = await rig.ask("POST", PATH, BODY)
    assert exchange.status == 400
    assert "odd" in answer(exchange)["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages":5}'])
async def test_a_body_that_is_no_request(body: bytes) -> None:
    exchange = await ServerRig().ask("POST", PATH, body)
    assert exchange.status == 400
    assert answer(exchange)["type"] == "error"
