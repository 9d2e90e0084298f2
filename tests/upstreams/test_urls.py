"""Base URLs as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import ConfigError
from strom.upstreams.urls import parse_base_url

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "codec_path", "target"),
    [
        ("http://host:8081", CHAT, CHAT),
        ("http://host:8081/", CHAT, CHAT),
        ("http://host:8081/v1", CHAT, CHAT),
        ("http://host:8081/v1//", CHAT, CHAT),
        ("http://host/team/llm", CHAT, "/team/llm/v1/chat/completions"),
        ("https://api.groq.com/openai/v1", CHAT, "/openai/v1/chat/completions"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", CHAT, "/v1beta/openai/chat/completions"),
        (
            "https://x.openai.azure.com/openai/v1?api-version=preview",
            "/v1/responses",
            "/openai/v1/responses?api-version=preview",
        ),
        (
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
            CHAT,
            "/openai/deployments/d/chat/completions?api-version=1",
        ),
        ("https://api.anthropic.com", "/v1/messages", "/v1/messages"),
        ("https://api.anthropic.com/v1", "/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("https://h/?a=1", "/v1/messages?beta=true", "/v1/messages?a=1&beta=true"),
        ("http://host:11434", "/api/chat", "/api/chat"),
        ("http://host:11434/v1", "/api/chat", "/api/chat"),
        ("http://host:11434/api/", "/api/chat", "/api/chat"),
        ("http://host/ollama/v1", "/api/chat", "/ollama/api/chat"),
        ("http://host:8080/v1", "/tokenize", "/tokenize"),
        ("http://host:8080/v1", "/v1", "/v1"),
        ("http://host/Grüße", CHAT, "/Gr%C3%BC%C3%9Fe/v1/chat/completions"),
        ("http://host/a%2Fb", CHAT, "/a%2Fb/v1/chat/completions"),
    ],
)
def test_target(url: str, codec_path: str, target: str) -> None:
    assert parse_base_url(url).target(codec_path) == target


def test_an_upstream_without_versions_has_no_v1_in_its_paths() -> None:
    assert parse_base_url("https://api.perplexity.ai", versioned=False).target(CHAT) == "/chat/completions"
    assert parse_base_url("https://api.perplexity.ai", versioned=False).target("/v1") == "/"
    assert parse_base_url("https://api.perplexity.ai/v1", versioned=False).target("/v1/responses") == "/v1/responses"


@pytest.mark.parametrize(
    ("url", "authority", "port", "shown"),
    [
        ("http://localhost", b"localhost", 80, "http://localhost"),
        ("https://host", b"host", 443, "https://host"),
        ("HTTPS://Host:8443/x?y=1", b"host:8443", 8443, "https://host:8443/x?y=1"),
        ("http://[::1]:8081/v1", b"[::1]:8081", 8081, "http://[::1]:8081/v1"),
        ("https://bücher.example", b"xn--bcher-kva.example", 443, "https://xn--bcher-kva.example"),
    ],
)
def test_origin(url: str, authority: bytes, port: int, shown: str) -> None:
    base = parse_base_url(url)
    assert (base.origin.authority, base.origin.port, str(base)) == (authority, port, shown)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:11434", "begins with http"),
        ("ftp://host", "begins with http"),
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://host:99999", "port"),
        ("http://host:0", "port"),
        ("http://host:x", "port"),
        ("http://[::1", "IPv6"),
        ("http://ho st", "spaces"),
        ("http://host/\r\nx-evil: 1", "control"),
        ("http://host/#part", "fragment"),
        ("http://host/v1/chat/completions", "leave out /chat/completions"),
        ("http://host/v1/messages/", "leave out /messages"),
        ("http://host:11434/api/chat", "leave out /api/chat"),
        ("http://\u00ad\u3002x", "domain name"),
        ("http://ho<st", "domain name"),
    ],
)
def test_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_base_url(url)


def test_credentials_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_base_url("http://someone:hunter22@host/v1")
    assert "credentials" in caught.value.message
    assert "hunter22" not in caught.value.message


def test_a_path_that_only_looks_like_an_endpoint_is_a_prefix() -> None:
    """Azure's inference endpoint ends in /models."""
    assert parse_base_url("https://x.services.ai.azure.com/models").target(CHAT) == "/models/v1/chat/completions"


@given(st.text(max_size=60))
def test_any_text_gives_a_url_or_our_error(text: str) -> None:
    for url in (text, f"http://{text}", f"http://host/{text}"):
        try:
            target = parse_base_url(url).target(CHAT)
        except ConfigError:
            continue
        assert target.startswith("/")
        assert target.isascii()
        assert not set(target) & set(" \r\n\t")
