"""Real model servers behind a gateway, asked in all four front protocols: text, length, tools, errors, a client that leaves.

What comes is judged as the recordings are: by the checkers of order, which share nothing with the codecs, and by the official
SDKs. STROM_LIVE_BACKENDS names others than the default two; transformers (1.3 GB to install) is known too, and gets a tiny
model that calls a tool.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.rig import PATHS
from tests.live import programs
from tests.matrix.officials import ERRORS, Officials
from tests.matrix.plays import FRONTS
from tests.matrix.views import Answer, View, view

pytestmark = pytest.mark.live

BACKENDS = tuple(os.environ.get("STROM_LIVE_BACKENDS", "xllamacpp,mlx").split(","))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ECHO = f"Repeat exactly this text and nothing else:\n{CALL}"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LIMITS = {"openai-chat": "max_tokens", "anthropic": "max_tokens", "openai-responses": "max_output_tokens"}
_OUTPUT = {
    "openai-chat": "completion_tokens",
    "anthropic": "output_tokens",
    "openai-responses": "output_tokens",
    "ollama": "eval_count",
}
CUT = {
    "openai-chat": "length",
    "anthropic": "max_tokens",
    "openai-responses": ("incomplete", {"reason": "max_output_tokens"}),
    "ollama": "length",
}


class Server(NamedTuple):
    """How a model server is started, as which provider it is configured, and a name it takes for its model."""

    script: str
    kind: str
    model: str
    arguments: tuple[str, ...] = ()
    calls: bool = False
    """Its model calls a tool."""


SERVERS = {
    "xllamacpp": Server(
        "xllamacpp.sh", "llama-cpp", "smollm2-135m", ("--tools-template", "--threads", "1"), calls=True
    ),
    "mlx": Server("mlx.sh", "mlx-lm", "default_model"),
    "transformers": Server("transformers.sh", "transformers", "", calls=True),
}


class Backend(NamedTuple):
    name: str
    gateway: str
    model: str


@pytest.fixture(scope="module", params=BACKENDS)
def backend(
    request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    server, folder = SERVERS[request.param], tmp_path_factory.mktemp(request.param)
    # Of the engines that take any weights, this one can be given some that call: they are made where it is installed.
    served = {"MODEL": str(programs.calling_model(shared))} if request.param == "transformers" else {}
    with programs.model_server(shared, server.script, *server.arguments, **served) as url:
        config = folder / "strom.toml"
        config.write_text(f'[[providers]]\nname = "it"\nkind = "{server.kind}"\nbase_url = "{url}"\n')
        model = server.model or json.loads(programs.get(f"{url}/v1/models")[1])["data"][0]["id"]
        with programs.serving(folder, "--config", str(config)) as gateway:
            yield Backend(request.param, gateway.url, model)


@pytest.fixture(scope="module")
def officials() -> Officials:
    return Officials()


def body_of(front: str, backend: Backend, prompt: str, limit: int, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": backend.model, **more}
    if front == "ollama":
        body["options"] = {"num_predict": limit, "temperature": 0}
    else:
        body |= {LIMITS[front]: limit, "temperature": 0}
    if front == "openai-responses":
        return body | {"input": prompt, "store": False}
    if front == "openai-chat" and more.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return body | {"messages": [{"role": "user", "content": prompt}]}


def opened(backend: Backend, front: str, body: dict[str, Any]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(backend.gateway).netloc, timeout=120)
    connection.request("POST", PATHS[front], json.dumps(body), {"content-type": "application/json"})
    return connection


def ask(backend: Backend, front: str, body: dict[str, Any]) -> Answer:
    connection = opened(backend, front, body)
    response = connection.getresponse()
    answer = Answer(front, bool(body["stream"]), response.status, response.read())
    connection.close()
    return answer


def understood(answer: Answer, officials: Officials) -> View:
    """What the independent reader sees, and the official SDK too."""
    assert answer.status == 200, answer.body
    seen = view(answer, strict=answer.front != "openai-chat")
    told = officials.read(answer)
    assert told == (seen.text, [call[1] for call in seen.calls], seen.finish)
    assert seen.block["complete"] is True
    return seen


@pytest.mark.parametrize("front", FRONTS)
def test_text_up_to_a_limit(backend: Backend, front: str, officials: Officials) -> None:
    """The models ramble: the limit ends what they say, in the words of each protocol, streamed and whole alike."""
    seen = [
        understood(ask(backend, front, body_of(front, backend, "Tell me about the sea.", 12, stream=stream)), officials)
        for stream in (True, False)
    ]
    assert seen[0].text
    assert [each.finish for each in seen] == [CUT[front]] * 2
    # A server that batches may round differently from one call to the next: the beginning has to agree.
    assert seen[0].text[:8] == seen[1].text[:8]
    assert [each.usage[_OUTPUT[front]] for each in seen] == [12, 12]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_is_called(backend: Backend, front: str, officials: Officials, stream: bool) -> None:
    if not SERVERS[backend.name].calls:
        pytest.xfail("tiny random weights call no tool")
    function = {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS}
    tools: dict[str, Any] = {
        "openai-chat": {"type": "function", "function": function},
        "ollama": {"type": "function", "function": function},
        "openai-responses": {"type": "function", **function},
        "anthropic": {"name": "get_weather", "description": "Weather of a city", "input_schema": PARAMETERS},
    }
    body = body_of(front, backend, ECHO, 64, stream=stream, tools=[tools[front]])
    seen = understood(ask(backend, front, body), officials)
    assert [(name, arguments) for _, name, arguments in seen.calls] == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("front", FRONTS)
def test_an_error_is_told_in_the_words_of_the_client(backend: Backend, front: str, officials: Officials) -> None:
    if backend.name == "xllamacpp":
        body = body_of(front, backend, "word " * 20_000, 8, stream=True)
    else:
        body = body_of(front, backend._replace(model="no/such-model"), "hi", 8, stream=True)
    answer = ask(backend, front, body)
    assert answer.status >= 400, answer.body[:300]
    assert "error" in json.loads(answer.body)
    with pytest.raises(ERRORS):
        officials.read(answer)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves(backend: Backend, front: str, stream: bool) -> None:
    """The server stops at once: the next client does not wait for thousands of tokens nobody reads."""
    connection = opened(backend, front, body_of(front, backend, "Tell me a long story.", 4000, stream=stream))
    if stream:
        response = connection.getresponse()
        assert response.status == 200
        assert response.read1(100)
        response.close()
    else:
        time.sleep(0.5)
    left_at = time.monotonic()
    connection.close()
    ask(backend, front, body_of(front, backend, "hi", 2, stream=False))
    assert time.monotonic() - left_at < 15
    limit = time.monotonic() + 10
    while "cancelled" not in (statuses := _statuses(backend)):
        assert time.monotonic() < limit, statuses
        time.sleep(0.2)


def _statuses(backend: Backend) -> list[str]:
    """Of the two latest calls."""
    _, body = programs.get(f"{backend.gateway}/platform/v1/traces?limit=2")
    return [record["status"] for record in json.loads(body)["data"][:2]]
