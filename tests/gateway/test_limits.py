"""Limits on calls: refused in the caller's protocol, told on every answer, settled by what was really used."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec
import pytest

from strom.core.access import Budget, KeySettings, Limits
from strom.gateway.admitting import Desk
from strom.policies.limits import LimitBook
from strom.shared.limiter import Demand, Scope, Then, remaining
from strom.shared.memory import MemoryLimiter
from strom.transport.memory import MemoryExchange
from tests.gateway.rig import DONE, FINISH, JSON, ROLE, SSE, USAGE, Rig, chat_frame, text

FRONTS = ("openai-chat", "openai-responses", "anthropic", "ollama")


def rig_with(limits: Limits, behind: str = "openai-chat", model: Limits | None = None) -> Rig:
    key = KeySettings("ci", hashlib.sha256(b"gw-1").hexdigest(), limits=limits)
    rig = Rig(behind, keys=(key,))
    book = LimitBook(models=[("m", (), model or Limits())], assumed_output_tokens=100)
    rig.gateway.state = msgspec.structs.replace(rig.gateway.state, limits=book)
    return rig


AUTH = [(b"x-api-key", b"gw-1")]


def answer(rig: Rig) -> None:
    upstream = rig.upstream()
    upstream.response(200, SSE)
    upstream.read(ROLE + text("hi") + FINISH + USAGE + DONE)
    upstream.end()


@pytest.mark.parametrize("front", FRONTS)
def test_refused_in_the_callers_protocol(front: str) -> None:
    rig = rig_with(Limits(requests_per_minute=1))
    rig.call(front, headers=AUTH)
    refused = rig.call(front, headers=AUTH)
    assert refused.status == 429
    assert refused.header_out(b"retry-after") == b"60"
    body = json.loads(refused.body_out)
    match front:
        case "anthropic":
            assert body["error"]["type"] == "rate_limit_error"
            assert refused.header_out(b"anthropic-ratelimit-requests-remaining") == b"0"
        case "ollama":
            assert "limit of 1 requests per minute" in body["error"]
        case _:
            assert body["error"]["code"] == "rate_limit_exceeded"
            assert refused.header_out(b"x-ratelimit-remaining-requests") == b"0"
            assert refused.header_out(b"x-ratelimit-reset-requests") == b"1m0s"
    assert len(rig.client.sent) == 1
    (record,) = rig.records.all
    assert (record.status, record.http_status, record.fault, record.key_name) == ("rejected", 429, "client", "ci")


def test_a_budget_that_is_used_up_is_no_matter_of_waiting() -> None:
    rig = rig_with(Limits(budget=Budget(0.00001, "EUR", "day")))
    rig.call(headers=AUTH)
    answer(rig)  # 9 in, 3 out: 0.000015 EUR
    refused = rig.call(headers=AUTH)
    error = json.loads(refused.body_out)["error"]
    assert (refused.status, error["code"], error["type"]) == (429, "insufficient_quota", "insufficient_quota")


@pytest.mark.parametrize("front", FRONTS)
def test_sdks_are_told_not_to_come_back_for_what_will_be_refused_again(front: str) -> None:
    """Of their own accord they retry a 429, after the time it names: a minute each for a prompt that never fits."""
    rig = rig_with(Limits(tokens_per_minute=5))
    long = "word " * 100
    turn = {"input": long} if front == "openai-responses" else {"messages": [{"role": "user", "content": long}]}
    refused = rig.call(front, headers=AUTH, **turn)
    assert refused.status == 429
    assert b"shorten it" in refused.body_out
    assert refused.header_out(b"x-should-retry") == b"false"
    spent = rig_with(Limits(budget=Budget(0.00001, "EUR", "day")))
    spent.call(headers=AUTH)
    answer(spent)
    assert spent.call(front, headers=AUTH).header_out(b"x-should-retry") == b"false"


def test_sdks_may_come_back_for_what_time_gives_back() -> None:
    rig = rig_with(Limits(requests_per_minute=1))
    rig.call(headers=AUTH)
    assert rig.call(headers=AUTH).header_out(b"x-should-retry") is None


@pytest.mark.parametrize("stream", [True, False])
def test_our_limits_stand_on_every_answer_and_an_upstreams_do_not(stream: bool) -> None:
    rig = rig_with(Limits(requests_per_minute=10, tokens_per_minute=1000))
    exchange = rig.call(headers=AUTH, stream=stream, max_tokens=50)
    theirs = [(b"x-ratelimit-limit-requests", b"77777"), (b"x-ratelimit-remaining-input", b"1")]
    upstream = rig.upstream()
    if stream:
        upstream.response(200, SSE + theirs)
        upstream.read(ROLE + text("hi") + FINISH + USAGE + DONE)
    else:
        upstream.response(200, JSON + theirs)
        choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        upstream.read(json.dumps(body).encode())
    upstream.end()
    assert exchange.status == 200
    told = [field for field in exchange.headers if field[0].startswith(b"x-ratelimit-")]
    assert [name for name, _ in told].count(b"x-ratelimit-limit-requests") == 1
    assert exchange.header_out(b"x-ratelimit-limit-requests") == b"10"
    assert exchange.header_out(b"x-ratelimit-remaining-requests") == b"9"
    assert exchange.header_out(b"x-ratelimit-remaining-input") is None
    left = int(exchange.header_out(b"x-ratelimit-remaining-tokens") or b"")
    assert left == 1000 - 50 - rig_estimate()


def rig_estimate() -> int:
    """Of the rig's own prompt."""
    rig = rig_with(Limits(tokens_per_minute=10_000))
    exchange = rig.call(headers=AUTH, max_tokens=1)
    answer(rig)
    return 10_000 - 1 - int(exchange.header_out(b"x-ratelimit-remaining-tokens") or b"")


