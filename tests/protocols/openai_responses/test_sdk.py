"""The official SDK reads what we write: streams, whole replies, errors, heartbeats, the routing block."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from strom.core.errors import (
    AuthError,
    BadRequest,
    ModelNotFound,
    Overloaded,
    PermissionDenied,
    ProviderError,
    RateLimited,
    StromError,
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
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import CODEC
from tests.protocols.openai_responses.frames import context, numbered, plain, request
from tests.protocols.openai_responses.official import JSON, SSE, read_stream, sdk

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
    BlockStarted(2, Block("tool_call", "call.1", "f", namespace="ns")),
    ArgumentsDelta(2, '{"a":'),
    ArgumentsDelta(2, "[1]}"),
    BlockEnded(2),
    BlockStarted(3, Block("tool_call", "call_2", "p", custom=True)),
    ArgumentsDelta(3, "*** Begin"),
    BlockEnded(3),
    BlockStarted(4, Block("refusal")),
    TextDelta(4, "No."),
    BlockEnded(4),
    UsageReported(Usage(20, 8, 5, reasoning_tokens=2)),
    Finished("stop"),
    Completed(),
]
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]


def check(final: Any) -> None:
    thought, text, call, custom, refusal = final.output
    assert [item.type for item in final.output] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "message",
    ]
    assert thought.summary[0].text == "hm"
    assert text.content[0].text == "Hi \u20ac"
    assert (call.call_id, call.name, call.namespace, json.loads(call.arguments)) == ("call.1", "f", "ns", {"a": [1]})
    assert (custom.name, custom.input) == ("p", "*** Begin")
    assert refusal.content[0].refusal == "No."
    assert final.output_text == "Hi \u20ac"
    assert final.status == "completed"
    assert final.usage.input_tokens_details.cached_tokens == 5
    assert final.usage.output_tokens_details.reasoning_tokens == 2
    assert final.usage.total_tokens == 28
    assert final.tools[0].name == "f"
    assert final.strom == {"complete": True}


def test_a_stream_and_the_whole_reply_say_the_same() -> None:
    ctx = context(request=request(tools=TOOLS))
    final, kinds = read_stream(CODEC.encoder(ctx).encode(EVENTS))
    check(final)
    assert kinds[:2] == ["response.created", "response.in_progress"]
    check(sdk(CODEC.encode_reply(fold(EVENTS), ctx)).responses.create(model="m", input="x"))


def test_every_event_of_a_plain_iteration_is_typed() -> None:
    body = CODEC.encoder(context()).encode(EVENTS)
    with sdk(body, headers=SSE).responses.create(model="m", input="x", stream=True) as stream:
        events: list[Any] = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Hi ", "\u20ac"]
    for event in events:
        type(event).model_validate(event.model_dump())


def test_heartbeats_are_no_trouble() -> None:
    encoder = CODEC.encoder(context(request=request(tools=TOOLS)))
    body = encoder.heartbeat() + encoder.encode(EVENTS[:7]) + encoder.heartbeat() + encoder.encode(EVENTS[7:])
    check(read_stream(body)[0])


def test_heartbeats_of_the_relay_are_no_trouble() -> None:
    relay = CODEC.relay(context(), Quirks())
    frames = [frame + b"\n\n" for frame in numbered(*plain()).split(b"\n\n")[:-1]]
    body = b"".join(relay.heartbeat() + relay.feed(frame) for frame in frames)
    final, _ = read_stream(body)
    assert final.output_text == "Hi there"


def test_an_incomplete_stream_ends_without_an_error() -> None:
    body = CODEC.encoder(context()).encode([*EVENTS[:-2], Finished("length"), Completed()])
    with sdk(body, headers=SSE).responses.stream(model="m", input="x") as stream:
        events: list[Any] = list(stream)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"


def test_an_error_in_the_stream_is_raised() -> None:
    encoder = CODEC.encoder(context())
    body = encoder.encode(EVENTS[:7]) + encoder.fail(Overloaded("busy"))
    with pytest.raises(openai.APIError, match="busy"):
        read_stream(body)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("x"), openai.BadRequestError),
        (AuthError("x"), openai.AuthenticationError),
        (PermissionDenied("x"), openai.PermissionDeniedError),
        (ModelNotFound("x"), openai.NotFoundError),
        (RateLimited("x"), openai.RateLimitError),
        (ProviderError("x"), openai.InternalServerError),
    ],
)
def test_error_answers(error: StromError, kind: type[openai.APIStatusError]) -> None:
    encoded = CODEC.encode_error(error, "trace-1")
    client = sdk(encoded.body, encoded.status, JSON)
    with pytest.raises(kind) as raised:
        client.responses.create(model="m", input="x")
    assert raised.value.body == json.loads(encoded.body)["error"]
