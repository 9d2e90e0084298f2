"""The official Python client reads what we write: `ollama` 0.6.3 over an in-process transport.

No recordings of a real Ollama exist, so the client is the judge of our lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import ollama
import pytest

from strom.core.errors import ModelNotFound, ProviderError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Finished,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.fold import fold
from strom.core.messages import Request, ToolCallPart, ToolResultPart
from strom.core.usage import Usage
from strom.protocols.codec import Codec, Target
from strom.protocols.ollama import CODEC, GENERATE_CODEC
from tests.protocols.ollama.lines import context

EVENTS: list[Event] = [
    Started(),
    BlockStarted(0, Block("thinking")),
    ThinkingDelta(0, "Hm"),
    BlockEnded(0),
    BlockStarted(1, Block("text")),
    TextDelta(1, "Hi\u2028\u0085\n"),
    TextDelta(1, "you"),
    BlockEnded(1),
    BlockStarted(2, Block("tool_call", "c1", "f")),
    ArgumentsDelta(2, '{"a": '),
    ArgumentsDelta(2, "1}"),
    BlockEnded(2),
    UsageReported(Usage(9, 3, durations=(("total_duration", 900),))),
    Finished("tool_calls"),
    Completed(),
]


def client(answer: Callable[[httpx.Request], httpx.Response]) -> ollama.Client:
    return ollama.Client(transport=httpx.MockTransport(answer))


def gateway(codec: Codec, seen: list[Request]) -> Callable[[httpx.Request], httpx.Response]:
    """A gateway in small: decodes the request, answers with EVENTS."""

    def answer(request: httpx.Request) -> httpx.Response:
        decoded = codec.decode_request(request.content)
        seen.append(decoded)
        if not decoded.stream:
            return httpx.Response(200, content=codec.encode_reply(fold(EVENTS), context()))
        encoder = codec.encoder(context())
        body = [encoder.heartbeat(), *(encoder.encode([event]) for event in EVENTS)]
        return httpx.Response(200, content=b"".join(body), headers={"content-type": codec.stream_content_type.decode()})

    return answer


def test_chat_streamed_and_whole() -> None:
    seen: list[Request] = []
    official = client(gateway(CODEC, seen))
    messages = [{"role": "user", "content": "hi"}]
    parts = list(official.chat("m", messages, stream=True, think=True, options={"temperature": 0.5}))
    assert "".join(part.message.content or "" for part in parts) == "Hi\u2028\u0085\nyou"
    assert "".join(part.message.thinking or "" for part in parts) == "Hm"
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    assert [(call.name, call.arguments) for call in calls] == [("f", {"a": 1})]
    last = parts[-1]
    assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count, last.total_duration) == (
        True, "stop", 9, 3, 900,
    )  # fmt: skip
    whole = official.chat("m", messages)
    assert (whole.message.content, whole.message.thinking, whole.done_reason) == ("Hi\u2028\u0085\nyou", "Hm", "stop")
    assert [request.stream for request in seen] == [True, False]
    assert (seen[0].sampling.temperature, seen[0].reasoning is not None) == (0.5, True)


def test_generate_streamed_and_whole() -> None:
    seen: list[Request] = []
    official = client(gateway(GENERATE_CODEC, seen))
    parts = list(official.generate("m", "hi", system="s", stream=True))
    assert "".join(part.response or "" for part in parts) == "Hi\u2028\u0085\nyou"
    assert "".join(part.thinking or "" for part in parts) == "Hm"
    assert (parts[-1].done, parts[-1].done_reason) == (True, "stop")
    assert official.generate("m", "hi").response == "Hi\u2028\u0085\nyou"
    assert [message.role for message in seen[0].messages] == ["system", "user"]


def test_a_round_of_tools() -> None:
    def weather(city: str) -> str:
        """Weather.

        Args:
          city: where
        """
        return city

    seen: list[Request] = []
    official = client(gateway(CODEC, seen))
    messages: list[Any] = [{"role": "user", "content": "weather?"}]
    reply = official.chat("m", messages, tools=[weather])
    messages += [reply.message, {"role": "tool", "content": "sunny", "tool_name": "f"}]
    official.chat("m", messages, tools=[weather])
    assert seen[0].tools[0].name == "weather"
    call, result = seen[1].messages[1].parts[-1], seen[1].messages[2].parts[0]
    assert isinstance(call, ToolCallPart)
    assert isinstance(result, ToolResultPart)
    assert result.call_id == call.call_id
    body = CODEC.encode_request(seen[1], Target("up", stream=True)).body
    assert b'"tool_name":"f"' in body


def test_errors_in_band_and_before() -> None:
    error = ModelNotFound("The model 'm' is not served here.")
    encoded = CODEC.encode_error(error, "t")
    official = client(lambda _: httpx.Response(encoded.status, content=encoded.body))
    with pytest.raises(ollama.ResponseError, match="model 'm' not found") as raised:
        official.chat("m", [])
    assert raised.value.status_code == 404
    encoder = CODEC.encoder(context())
    body = encoder.encode(EVENTS[:6]) + encoder.fail(ProviderError("It broke."))
    parts = client(lambda _: httpx.Response(200, content=body)).chat("m", [], stream=True)
    assert next(parts).message.thinking == "Hm"
    with pytest.raises(ollama.ResponseError, match=r"It broke\."):
        list(parts)
