"""Errors: worded for Chat clients, and read from whatever an upstream answers."""

from __future__ import annotations

import json

import pytest

from strom.core.errors import (
    AuthError,
    BadRequest,
    Cancelled,
    ContentPolicy,
    ContextOverflow,
    GatewayError,
    ModelNotFound,
    Overloaded,
    PermissionDenied,
    ProviderAuthError,
    ProviderError,
    RateLimited,
    ShuttingDown,
    StromError,
    TimedOut,
    TooLarge,
)
from strom.protocols.openai_chat import CODEC
from tests.recordings import load, names

REFUSED = [
    (engine, case) for engine, case in names(protocol="chat", streamed=False) if case.startswith(("err_", "auth_"))
]


# --- out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (BadRequest("m", param="p"), 400, "invalid_request_error", None),
        (BadRequest("m", code="unsupported_parameter"), 400, "invalid_request_error", "unsupported_parameter"),
        (ContextOverflow("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (AuthError("m"), 401, "invalid_request_error", "invalid_api_key"),
        (PermissionDenied("m"), 403, "permission_error", "permission_denied"),
        (ModelNotFound("m"), 404, "invalid_request_error", "model_not_found"),
        (TooLarge("m"), 413, "invalid_request_error", "request_too_large"),
        (RateLimited("m"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Cancelled("m"), 499, "invalid_request_error", "cancelled"),
        (GatewayError("m"), 500, "server_error", "internal_error"),
        (ProviderError("m"), 502, "upstream_error", "upstream_error"),
        (ProviderAuthError("m"), 502, "upstream_error", "upstream_auth"),
        (ShuttingDown("m"), 503, "overloaded_error", "shutting_down"),
        (TimedOut("m"), 504, "timeout_error", "upstream_timeout"),
    ],
)
def test_errors_for_clients(error: StromError, status: int, kind: str, code: str | None) -> None:
    encoded = CODEC.encode_error(error, "t1")
    assert encoded.status == status
    body = json.loads(encoded.body)
    assert body == {"error": {"message": "m", "type": kind, "param": error.param, "code": code}}


def test_retry_after() -> None:
    assert CODEC.encode_error(RateLimited("m"), "").headers == [(b"retry-after", b"1")]
    assert CODEC.encode_error(Overloaded("m", retry_after_s=2.1), "").headers == [(b"retry-after", b"3")]
    assert CODEC.encode_error(ProviderError("m"), "").headers == []
    assert CODEC.encode_error(ProviderError("m", retry_after_s=0.1), "").headers == [(b"retry-after", b"1")]


def test_rate_limit_headers_pass() -> None:
    told = [(b"Retry-After", b"17"), (b"x-ratelimit-remaining-requests", b"0"), (b"set-cookie", b"a=b")]
    error = CODEC.decode_error(
        429, told, b'{"error":{"message":"Slow","type":"requests","code":"rate_limit_exceeded"}}'
    )
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 17
    assert CODEC.encode_error(error, "").headers == [(b"retry-after", b"17"), (b"x-ratelimit-remaining-requests", b"0")]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([(b"retry-after-ms", b"1500"), (b"retry-after", b"9")], 1.5),
        ([(b"retry-after", b"0.5")], 0.5),
        ([(b"retry-after", b"Wed, 21 Oct 2026 07:28:00 GMT")], None),
        ([], None),
    ],
)
def test_how_long_to_wait(headers: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert CODEC.decode_error(503, headers, b"").retry_after_s == seconds


# --- in ------------------------------------------------------------------------------------------------


def told(status: int, **error: object) -> StromError:
    return CODEC.decode_error(status, [], json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("status", "kind", "out"),
    [
        (400, BadRequest, 400),
        (401, ProviderAuthError, 502),
        (402, ProviderError, 502),
        (403, ProviderAuthError, 502),
        (408, TimedOut, 504),
        (409, BadRequest, 400),
        (413, TooLarge, 413),
        (422, BadRequest, 400),
        (429, RateLimited, 429),
        (500, ProviderError, 502),
        (503, Overloaded, 503),
        (504, TimedOut, 504),
        (529, Overloaded, 503),
    ],
)
def test_statuses(status: int, kind: type, out: int) -> None:
    error = told(status, message="words")
    assert type(error) is kind
    assert error.status == out
    assert error.message == "words" or kind is ProviderAuthError


def test_our_credentials_are_not_the_clients() -> None:
    error = told(401, message="Incorrect API key: sk-123")
    assert "sk-123" not in error.message
    assert error.detail is not None


def test_models_and_paths() -> None:
    assert isinstance(told(404, message="x", code="model_not_found"), ModelNotFound)
    assert isinstance(told(404, message="The model `x` does not exist"), ModelNotFound)
    assert isinstance(told(404, message="File Not Found", type="not_found_error"), ProviderError)
    assert isinstance(CODEC.decode_error(404, [], b'{"detail":"Not Found"}'), ProviderError)
    assert isinstance(CODEC.decode_error(404, [], b"Not Found"), ProviderError)
    assert isinstance(CODEC.decode_error(405, [], b""), ProviderError)
    failed = CODEC.decode_error(404, [], b'{"error": "Only text content type is supported."}')
    assert isinstance(failed, BadRequest)
    assert failed.message == "Only text content type is supported."


@pytest.mark.parametrize(
    ("words", "tokens", "limit"),
    [
        (
            "This model's maximum context length is 2048 tokens. However, you requested 12035 tokens (12031 in the "
            "messages, 4 in the completion).",
            12035,
            2048,
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens",
            2049,
            2048,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            9000,
            8192,
        ),
        ("request (12031 tokens) exceeds the available context size (4096 tokens), try increasing it", 12031, 4096),
        ("prompt is too long: 210000 tokens > 200000 maximum", 210000, 200000),
        ("context_length_exceeded", None, None),
    ],
)
def test_context_overflow(words: str, tokens: int | None, limit: int | None) -> None:
    for status in (400, 500):
        error = told(status, message=words)
        assert isinstance(error, ContextOverflow)
        assert (error.tokens, error.limit) == (tokens, limit)


def test_context_overflow_with_numbers_of_its_own() -> None:
    error = told(400, message="m", type="exceed_context_size_error", n_prompt_tokens=9, n_ctx=8)
    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.limit) == (9, 8)


