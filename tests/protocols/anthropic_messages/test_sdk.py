"""The official SDK reads what we write: streams, whole replies, errors, the routing block."""

from __future__ import annotations

import anthropic
import pytest

from strom.core.errors import (
    AuthError,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    Overloaded,
    PermissionDenied,
    ProviderError,
    RateLimited,
    StromError,
    TimedOut,
    TooLarge,
)
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Finished,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.fold import fold
from strom.core.usage import Usage
from strom.protocols.anthropic_messages import CODEC
from tests.protocols.anthropic_messages.frames import context
from tests.protocols.anthropic_messages.official import JSON, read_stream, sdk

EVENTS: list[Event] = [
    Started("chatcmpl-1", "m"),
    BlockStarted(0, Block("thinking")),
    ThinkingDelta(0, "hm"),
    SignatureDelta(0, "sig"),
    BlockEnded(0),
    BlockStarted(1, Block("text")),
    TextDelta(1, "Hi "),
    TextDelta(1, "\u20ac"),
    BlockEnded(1),
    BlockStarted(2, Block("tool_call", "call.1", "f")),
    ArgumentsDelta(2, '{"a":'),
    ArgumentsDelta(2, "[1]}"),
    BlockEnded(2),
    BlockStarted(3, Block("tool_call", "call_2", "g")),
    BlockEnded(3),
    UsageReported(Usage(20, 8, 5)),
    Finished("stop"),
    Completed(),
]


def check(message: anthropic.types.Message) -> None:
    thinking, text, first, second = message.content
    assert (thinking.type, text.type, first.type, second.type) == ("thinking", "text", "tool_use", "tool_use")
    assert thinking.type == "thinking"
    assert (thinking.thinking, thinking.signature) == ("hm", "sig")
    assert text.type == "text"
    assert text.text == "Hi \u20ac"
    assert first.type == "tool_use"
    assert (first.name, first.input) == ("f", {"a": [1]})
    assert second.type == "tool_use"
    assert (second.id, second.input) == ("call_2", {})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (
        15,
        5,
        8,
    )


def test_a_stream_and_the_whole_reply_say_the_same() -> None:
    check(read_stream(CODEC.encoder(context()).encode(EVENTS)))
    body = CODEC.encode_reply(fold(EVENTS), context())
    client = sdk(body)
    message = client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    check(message)
    assert (message.model_extra or {})["strom"] == {"complete": True}


def test_an_error_in_the_stream_is_raised() -> None:
    encoder = CODEC.encoder(context())
    body = encoder.encode(EVENTS[:7]) + encoder.fail(Overloaded("busy"))
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        read_stream(body)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (BadRequest("x"), anthropic.BadRequestError, 400),
        (ContextOverflow("x", tokens=9, limit=8), anthropic.BadRequestError, 400),
        (AuthError("x"), anthropic.AuthenticationError, 401),
        (PermissionDenied("x"), anthropic.PermissionDeniedError, 403),
        (ModelNotFound("x"), anthropic.NotFoundError, 404),
        (TooLarge("x"), anthropic.APIStatusError, 413),
        (RateLimited("x"), anthropic.RateLimitError, 429),
        (ProviderError("x"), anthropic.InternalServerError, 502),
        (TimedOut("x"), anthropic.InternalServerError, 504),
        (Overloaded("x"), anthropic.InternalServerError, 529),
    ],
)
def test_error_answers(error: StromError, kind: type[anthropic.APIStatusError], status: int) -> None:
    encoded = CODEC.encode_error(error, "trace-1")
    headers = {name.decode(): value.decode() for name, value in encoded.headers}
    client = sdk(encoded.body, encoded.status, {**JSON, **headers})
    with pytest.raises(kind) as raised:
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    assert raised.value.status_code == status
    assert "x" in raised.value.message
