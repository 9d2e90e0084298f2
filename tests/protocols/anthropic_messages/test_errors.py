"""Errors both ways."""

from __future__ import annotations

import json

import pytest

from strom.core.errors import (
    AuthError,
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelNotFound,
    NotFound,
    Overloaded,
    PermissionDenied,
    ProviderAuthError,
    ProviderError,
    RateLimited,
    ShuttingDown,
    StromError,
    TimedOut,
    TooLarge,
    Unsupported,
)
from strom.protocols.anthropic_messages import CODEC


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (BadRequest("m"), 400, "invalid_request_error"),
        (Unsupported("m"), 400, "invalid_request_error"),
        (AuthError("m"), 401, "authentication_error"),
        (PermissionDenied("m"), 403, "permission_error"),
        (ModelNotFound("m"), 404, "not_found_error"),
        (NotFound("m"), 404, "not_found_error"),
        (BadRequest("m", status=405), 405, "invalid_request_error"),
        (TooLarge("m"), 413, "request_too_large"),
        (RateLimited("m"), 429, "rate_limit_error"),
        (StromError("m"), 500, "api_error"),
        (ProviderError("m"), 502, "api_error"),
        (ProviderAuthError("m"), 502, "api_error"),
        (ShuttingDown("m"), 503, "api_error"),
        (TimedOut("m"), 504, "timeout_error"),
        (Overloaded("m"), 529, "overloaded_error"),
    ],
)
def test_the_table(error: StromError, status: int, kind: str) -> None:
    encoded = CODEC.encode_error(error, "trace-1")
    assert encoded.status == status
    assert json.loads(encoded.body) == {
        "type": "error",
        "error": {"type": kind, "message": "m"},
        "request_id": "trace-1",
    }
    assert any(name == b"retry-after" for name, _ in encoded.headers) == (status in (429, 503, 529))


def test_retry_after() -> None:
    assert CODEC.encode_error(RateLimited("m", retry_after_s=2.2), "t").headers == [(b"retry-after", b"3")]
    assert CODEC.encode_error(RateLimited("m", retry_after_s=0), "t").headers == [(b"retry-after", b"1")]
    kept = RateLimited("m")
    kept.headers = [(b"retry-after", b"7"), (b"anthropic-ratelimit-requests-remaining", b"0")]
    assert CODEC.encode_error(kept, "t").headers == kept.headers


def test_overflow_is_worded_for_claude_code() -> None:
    def message(error: StromError) -> str:
        worded: str = json.loads(CODEC.encode_error(error, "t").body)["error"]["message"]
        return worded

    assert message(ContextOverflow("x", tokens=210000, limit=200000)) == (
        "prompt is too long: 210000 tokens > 200000 maximum"
    )
    assert message(ContextOverflow("does not fit")) == "prompt is too long: does not fit"
    assert message(ContextOverflow("x", tokens=1)) == "prompt is too long: x"


def body(error: object) -> bytes:
    return json.dumps({"type": "error", "error": error}).encode()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (422, BadRequest),
        (401, ProviderAuthError),
        (403, ProviderAuthError),
        (402, ProviderError),
        (404, ModelNotFound),
        (408, TimedOut),
        (409, ProviderError),
        (413, TooLarge),
        (429, RateLimited),
        (500, ProviderError),
        (502, ProviderError),
        (503, Overloaded),
        (504, TimedOut),
        (529, Overloaded),
    ],
)
def test_statuses_of_an_upstream(status: int, kind: type[StromError]) -> None:
    error = CODEC.decode_error(status, [], body({"type": "some_error", "message": "model x: no"}))
    assert type(error) is kind
    assert error.message == (
        "The upstream refused the gateway's credentials." if kind is ProviderAuthError else "model x: no"
    )
    assert str(status) in (error.detail or "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"error":{"message":"m","type":"Bad Request","param":"p","code":400}}', "m"),
        (b'{"error":"m"}', "m"),
        (b'{"error":{"message":{"a":1}}}', '{"a":1}'),
        (b'{"error":["x"]}', '["x"]'),
        (b'{"detail":"m"}', "m"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (b'{"message":"m"}', "m"),
        (b"plain m", "plain m"),
        (b"", "The upstream answered with status 400 and no explanation."),
        (b"{}", "The upstream answered with status 400 and no explanation."),
        (b"<html><b>nginx</b></html>", "The upstream answered with status 400 and no explanation."),
        (b"\xff", "\ufffd"),
    ],
)
def test_shapes_of_an_upstream(data: bytes, message: str) -> None:
    assert CODEC.decode_error(400, [], data).message == message


@pytest.mark.parametrize(
    "data", [b"Not Found", b'{"detail":"Not Found"}', b"", b"<html>404</html>", b"404 page not found\n"]
)
def test_a_missing_endpoint_is_no_missing_model(data: bytes) -> None:
    error = CODEC.decode_error(404, [], data)
    assert type(error) is ProviderError
    assert error.code == "upstream_no_endpoint"


@pytest.mark.parametrize(
    ("data", "tokens", "limit"),
    [
        (body({"message": "prompt is too long: 9 tokens > 8 maximum"}), 9, 8),
        (
            b'{"error":{"code":400,"message":"request (900 tokens) exceeds the available context size (512 tokens), try",'
            b'"type":"exceed_context_size_error","n_prompt_tokens":900,"n_ctx":512}}',
            900,
            512,
        ),
        (b'{"error":{"message":"x","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":5}}', 9, 5),
        (
            b'{"error":{"message":"This model\'s maximum context length is 2048 tokens. You requested 3000"}}',
            3000,
            2048,
        ),
        (b'{"error":{"message":"x","code":"context_length_exceeded"}}', None, None),
        (body({"message": "input exceeds the context window"}), None, None),
    ],
)
def test_overflow_of_an_upstream(data: bytes, tokens: int | None, limit: int | None) -> None:
    error = CODEC.decode_error(400, [], data)
    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.limit) == (tokens, limit)


def test_refused_content() -> None:
    assert isinstance(CODEC.decode_error(400, [], body({"code": "content_filter", "message": "m"})), ContentPolicy)


def test_headers_that_are_kept() -> None:
    headers = [(b"Retry-After", b"12"), (b"Anthropic-RateLimit-Tokens-Limit", b"5"), (b"server", b"x")]
    error = CODEC.decode_error(429, headers, body({"message": "m"}))
    assert error.retry_after_s == 12
    assert error.headers == [(b"anthropic-ratelimit-tokens-limit", b"5")]
    for value in (b"Wed, 21 Oct 2026 07:28:00 GMT", b"-1", b"nan", b"1e12"):
        assert CODEC.decode_error(429, [(b"retry-after", value)], b"").retry_after_s is None
