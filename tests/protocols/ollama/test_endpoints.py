"""Bodies of the small endpoints, read by the official client's own types."""

from __future__ import annotations

import json

import pytest
from ollama import ListResponse, ProcessResponse, ShowResponse

from strom.core.errors import BadRequest, ProviderError
from strom.protocols.ollama.endpoints import (
    RUNNING,
    ModelCard,
    ModelDetails,
    ps_body,
    read_tags,
    same_model,
    show_body,
    shown_model,
    tags_body,
    version_body,
)

BARE = ModelCard("qwen3:8b", "2026-01-05T10:00:00Z")
FULL = ModelCard(
    "llava:latest",
    "2026-01-05T10:00:00.123456789+01:00",
    5,
    "abc",
    ModelDetails("p", "gguf", "llama", ("llama", "clip"), "7B", "Q4_0"),
    ("completion", "vision"),
    4096,
    "2026-01-05T10:05:00Z",
    3,
)


def test_tags() -> None:
    listed = ListResponse.model_validate_json(tags_body([BARE, FULL]))
    assert [model.model for model in listed.models] == ["qwen3:8b", "llava:latest"]
    assert listed.models[1].details is not None
    assert listed.models[1].details.families == ["llama", "clip"]
    value = json.loads(tags_body([FULL]))["models"][0]
    assert (value["name"], value["digest"], value["capabilities"]) == ("llava:latest", "abc", ["completion", "vision"])


def test_ps() -> None:
    running = ProcessResponse.model_validate_json(ps_body([BARE, FULL]))
    assert [model.context_length for model in running.models] == [None, 4096]
    assert all(model.expires_at is not None for model in running.models)


def test_show() -> None:
    shown = ShowResponse.model_validate_json(show_body(FULL))
    assert shown.modelinfo == {
        "general.architecture": "llama",
        "general.basename": "llava:latest",
        "llama.context_length": 4096,
    }
    assert shown.capabilities == ["completion", "vision"]
    assert json.loads(show_body(BARE))["model_info"] == {
        "general.architecture": "unknown",
        "general.basename": "qwen3:8b",
    }


def test_version_and_root() -> None:
    assert json.loads(version_body("1.2.3")) == {"version": "1.2.3"}
    assert RUNNING == b"Ollama is running"


def test_which_model_is_shown() -> None:
    assert shown_model(b'{"model":"x"}') == "x"
    assert shown_model(b'{"name":"y","verbose":true}') == "y"
    for body in (b"{}", b"nope", b"[]"):
        with pytest.raises(BadRequest):
            shown_model(body)
    assert same_model("x", "x:latest")
    assert not same_model("x:7b", "x")


def test_an_upstreams_list_comes_back_as_it_went() -> None:
    assert read_tags(tags_body([FULL])) == [
        ModelCard(FULL.name, FULL.modified_at, 5, "abc", FULL.details, FULL.capabilities),
    ]
    assert read_tags(ps_body([FULL]))[0].context_length == 4096
    assert read_tags(b'{"models":[{"model":"m","details":{"family":5}},{}]}') == [ModelCard("m", "")]
    assert read_tags(b'{"models":null}') == []
    with pytest.raises(ProviderError):
        read_tags(b"<html>")
