"""From what went wrong to words and types."""

from __future__ import annotations

from typing import get_args

import pytest

import strom
from strom.client.failures import as_callers, explain, failure_of
from strom.client.verdicts import judge, reason_of
from strom.core import errors
from strom.core.messages import RefusalPart, TextPart
from strom.transport.types import FailureKind, TransportFailure
from tests.client.rig import DONE, Answer, Rig, chunk, content, failed, finish, refused


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_of_the_transport_has_words(kind: FailureKind) -> None:
    error = explain(TransportFailure(kind, "private detail", sent=True), "mine")
    assert "mine" in error.message
    assert error.detail == "private detail"


def test_a_stream_error_is_stream_failed_and_no_more() -> None:
    failure = failure_of(failed(Rig([Answer((content("a"),))]).play()))
    assert type(failure) is strom.StreamFailed
    assert failure.code == "incomplete_stream"
    failure = failure_of(failed(Rig([Answer((content("a"), finish("length"), DONE))]).play()))
    assert (type(failure), failure.code, failure.error) == (strom.StreamFailed, "incomplete_completion", None)


def test_a_typed_error_is_both() -> None:
    failure = failure_of(failed(Rig([refused(429, headers=[(b"retry-after", b"3")])]).play()))
    assert isinstance(failure, strom.StreamFailed)
    assert isinstance(failure, strom.RateLimited)
    assert not isinstance(failure, strom.ProviderError)
    assert (failure.status, failure.retryable, failure.fault) == (429, True, "client")
    assert failure.__cause__ is failure.error
    assert failure.metadata.metadata["retry-after"] == "3"


def test_content_policy() -> None:
    for frames in ((finish("content_filter"),), (chunk({"refusal": "I will not"}), finish("stop"))):
        failure = failure_of(failed(Rig([Answer((*frames, DONE))]).play()))
        assert isinstance(failure, strom.ContentPolicy)


def test_context_overflow_keeps_its_kind() -> None:
    body = "This model's maximum context length is 100 tokens, however you requested 200 tokens"
    failure = failure_of(failed(Rig([refused(400, body)]).play()))
    assert isinstance(failure, strom.ContextOverflow)
    assert (failure.limit, failure.code) == (100, "context_length_exceeded")


def test_a_refused_key_is_the_callers() -> None:
    assert isinstance(as_callers(errors.ProviderAuthError("x")), strom.AuthError)
    other = errors.ProviderError("x")
    assert as_callers(other) is other


def test_reasons_of_errors() -> None:
    assert reason_of(errors.ProviderError("x"), refused=False) == "provider_error"
    assert reason_of(errors.ProviderError("x"), refused=True) == "request_failed"


def test_verdicts() -> None:
    assert judge("stop", (TextPart("a"),), ()) is None
    assert judge("stop_sequence", (TextPart("a"),), ()) is None
    for reason in ("abort", "pause", "context_full", "tool_calls", "length", "content_filter"):
        assert judge(reason, (TextPart("a"),), ()) is not None
    assert judge("stop", (RefusalPart("no"),), ()) is not None
