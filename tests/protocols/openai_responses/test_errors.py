"""Errors towards clients, and what upstreams' errors mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelNotFound,
    Overloaded,
    ProviderAuthError,
    ProviderError,
    RateLimited,
    StromError,
    TimedOut,
    TooLarge,
    Unsupported,
)
from strom.protocols.openai_responses import CODEC


def told(status: int, body: Any, headers: list[tuple[bytes, bytes]] | None = None) -> StromError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CODEC.decode_error(status, headers or [], data)


class TestOut:
    @pytest.mark.parametrize(
        ("error", "status", "kind", "code"),
        [
            (BadRequest("x", param="input"), 400, "invalid_request_error", None),
            (Unsupported("x"), 400, "invalid_request_error", "unsupported"),
            (ModelNotFound("x"), 404, "invalid_request_error", "model_not_found"),
            (RateLimited("x"), 429, "rate_limit_error", "rate_limit_exceeded"),
            (ProviderError("x"), 502, "upstream_error", "upstream_error"),
            (Overloaded("x"), 503, "overloaded_error", "overloaded"),
            (TimedOut("x"), 504, "timeout_error", "upstream_timeout"),
            (StromError("x"), 500, "server_error", "internal_error"),
        ],
    )
    def test_bodies(self, error: StromError, status: int, kind: str, code: str | None) -> None:
        encoded = CODEC.encode_error(error, "trace-1")
        assert encoded.status == status
        assert json.loads(encoded.body) == {"error": {"message": "x", "type": kind, "param": error.param, "code": code}}

    def test_retry_after_and_limits(self) -> None:
        limited = RateLimited("x", retry_after_s=1.2)
        limited.headers = [(b"x-ratelimit-limit-requests", b"5"), (b"x-other", b"1")]
        assert CODEC.encode_error(limited, "t").headers == [
            (b"x-ratelimit-limit-requests", b"5"),
            (b"retry-after", b"2"),
        ]
        limited.headers = [(b"retry-after", b"Wed, 21 Oct 2026 07:28:00 GMT")]
        assert CODEC.encode_error(limited, "t").headers == limited.headers
        assert CODEC.encode_error(Overloaded("x"), "t").headers == [(b"retry-after", b"1")]
        assert CODEC.encode_error(BadRequest("x"), "t").headers == []


class TestIn:
    @pytest.mark.parametrize(
        ("status", "body", "kind", "message"),
        [
            (
                400,
                {"error": {"message": "bad", "type": "invalid_request_error", "code": None}},
                BadRequest,
                "bad",
            ),
            (
                400,
                {"error": {"code": 400, "message": "Cannot determine type of 'item'"}},
                BadRequest,
                "Cannot determine",
            ),
            (
                422,
                {"detail": [{"loc": ["body", "input"], "msg": "Field required"}]},
                BadRequest,
                "body.input: Field required",
            ),
            (400, {"detail": "Server is pinned to x"}, ModelNotFound, "pinned"),
            (
                404,
                {"error": {"message": "The model 'x' does not exist", "code": "model_not_found"}},
                ModelNotFound,
                "'x'",
            ),
            (404, {"error": "model 'x' not found"}, ModelNotFound, "'x'"),
            (404, {"detail": "Not Found"}, ProviderError, "no Responses endpoint"),
            (404, b"404 page not found\n", ProviderError, "no Responses endpoint"),
            (405, b"", ProviderError, "no Responses endpoint"),
            (401, {"error": {"message": "Incorrect API key sk-123"}}, ProviderAuthError, "credentials"),
            (403, b"<html>no</html>", ProviderAuthError, "credentials"),
            (402, {"error": {"message": "pay"}}, ProviderError, "pay"),
            (413, {"error": {"message": "big"}}, TooLarge, "big"),
            (408, b"", TimedOut, "408"),
            (504, b"<html></html>", TimedOut, "504"),
            (503, {"error": {"code": 503, "message": "Loading model"}}, Overloaded, "Loading"),
            (529, b"", Overloaded, "529"),
            (500, b"Internal Server Error", ProviderError, "Internal Server Error"),
            (502, b"<html><h1>nginx</h1></html>", ProviderError, "502"),
            (400, {"error": {"message": "no", "code": "content_filter"}}, ContentPolicy, "no"),
            (200, {"error": {"message": "no", "code": "content_policy_violation"}}, ContentPolicy, "no"),
            (200, {"error": {"message": "slow", "code": 429}}, RateLimited, "slow"),
            (200, {"code": "server_error", "message": "boom", "type": "error"}, ProviderError, "boom"),
            (200, {"error": {"type": "authentication_error"}}, ProviderAuthError, "credentials"),
        ],
    )
    def test_shapes(self, status: int, body: Any, kind: type[StromError], message: str) -> None:
        error = told(status, body)
        assert type(error) is kind
        assert message in error.message
        assert "<" not in error.message
        assert "sk-123" not in error.message

    @pytest.mark.parametrize(
        ("body", "numbers"),
        [
            (
                {"error": {"type": "exceed_context_size_error", "message": "m", "n_prompt_tokens": 900, "n_ctx": 512}},
                (900, 512),
            ),
            (
                {
                    "error": {
                        "message": "This model's maximum context length is 512 tokens. However, you requested 900 tokens"
                    }
                },
                (900, 512),
            ),
            ({"error": {"code": "context_length_exceeded", "message": "too long"}}, (None, None)),
        ],
    )
    def test_context_overflow(self, body: Any, numbers: tuple[int | None, int | None]) -> None:
        error = told(400, body)
        assert isinstance(error, ContextOverflow)
        assert (error.tokens, error.limit) == numbers

    def test_rate_limits(self) -> None:
        headers = [(b"Retry-After", b"7"), (b"X-RateLimit-Reset-Requests", b"1s"), (b"Server", b"x")]
        error = told(429, {"error": {"message": "slow", "code": "rate_limit_exceeded"}}, headers)
        assert (error.retry_after_s, error.retryable) == (7.0, True)
        assert error.headers == [(b"retry-after", b"7"), (b"x-ratelimit-reset-requests", b"1s")]
        assert told(429, b"", [(b"retry-after-ms", b"1500")]).retry_after_s == 1.5
        assert told(429, b"", [(b"retry-after", b"Wed, 21 Oct 2026")]).retry_after_s is None
        quota = told(429, {"error": {"message": "pay", "code": "insufficient_quota"}})
        assert (quota.code, quota.retryable) == ("insufficient_quota", False)

    def test_codes_that_are_words_are_kept(self) -> None:
        assert told(400, {"error": {"message": "x", "code": "invalid_prompt"}}).code == "invalid_prompt"
        assert told(400, {"error": {"message": "x", "code": "400"}}).code == "invalid_request"

    def test_nothing_legible(self) -> None:
        for body in (b"\xff\xfe", b"[" * 100_000, b"{}", b'{"error":null}', b'{"error":{}}', b'{"error":[1]}'):
            error = told(400, body)
            assert isinstance(error, BadRequest)
            assert error.message
