"""The embedded model with its real weights: tokens come one by one, to nobody but the holder of the key.

Skipped where the extra `local` is not installed or the weights can neither be found nor fetched (which CI counts as a failure).
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from strom.local import EmbeddedModel, EmbeddedModelUnavailable, cache_folder, embedded, ensure_weights, is_installed


@pytest.fixture(scope="module")
def weights() -> Path:
    if not is_installed():
        pytest.skip("xllamacpp is not installed: pip install '.[local]'")
    try:
        return ensure_weights(cache_folder())
    except EmbeddedModelUnavailable as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def model(weights: Path) -> Iterator[EmbeddedModel]:
    running = EmbeddedModel.start(weights, threads=1, context_tokens=1024, parallel=1)
    yield running
    running.stop()


class Answer:
    """What the model's listener said."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response, self.status = response, response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def frames(self) -> Iterator[str]:
        for line in self.response:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").decode().strip()


def ask(model: EmbeddedModel, path: str, body: object = None, **headers: str) -> Answer:
    address = urlsplit(model.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 0, timeout=60)
    payload = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, payload, {"content-type": "application/json"} | headers)
    return Answer(connection.getresponse())


def chat(model: EmbeddedModel, limit: int) -> Answer:
    body = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": limit,
        "stream": True,
        "temperature": 0,
    }
    return ask(model, "/v1/chat/completions", body, authorization=f"Bearer {model.api_key}")


def test_tokens_come_one_by_one(model: EmbeddedModel) -> None:
    frames = list(chat(model, 12).frames())
    assert frames[-1] == "[DONE]"
    deltas = [json.loads(frame)["choices"][0]["delta"].get("content") for frame in frames[:-1]]
    assert len([text for text in deltas if text]) >= 5
    assert json.loads(frames[0])["model"] == model.model


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
COPY = ("Repeat exactly this text and nothing else:", "Copy this text:", "Write exactly this:")


def test_tools_reach_the_model_and_calls_come_back(model: EmbeddedModel) -> None:
    """It is too weak to decide on a call, but copies one; on which request it does may depend on the processor."""
    assert any(copies_a_call(model, request) for request in COPY)


def copies_a_call(model: EmbeddedModel, request: str) -> bool:
    body = {
        "messages": [{"role": "user", "content": f"{request}\n{CALL}"}],
        "tools": [WEATHER],
        "temperature": 0,
        "max_tokens": 60,
        "stream": True,
    }
    frames = list(ask(model, "/v1/chat/completions", body, authorization=f"Bearer {model.api_key}").frames())
    choices = [json.loads(frame)["choices"][0] for frame in frames[:-1]]
    calls = [call["function"] for choice in choices for call in choice["delta"].get("tool_calls", [])]
    if not calls:
        return False
    assert calls[0]["name"] == "get_weather"
    assert json.loads("".join(call.get("arguments", "") for call in calls)) == {"city": "Paris"}
    return bool(choices[-1]["finish_reason"] == "tool_calls")


def test_a_conversation_with_a_tool_fits_the_template(model: EmbeddedModel) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "system", "content": "In one word."},
    ]
    body = {"messages": messages, "tools": [WEATHER], "max_tokens": 4}
    answer = ask(model, "/v1/chat/completions", body, authorization=f"Bearer {model.api_key}")
    assert answer.status == 200, answer.response.read()
    assert json.loads(answer.response.read())["usage"]["prompt_tokens"] > 100


def test_messages_and_counting_work_too(model: EmbeddedModel) -> None:
    body = {"max_tokens": 4, "messages": [{"role": "user", "content": "Say hello."}]}
    key = {"x-api-key": model.api_key}
    assert json.loads(ask(model, "/v1/messages", body, **key).response.read())["type"] == "message"
    assert json.loads(ask(model, "/v1/messages/count_tokens", body, **key).response.read())["input_tokens"] > 0


@pytest.mark.parametrize("path", ["/v1/models", "/props", "/slots", "/metrics", "/v1/chat/completions"])
def test_nobody_without_the_key(model: EmbeddedModel, path: str) -> None:
    assert ask(model, path).status == 401
    assert ask(model, path, authorization="Bearer guessed").status == 401


@pytest.mark.parametrize("path", ["/slots", "/metrics"])
def test_what_shows_calls_is_off(model: EmbeddedModel, path: str) -> None:
    assert ask(model, path, authorization=f"Bearer {model.api_key}").status in {404, 501}


def test_no_page_in_a_browser_may_read(model: EmbeddedModel) -> None:
    origin = "http://page.example"
    answer = ask(model, "/v1/models", None, authorization=f"Bearer {model.api_key}", origin=origin)
    assert answer.headers.get("access-control-allow-origin") not in {"*", origin}
    assert "access-control-allow-credentials" not in answer.headers
    assert ask(model, "/").status == 404


def test_it_listens_on_loopback_with_a_fresh_key(model: EmbeddedModel) -> None:
    assert urlsplit(model.base_url).hostname == "127.0.0.1"
    assert model.base_url.endswith("/v1")
    assert len(model.api_key) == 64


def test_stop_cuts_an_answer_and_closes_the_listener(weights: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = EmbeddedModel.start(weights, threads=1, context_tokens=1024, parallel=1)
    frames = chat(running, 900).frames()
    next(frames)
    running.stop()
    running.stop()
    assert not running.running
    with pytest.raises(ConnectionRefusedError):
        chat(running, 1)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_no_model(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(EmbeddedModelUnavailable, match="does not start"):
        EmbeddedModel.start(tmp_path / "bad.gguf", threads=1)


def test_one_core_is_left_to_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert embedded.default_threads() == threads


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(EmbeddedModelUnavailable, match=r"strom\[local\]"):
        EmbeddedModel.start(Path("any.gguf"))
