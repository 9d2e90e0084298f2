"""No secret is written: headers, queries, bodies, also when a secret lies across two reads."""

from __future__ import annotations

import json

import pytest

from strom.replay import scrub

KEYS = [
    "sk-proj-abcdefghijklmnopqrstuvwxyz012345",
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "gsk_abcdefghijklmnopqrstuvwxyz",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-1234567890-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


def test_request_headers_that_matter_are_kept_and_credentials_masked() -> None:
    kept = scrub.request_headers(
        [
            ("content-type", "application/json"),
            ("anthropic-version", "2023-06-01"),
            ("authorization", "Bearer sk-1"),
            ("x-api-key", "k"),
            ("cookie", "a=b"),
            ("x-forwarded-for", "10.0.0.1"),
        ]
    )
    assert kept == (
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("authorization", "***"),
        ("x-api-key", "***"),
        ("cookie", "***"),
    )


def test_response_headers_lose_cookies_and_accounts() -> None:
    kept = scrub.response_headers([("set-cookie", "a=b"), ("openai-organization", "o"), ("x-request-id", "r")])
    assert kept == (("set-cookie", "***"), ("openai-organization", "***"), ("x-request-id", "r"))


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("/v1/x", "/v1/x"),
        ("/v1/x?beta=true", "/v1/x?beta=true"),
        ("/v1/x?key=abc&alt=sse", "/v1/x?key=***&alt=sse"),
        ("/v1/x?alt=sse&access_token=abc", "/v1/x?alt=sse&access_token=***"),
        ("/v1/x?api-key=a&sig=b", "/v1/x?api-key=***&sig=***"),
    ],
)
def test_key_parameters_of_a_query_are_masked(given: str, written: str) -> None:
    assert scrub.target(given) == written


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_known_shapes_leave_bodies_and_keep_the_length(key: str) -> None:
    body = json.dumps({"messages": [{"content": f"my key is {key}, ok"}]}).encode()
    written = scrub.body(body, ())
    assert key.encode() not in written
    assert len(written) == len(body)
    assert json.loads(written)["messages"][0]["content"].endswith("*, ok")


@pytest.mark.parametrize(
    "member",
    ["api_key", "apiKey", "authorization", "authorization_token", "client_secret", "OPENAI_API_KEY", "password"],
)
def test_members_named_like_a_secret_are_masked(member: str) -> None:
    body = json.dumps({member: 'a "quoted" value', "model": "m"}).encode()
    assert json.loads(scrub.body(body, ())) == {member: "*" * 18, "model": "m"}


def test_ordinary_text_stays() -> None:
    body = b'{"content": "sk-ip this task-list; the token is keyed", "max_tokens": 5, "key": "value"}'
    assert scrub.body(body, ()) == body


def test_the_caller_s_own_credentials_are_removed_wherever_they_stand() -> None:
    secrets = scrub.credentials_in([("authorization", "Bearer hunter2-hunter2"), ("x-api-key", "abc"), ("accept", "x")])
    assert secrets == (b"hunter2-hunter2",), "what is short would garble the text"
    assert scrub.body(b"bad key hunter2-hunter2!", secrets) == b"bad key ***************!"


def test_a_secret_across_two_reads_is_found() -> None:
    parts = [b"wrong key: sk-proj-abcdefghij", b"klmnopqrstuvwxyz", b" given"]
    written = scrub.pieces(parts, ())
    assert [len(part) for part in written] == [len(part) for part in parts]
    assert b"".join(written) == b"wrong key: " + b"*" * 34 + b" given"