def test_refused_content() -> None:
    assert isinstance(told(400, message="m", code="content_filter"), ContentPolicy)
    assert isinstance(told(400, message="m", type="content_policy_violation"), ContentPolicy)


def test_details_of_the_client_error_stay() -> None:
    error = told(400, message="m", code="unsupported_parameter", param="n")
    assert (error.code, error.param) == ("unsupported_parameter", "n")
    assert told(400, message="m", code=400, param=7).code == "invalid_request"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html><body>secret</body></html>", "HTML (status 502)"),
        (b"plain secret", "no error of a known form (status 502)"),
        (b"", "no body (status 502)"),
        (b'{"x": 1}', "no error of a known form"),
        (b"[" * 100000, "no error of a known form"),
        (b'{"error": {}}', "status 502 and no message"),
        (b'{"detail": "told"}', "told"),
        (b'{"detail": [{"loc": ["body", 3], "msg": "bad"}, {"msg": "x"}]}', "body.3: bad; x"),
        (b'{"message": "flat", "type": "x"}', "flat"),
    ],
)
def test_bodies(body: bytes, words: str) -> None:
    error = CODEC.decode_error(502, [], body)
    assert isinstance(error, ProviderError)
    assert words in error.message
    assert "secret" not in error.message


def test_paths_of_the_host_are_cut_off() -> None:
    error = told(500, message='1 validation error\n\n  File "/opt/x/app.py", line 376, in f')
    assert error.message == "1 validation error"


@pytest.mark.parametrize(("engine", "case"), REFUSED)
def test_recordings(engine: str, case: str) -> None:
    recording = load(engine, case)
    status = int(recording.index["status"])
    if status == 200:
        return
    error = CODEC.decode_error(status, [], recording.response)
    assert error.fault == ("client" if status in (400, 422) or "unknown_model" in case else "upstream")
    assert "<" not in error.message[:1]
    assert "/opt/" not in error.message


def test_words_decide_where_there_is_no_status() -> None:
    for code, kind in (
        ("rate_limit_exceeded", RateLimited),
        ("authentication_error", ProviderAuthError),
        ("permission_denied", ProviderAuthError),
        ("invalid_request_error", BadRequest),
        ("server_is_overloaded", Overloaded),
        ("timeout", TimedOut),
        ("anything", ProviderError),
        ("999", ProviderError),
    ):
        assert type(told(200, message="m", code=code)) is kind
