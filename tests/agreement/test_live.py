"""The same program before real models: the embedded one and mlx_lm.server, in every protocol through the gateway, and direct.

At temperature 0 the model says the same each time, so whole event sequences are compared. Small models rarely use tools well:
what counts is that every protocol shows the same of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import strom
from strom.upstreams.settings import ProtocolName
from tests.agreement.program import Seen, seen, weather
from tests.agreement.test_agreement import PROTOCOLS
from tests.live import programs

pytestmark = pytest.mark.live

MODEL = "default_model"
"""The one name that mlx_lm.server takes for the model it was started with; llama.cpp takes any."""
CALM = strom.CompletionConfig(temperature=0, max_tokens=32)


class Colour(msgspec.Struct):
    colour: str


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with programs.serving(tmp_path_factory.mktemp("embedded")) as gateway:
        if "smollm2" not in gateway.program.output:
            pytest.skip("a model server runs on this machine's usual ports: the embedded model is not used")
        yield gateway.url


@pytest.fixture(scope="module")
def mlx() -> Iterator[str]:
    shared = Path(os.environ.get("STROM_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    if not (shared / "backends" / "mlx.sh").is_file():
        pytest.skip("the scripts of the model servers are missing: STROM_SHARED names the folder above them")
    with programs.model_server(shared, "mlx.sh") as url:
        yield url


@pytest.fixture(scope="module")
def mlx_gateway(mlx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with programs.serving(tmp_path_factory.mktemp("mlx"), "--backend", mlx) as gateway:
        yield gateway.url


def run(model: strom.Model) -> dict[str, Seen]:
    session = model.session(options={"config": CALM})
    said = [seen(session.stream(prompt)) for prompt in ("Name a sea.", "Name another.")]
    return {
        "stream": seen(model.stream("Write a sentence about the sea.", config=CALM)),
        "tools": seen(model.stream("What is the weather in Rome?", config=CALM, tools=[weather], max_rounds=1)),
        "structured": seen(model.stream("Name a colour, as JSON.", config=CALM, into=Colour)),
        "session": [view for turn in said for view in turn],
        "roles": [tuple(message.role for message in session.messages)],
    }


def legal(views: Seen) -> bool:
    """Exactly one terminal event, and it is the last."""
    return [view[0] in ("completed", "error") for view in views] == [False] * (len(views) - 1) + [True]


def agree(runs: dict[str, dict[str, Seen]]) -> None:
    (_, first), *others = runs.items()
    assert len([view for view in first["stream"] if view[0] == "content"]) > 5
    assert all(legal(first[name]) for name in ("stream", "tools", "structured"))
    for name, other in others:
        assert other == first, name


def test_embedded_model(embedded: str) -> None:
    agree({protocol: run(_model(embedded, protocol)) for protocol in PROTOCOLS})


def test_mlx_lm_server(mlx: str, mlx_gateway: str) -> None:
    direct = {"direct": run(_model(mlx, "openai-chat"))}
    agree(direct | {protocol: run(_model(mlx_gateway, protocol)) for protocol in PROTOCOLS})


def _model(url: str, protocol: ProtocolName) -> strom.Model:
    return strom.Model(MODEL, base_url=url, protocol=protocol)