def test_an_upstreams_429_does_not_tell_its_limits_to_a_client_that_has_its_own() -> None:
    rig = rig_with(Limits(requests_per_minute=10))
    exchange = rig.call(headers=AUTH)
    upstream = rig.upstream()
    upstream.response(429, [*JSON, (b"x-ratelimit-limit-requests", b"77777"), (b"retry-after", b"3")])
    upstream.read(b'{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}')
    upstream.end()
    assert exchange.status == 429
    assert exchange.header_out(b"x-ratelimit-limit-requests") == b"10"
    assert exchange.header_out(b"retry-after") == b"3"


def left_of(rig: Rig, name: str, limits: Limits) -> int:
    """Tokens that the bucket would give now."""
    found: list[Any] = []
    rig.gateway.desk.limiter.reserve(Demand((Scope(name, tokens=limits.tokens_per_minute or 0),)), found.append)
    found[0].settle()
    return remaining(found[0].readings[0][1], limits.tokens_per_minute or 0)


@pytest.mark.parametrize("how", ["finished", "left", "refused", "broken"])
def test_reserved_tokens_become_the_used_ones_however_the_call_ends(how: str) -> None:
    limits = Limits(tokens_per_minute=10_000, concurrent=1)
    rig = rig_with(limits)
    exchange = rig.call(headers=AUTH, max_tokens=5000, stream_options={"include_usage": True})
    assert left_of(rig, "key:ci", limits) < 5001
    expected = 0
    match how:
        case "finished":
            answer(rig)
            expected = 12
        case "left":
            rig.upstream().response(200, SSE)
            rig.upstream().read(ROLE + text("abcdefgh"))
            exchange.disconnect()
            expected = rig_estimate() + 2
        case "refused":
            rig.upstream().response(400, JSON)
            rig.upstream().read(b'{"error":{"message":"no"}}')
            rig.upstream().end()
        case _:
            rig.upstream().response(200, SSE)
            rig.upstream().read(ROLE + text("abcdefgh"))
            rig.upstream().end()
            expected = rig_estimate() + 2
    assert left_of(rig, "key:ci", limits) == 10_000 - expected
    assert rig.call(headers=AUTH).status != 429  # the slot is free again


