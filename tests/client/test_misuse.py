"""What a program gets wrong is told at once, in words, and before anything is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import strom
from tests.client.loopback import Loopback
from tests.patience import wait_until

ASYNC: Any = strom.AsyncModel


def model(**options: Any) -> Any:
    """Untyped: a type checker would find most of these mistakes."""
    return strom.Model("m", base_url="http://127.0.0.1:9", **options)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: model(api_kei="x"), "Model has no option 'api_kei'; did you mean 'api_key'"),
        (lambda: ASYNC("ollama/m", tracers=None), "AsyncModel has no option"),
        (lambda: model().stream("x", temprature=1.0), "did you mean 'temperature'"),
        (lambda: model().complete("x", top_p=0.5), r"config=strom.CompletionConfig\(top_p=…\)"),
        (lambda: model().session(sytem="x"), "a session has no option 'sytem'; did you mean 'system'"),
        (lambda: model().session(options={"tool": []}), "options has no option 'tool'"),
    ],
)
def test_options_that_do_not_exist(wrong: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: model(protocol="chat"), "no protocol 'chat'"),
        (lambda: model(config={"temperature": 1}), "CompletionConfig"),
        (lambda: model(prices={"*": {"input": 1.0}}), "prices"),
        (lambda: model().stream(""), "anything in it"),
        (lambda: model().stream([]), "no message"),
        (lambda: model().stream(None), "NoneType"),
        (lambda: strom.Message("robot", "x"), "roles system, user, assistant"),  # type: ignore[arg-type]
        (lambda: strom.Message("tool", "x"), "result of a tool"),  # type: ignore[arg-type]
        (lambda: model().stream("x", temperature="hot"), "temperature"),
        (lambda: model().stream("x", config={"seed": 1}), "CompletionConfig"),
        (lambda: model().stream("x", parallel_tools=-1), "negative"),
        (lambda: model().map(["x"], concurrency=-1), "negative"),
        (lambda: strom.Session.load(model(), "no/such/file.json"), "cannot be read"),
    ],
)
def test_values_that_cannot_be(wrong: Any, words: str) -> None:
    with pytest.raises(strom.BadRequest, match=words):
        wrong()


def test_a_price_may_be_written_as_in_the_configuration(backend: Loopback) -> None:
    prices = {"m": {"input": 1.0, "output": 2.0, "currency": "EUR"}}
    cost = strom.Model("m", base_url=backend.url, prices=prices).complete("x").cost
    assert cost is not None
    assert cost.currency == "EUR"


def test_a_closed_stream_says_that_it_was_closed() -> None:
    stream = model().stream("x")
    stream.close()
    with pytest.raises(strom.StreamMisuse, match="closed"):
        iter(stream)


def test_models_close_their_idle_connections_and_can_go_on(backend: Loopback) -> None:
    with strom.Model("m", base_url=backend.url) as opened:
        assert opened.complete("a").text == "a "
    wait_until(lambda: backend.open == 0)
    assert opened.complete("b").text == "b "


async def test_async_models_close_their_idle_connections(backend: Loopback) -> None:
    async with strom.AsyncModel("m", base_url=backend.url) as opened:
        assert (await opened.complete("a")).text == "a "


@pytest.mark.parametrize("ending", ["", "loop.close()\n"])
def test_a_loop_that_is_not_ended_properly_makes_no_noise(backend: Loopback, ending: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, strom\n"
        "loop = asyncio.new_event_loop()\n"
        f"model = strom.AsyncModel('m', base_url={backend.url!r})\n"
        "print(loop.run_until_complete(model.complete('a')).text)\n" + ending
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("a \n", "")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: model(retry=3), "strom.Retry"),
        (lambda: model().stream("x", retry={"attempts": 2}), "strom.Retry"),
        (lambda: strom.Retry(attempts=0), "at least 1"),
        (lambda: strom.Retry(base_delay_s=-1.0), "negative"),
        (lambda: model().stream("x", continue_from=3), "nothing to continue in a int"),
        (lambda: strom.Image("cat.png"), "Image.from_path"),  # type: ignore[arg-type]  # that is the mistake
    ],
)
def test_values_of_the_wrong_kind(wrong: Any, words: str) -> None:
    with pytest.raises(strom.BadRequest, match=words):
        wrong()


def test_continue_from_nothing_is_no_continuation(backend: Loopback) -> None:
    assert not strom.Model("m", base_url=backend.url).complete("x", continue_from=None).metadata.continued  # type: ignore[arg-type]
