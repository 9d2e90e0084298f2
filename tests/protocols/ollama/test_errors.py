"""Errors in Ollama's words, and what an Ollama server's errors mean."""

from __future__ import annotations

import json

import pytest

from strom.core.errors import (
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    Overloaded,
    ProviderAuthError,
    ProviderError,
    RateLimited,
    StromError,
    TimedOut,
    TooLarge,
)
from strom.protocols.ollama import CODEC

UNKNOWN = "The upstream answered with status {} and no error of a known form."


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (BadRequest("No."), 400, "No."),
        (
            ModelNotFound("The model 'x' is not served here."),
            404,
            "model 'x' not found. The model 'x' is not served here.",
        ),
        (ModelNotFound('The model "x" is gone.'), 404, "model 'x' not found. The model \"x\" is gone."),
        (ModelNotFound("Gone."), 404, "model not found. Gone."),
        (ModelNotFound("model 'y' not found"), 404, "model 'y' not found"),
        (TooLarge("Big."), 413, "Big."),
        (ContextOverflow("Long."), 400, "Long."),
        (ProviderError("Broke."), 502, "Broke."),
    ],
)
def test_errors_are_a_text(error: StromError, status: int, text: str) -> None:
    encoded = CODEC.encode_error(error, "t1")
    assert (encoded.status, encoded.headers, json.loads(encoded.body)) == (status, [], {"error": text})


def test_retry_after() -> None:
    assert CODEC.encode_error(RateLimited("Wait."), "t").headers == [(b"retry-after", b"1")]
    assert CODEC.encode_error(Overloaded("Busy.", retry_after_s=2.1), "t").headers == [(b"retry-after", b"3")]
    assert CODEC.encode_error(BadRequest("No.", retry_after_s=5), "t").headers == [(b"retry-after", b"5")]


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (404, b'{"error":"model \'x\' not found"}', ModelNotFound, "model 'x' not found"),
        (400, b'{"error":"model \\"x\\" not found, try pulling"}', ModelNotFound, 'model "x" not found, try pulling'),
        (400, b'{"error":"llama3 does not support tools"}', BadRequest, "llama3 does not support tools"),
        (400, b'{"error":"the input exceeds the context length"}', ContextOverflow, "the input exceeds the context length"),
        (500, b'{"error":"prompt exceeds available context"}', ContextOverflow, "prompt exceeds available context"),
        (404, b"404 page not found", ProviderError, "The upstream has no such endpoint (status 404)."),
        (405, b'{"error":"not allowed"}', ProviderError, "The upstream has no such endpoint (status 405)."),
        (401, b'{"error":"unauthorized"}', ProviderAuthError, "The upstream refused the gateway's credentials (status 401)."),
        (403, b"", ProviderAuthError, "The upstream refused the gateway's credentials (status 403)."),
        (402, b'{"error":"pay"}', ProviderError, "pay"),
        (408, b'{"error":"slow"}', TimedOut, "slow"),
        (413, b'{"error":"big"}', TooLarge, "big"),
        (429, b'{"error":"too many"}', RateLimited, "too many"),
        (500, b'{"error":"llama runner process has terminated"}', ProviderError, "llama runner process has terminated"),
        (502, b"<html>Bad gateway</html>", ProviderError, UNKNOWN.format(502)),
        (503, b'{"error":"server busy, please try again"}', Overloaded, "server busy, please try again"),
        (504, b"", TimedOut, UNKNOWN.format(504)),
        (400, b'{"error":{"message":"told","type":"x"}}', BadRequest, "told"),
        (400, b'{"error":null}', BadRequest, UNKNOWN.format(400)),
    ],
)  # fmt: skip
def test_what_an_upstream_says(status: int, body: bytes, kind: type, message: str) -> None:
    error = CODEC.decode_error(status, [], body)
    assert (type(error), error.message) == (kind, message)
    assert b"html" not in error.message.encode()


@pytest.mark.parametrize(("value", "seconds"), [(b"7", 7.0), (b" 1.5 ", 1.5), (b"Mon, 05 Jan", None), (b"", None)])
def test_retry_after_is_kept(value: bytes, seconds: float | None) -> None:
    assert CODEC.decode_error(429, [(b"Retry-After", value)], b"").retry_after_s == seconds
