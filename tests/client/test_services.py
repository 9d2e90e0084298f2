"""Embeddings, model lists, token counts, batches, costs (rows B-20, B-29, L-08, M-72; issue item 10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import date
from typing import Any

import pytest

import strom
from strom.client.evidence import add_usage
from strom.client.mapping import total_usage
from strom.client.services import average
from strom.transport.memory import MemoryClient, Script
from strom.transport.types import TransportFailure
from tests.client.rig import Answer, Rig, completed, content, failed, text_answer
from tests.patience import until

JSON = [(b"content-type", b"application/json")]


def near(amount: float) -> Any:
    return pytest.approx(amount)


def whole(data: object, status: int = 200) -> Script:
    return Script(status, JSON, ((json.dumps(data).encode(),),))


async def ask(work: Any, *scripts: Script, name: str = "m", **options: Any) -> tuple[Any, MemoryClient]:
    transport = MemoryClient(*scripts)
    if "/" not in name:
        options["base_url"] = "http://upstream:1"
    model = strom.AsyncModel(name, transport=transport, environ={}, **options)
    coroutine: Coroutine[Any, Any, Any] = work(model)
    return await coroutine, transport


VECTORS = {
    "data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}],
    "usage": {"prompt_tokens": 9},
}


async def test_l08_embeddings_are_one_answer_in_the_order_of_the_texts() -> None:
    found, transport = await ask(lambda model: model.embed(["a", "b"]), whole(VECTORS))
    assert found == strom.Embeddings(((1.0, 2.0), (3.0, 4.0)), None, strom.Usage(9))
    assert transport.sent[0].request.target == "/v1/embeddings"
    assert json.loads(transport.sent[0].request.body) == {"model": "m", "input": ["a", "b"]}


async def test_embeddings_of_ollama() -> None:
    answer = whole({"embeddings": [[1, 0]], "model": "e", "prompt_eval_count": 2})
    found, transport = await ask(lambda model: model.embed("one"), answer, name="ollama/e")
    assert found == strom.Embeddings(((1.0, 0.0),), "e", strom.Usage(2))
    assert transport.sent[0].request.target == "/api/embed"


async def test_m72_long_texts_are_cut_and_averaged_by_length() -> None:
    answer = whole({"data": [{"index": 0, "embedding": [1, 0]}, {"index": 1, "embedding": [0, 1]}]})
    found, _ = await ask(lambda model: model.embed(["xxxx"], max_characters=2), answer)
    assert found.vectors == (pytest.approx((0.5**0.5, 0.5**0.5)),)
    assert average([[1.0, 0.0], [0.0, 1.0]], [3, 4]) == pytest.approx((0.6, 0.8))


@pytest.mark.parametrize("body", [{"data": []}, {"other": 1}])
async def test_embeddings_that_are_none(body: object) -> None:
    with pytest.raises(strom.ProviderError):
        await ask(lambda model: model.embed(["a"]), whole(body))


async def test_anthropic_has_no_embeddings() -> None:
    with pytest.raises(strom.Unsupported):
        await ask(lambda model: model.embed(["a"]), name="anthropic/c", api_key="k")


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("m", "/v1/models", {"data": [{"id": "a"}, {"id": "b"}]}),
        ("ollama/m", "/api/tags", {"models": [{"name": "a"}, {"name": "b"}]}),
        ("anthropic/m", "/v1/models", {"data": [{"id": "a", "type": "model"}, {"id": "b"}]}),
    ],
)
async def test_models(name: str, path: str, body: object) -> None:
    found, transport = await ask(lambda model: model.models(), whole(body), name=name, api_key="k")
    assert found == ["a", "b"]
    assert transport.sent[0].request.target == path


async def test_models_that_are_none() -> None:
    with pytest.raises(strom.ProviderError):
        await ask(lambda model: model.models(), whole([1]))


async def test_errors_of_small_requests_are_typed() -> None:
    with pytest.raises(strom.AuthError):
        await ask(lambda model: model.models(), whole({"error": {"message": "no"}}, 401))
    lost = Script(0, failure=TransportFailure("connect", "refused", sent=False))
    with pytest.raises(strom.ProviderError, match="cannot be reached"):
        await ask(lambda model: model.models(), lost)
    with pytest.raises(strom.TimedOut):
        await ask(lambda model: model.models(), timeouts=strom.Timeouts(first_token_s=0.02))


@pytest.mark.parametrize(
    ("name", "path", "answer"),
    [
        ("anthropic/c", "/v1/messages/count_tokens", {"input_tokens": 12}),
        ("vllm/m", "/tokenize", {"count": 12, "tokens": []}),
        ("llama-cpp/m", "/v1/messages/count_tokens", {"input_tokens": 12}),
    ],
)
async def test_tokens_are_counted_where_the_provider_counts(name: str, path: str, answer: object) -> None:
    found, transport = await ask(
        lambda model: model.count_tokens("Hello", system="s", tools=[{"name": "f"}]),
        whole(answer),
        name=name,
        api_key="k",
    )
    assert found == strom.TokenCount(12, "reported")
    assert transport.sent[0].request.target == path
    assert "stream" not in json.loads(transport.sent[0].request.body)


@pytest.mark.parametrize("script", [whole({"x": 1}), whole([1]), whole({}, 500)])
async def test_a_count_that_fails_is_an_estimate_that_says_so(script: Script) -> None:
    found, _ = await ask(lambda model: model.count_tokens("Hello"), script, name="vllm/m")
    assert found.source == "estimated"
    assert found.tokens > 0


async def test_b29_map_is_bounded_and_keeps_the_order() -> None:
    transport = MemoryClient()
    model = strom.AsyncModel("m", base_url="http://upstream:1", transport=transport)
    work = asyncio.create_task(model.map(["a", "b", "c"], concurrency=2))
    await until(lambda: len(transport.sent) == 2)
    await asyncio.sleep(0.01)  # no third one
    assert len(transport.sent) == 2
    for sent in (transport.sent[1], transport.sent[0]):
        sent.response(200, [(b"content-type", b"text/event-stream")])
        sent.end(*text_answer(json.loads(sent.request.body)["messages"][0]["content"]).reads)
    await until(lambda: len(transport.sent) == 3)
    transport.sent[2].response(500)
    transport.sent[2].end(b"{}")
    results = await work
    assert [result.reply.text if result.reply else None for result in results] == ["a", "b", None]
    assert [result.index for result in results] == [0, 1, 2]
    assert total_usage(results) == strom.Usage(10, 14)


def test_b20_cost_by_the_callers_table_and_unknown_is_none() -> None:
    prices = {"m*": strom.Price(2.0, 4.0, "EUR")}
    metadata = completed(Rig([text_answer()], model={"prices": prices}).play()).metadata
    assert metadata.cost == strom.Cost(near(38e-6), "EUR", near(10e-6), near(28e-6))
    assert completed(Rig([text_answer()]).play()).metadata.cost is None
    assert failed(Rig([Answer((content("a"),))], model={"prices": prices}).play()).metadata.cost is None
    model = strom.Model("openai/gpt", prices={"openai/*": strom.Price(1, 1, "USD")}, api_key="k")
    assert model.cost(strom.Usage(10, 10)) is not None
    assert model.cost(strom.Usage(10, None)) is None


def test_usage_adds_up_field_by_field() -> None:
    first = strom.Usage(1, 2, cached_tokens=3)
    assert add_usage(first, strom.Usage(10, None, 30, 40, 50)) == strom.Usage(11, 2, 33, 40, 50)
    assert add_usage(None, first) is first
    assert add_usage(None, None) is None


def test_b20_parts_priced_apart_and_days_on_which_a_price_holds() -> None:
    price = strom.Price(input=1.0, output=2.0, currency="EUR", cached_input=0.1, cache_write=1.25, reasoning=4.0)
    usage = strom.Usage(
        1_000_000, 1_000_000, cached_tokens=400_000, cache_write_tokens=100_000, reasoning_tokens=500_000
    )
    model = strom.Model("ollama/m", prices={"m": price})
    assert model.cost(usage) == strom.Cost(3.665, "EUR", 0.665, 3.0)
    old = strom.Price(input=9.0, output=9.0, currency="EUR", valid_until=date(2001, 1, 1))
    assert strom.Model("ollama/m", prices={"m": old}).cost(usage) is None
    both = strom.Model("ollama/m", prices={"m": old, "*": price})
    assert both.cost(usage) == model.cost(usage)