def test_the_models_limit_binds_all_its_callers() -> None:
    rig = rig_with(Limits(), model=Limits(concurrent=1))
    first = rig.call(headers=AUTH)
    refused = rig.call(headers=AUTH)
    assert refused.status == 429
    assert "of the model 'm'" in json.loads(refused.body_out)["error"]["message"]
    first.disconnect()
    assert rig.call(headers=AUTH).status == 0


class LateLimiter(MemoryLimiter):
    """Answers when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Demand, Then]] = []

    def reserve(self, demand: Demand, then: Then) -> None:
        self.waiting.append((demand, then))

    def decide(self) -> None:
        super().reserve(*self.waiting.pop(0))


@pytest.fixture
def late() -> tuple[Rig, LateLimiter]:
    rig = rig_with(Limits(concurrent=1))
    limiter = LateLimiter()
    rig.gateway.desk = Desk(limiter, rig.services.wall)
    return rig, limiter


def test_nothing_is_sent_before_the_decision(late: tuple[Rig, LateLimiter]) -> None:
    rig, limiter = late
    exchange = rig.call(headers=AUTH)
    assert not rig.client.sent
    limiter.decide()
    answer(rig)
    assert exchange.status == 200
    assert limiter.taken(Scope("key:ci", concurrent=1)) == 0


def test_a_client_that_leaves_before_the_decision_holds_nothing(late: tuple[Rig, LateLimiter]) -> None:
    rig, limiter = late
    rig.call(headers=AUTH).disconnect()
    limiter.decide()
    assert not rig.client.sent
    assert rig.record.status == "cancelled"
    assert limiter.taken(Scope("key:ci", concurrent=1)) == 0


def test_a_late_refusal_is_an_answer_like_any_other(late: tuple[Rig, LateLimiter]) -> None:
    rig, limiter = late
    first, second = rig.call(headers=AUTH), rig.call(headers=AUTH)
    limiter.decide()
    limiter.decide()
    assert (first.status, second.status) == (0, 429)


class Backend:
    """Counts what it really did: the prompt as the gateway estimates it, and four characters a token."""

    def __init__(self, rig: Rig, prompt: int) -> None:
        self.rig = rig
        self.prompt = prompt
        self.counted = 0

    def serve(self, exchange: MemoryExchange, chance: random.Random) -> None:
        upstream = self.rig.upstream()
        fate = chance.random()
        if fate < 0.1:
            upstream.response(503, JSON)
            upstream.read(b"{}")
            upstream.end()
            return
        upstream.response(200, SSE)
        tokens = chance.randint(0, 6)
        self.counted += self.prompt + tokens
        for at in range(tokens):
            upstream.read(ROLE * (at == 0) + text("abcd"))
        if fate < 0.5:
            exchange.disconnect()
        elif fate < 0.6:
            upstream.end()
        else:
            usage = {"prompt_tokens": self.prompt, "completion_tokens": tokens, "total_tokens": self.prompt + tokens}
            told = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
            upstream.read(FINISH + b"data: " + json.dumps({**told, "usage": usage}).encode() + b"\n\n" + DONE)
            upstream.end()


def test_what_is_settled_is_what_the_backend_counted_over_thousands_of_calls() -> None:
    limit = 1_000_000_000
    limits = Limits(tokens_per_minute=limit, concurrent=1)
    prompt = rig_estimate()
    rig = rig_with(limits)
    backend = Backend(rig, prompt)
    chance = random.Random(5)
    for _ in range(3000):
        exchange = rig.call(headers=AUTH, max_tokens=chance.randint(1, 9000))
        backend.serve(exchange, chance)
        rig.client.sent.clear()
    assert backend.counted > 10_000
    assert left_of(rig, "key:ci", limits) == limit - backend.counted
    assert len(rig.records.all) == 3000
    assert chat_frame({}) is not None
