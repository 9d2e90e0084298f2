"""Upstreams at run time, and the table they come from."""

from __future__ import annotations

import typing

import pytest

from strom.core.errors import ConfigError
from strom.protocols.codec import Quirks
from strom.upstreams.rows import UPSTREAMS, auth_style
from strom.upstreams.settings import AuthStyle, ProtocolName, ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.upstream import Upstream, auth_headers
from strom.upstreams.urls import parse_base_url
from tests.recordings import load, recordings_root

LOCAL = ("mlx-lm", "omlx", "ollama", "llama-cpp", "lm-studio", "vllm", "transformers")
HOSTED = ("openai", "azure-openai", "anthropic", "gemini", "openrouter", "mistral", "groq", "deepseek", "together",
          "fireworks", "xai", "perplexity", "noris")  # fmt: skip
KINDS = (*LOCAL, *HOSTED, "generic")


def upstream(key: str | None = "up-secret/1", auth: AuthStyle = "bearer") -> Upstream:
    secret = Secret(key) if key is not None else None
    return Upstream(
        ProviderSettings("mlx", "mlx-lm", "openai-chat", "http://127.0.0.1:8081/v1", auth, secret, region="eu-de")
    )


def test_the_table_has_every_kind_of_the_contract() -> None:
    assert tuple(UPSTREAMS) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_makes_sense(kind: str) -> None:
    row = UPSTREAMS[kind]
    assert row.protocol in typing.get_args(ProtocolName)
    if row.base_url is not None:
        assert (
            parse_base_url(row.base_url, versioned=row.versioned)
            .target("/v1/chat/completions")
            .endswith("/completions")
        )
    assert row.key_demanded == (kind in HOSTED)
    assert bool(row.key_names) >= row.key_demanded
    assert bool(row.ports) == (row.base_url is not None and row.base_url.startswith("http://127.0.0.1:"))


def test_auth_follows_the_protocol_unless_the_kind_has_its_own() -> None:
    assert auth_style(UPSTREAMS["generic"], "openai-chat") == "bearer"
    assert auth_style(UPSTREAMS["generic"], "anthropic") == "x-api-key"
    assert auth_style(UPSTREAMS["azure-openai"], "openai-responses") == "api-key"


@pytest.mark.parametrize(
    ("style", "headers"),
    [
        ("bearer", [(b"authorization", b"Bearer k1")]),
        ("x-api-key", [(b"x-api-key", b"k1")]),
        ("api-key", [(b"api-key", b"k1")]),
        ("none", []),
    ],
)
def test_auth_headers(style: AuthStyle, headers: list[tuple[bytes, bytes]]) -> None:
    assert auth_headers(style, Secret("k1")) == headers
    assert auth_headers(style, None) == []


def test_an_upstream_is_what_its_settings_say() -> None:
    made = upstream()
    assert (made.name, made.kind, made.protocol, made.region) == ("mlx", "mlx-lm", "openai-chat", "eu-de")
    assert made.origin.authority == b"127.0.0.1:8081"
    assert made.target("/v1/models") == "/v1/models"
    assert made.timeouts == Timeouts()
    assert made.counting is None
    assert made.auth_headers == [(b"authorization", b"Bearer up-secret/1")]


def test_the_key_is_in_no_repr() -> None:
    made = upstream()
    assert "up-secret" not in repr(made) + repr(Secret("up-secret/1")) + f"{Secret('up-secret/1')}"
    assert "Secret(***)" in repr(
        ProviderSettings("a", "generic", "openai-chat", "http://h", api_key=Secret("up-secret"))
    )


def test_redact_removes_the_key_however_it_was_quoted() -> None:
    text = r"key up-secret/1, up-secret%2F1 and up-secret\/1"
    assert upstream().redact(text) == "key ***, *** and ***"
    assert upstream(None).redact(text) == text
    assert upstream("").redact(text) == text


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown kind 'olama'"):
        Upstream(ProviderSettings("a", "olama", "openai-chat", "http://h"))


# --- quirks, held against what was recorded ------------------------------------------------------


def quirks(kind: str) -> Quirks:
    return UPSTREAMS[kind].quirks


@pytest.mark.parametrize(("kind", "engine"), [("transformers", "transformers"), ("mlx-lm", "mlx_lm"), ("vllm", "vllm")])
def test_done_is_required_where_recordings_have_it(kind: str, engine: str) -> None:
    recordings_root()
    assert quirks(kind).done_required == load(engine, "plain").response.rstrip().endswith(b"[DONE]")


def test_response_format_is_off_where_recordings_show_it_ignored() -> None:
    recordings_root()
    for kind, engine in (
        ("mlx-lm", "mlx_lm"),
        ("transformers", "transformers_tiny"),
        ("vllm", "vllm"),
        ("llama-cpp", "xllamacpp"),
    ):
        ignored = "ignored" in (load(engine, "json_schema").index.get("notes") or "")
        assert quirks(kind).response_format is not ignored, kind
