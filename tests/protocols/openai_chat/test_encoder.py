"""What the gateway writes to Chat clients keeps the layout, and the official SDK reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx2
import openai
import pytest

from strom.core.errors import BadRequest, Overloaded
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.fold import fold
from strom.core.usage import Usage
from strom.protocols.openai_chat import CODEC
from tests.grammar.openai_chat import ChatGrammar, read
from tests.protocols.openai_chat.frames import BLOCK, context, encode

THOUGHT: list[Event] = [
    BlockStarted(0, Block("thinking")),
    ThinkingDelta(0, "hm"),
    SignatureDelta(0, "sig"),
    BlockEnded(0),
]
SAID: list[Event] = [
    BlockStarted(1, Block("text")),
    TextDelta(1, 'so "é"\n'),
    CitationDelta(1, "anthropic", "{}"),
    BlockEnded(1),
]
CALLED: list[Event] = [
    BlockStarted(2, Block("tool_call", "c1", "f")),
    ArgumentsDelta(2, '{"a":'),
    ArgumentsDelta(2, "1}"),
    BlockEnded(2),
    BlockStarted(3, Block("tool_call", "c2", "now")),
    BlockEnded(3),
]
ALL: list[Event] = [
    Started("msg_1", "theirs", 5),
    *THOUGHT,
    *SAID,
    *CALLED,
    Noted("x"),
    UsageReported(Usage(9, 3, 4, 2, 1)),
]
END: list[Event] = [Finished("tool_calls"), Completed()]


def written(events: Iterable[Event], **members: Any) -> ChatGrammar:
    seen = read(encode(events, **members), asked=members.get("include_usage", False))
    assert seen.broken == []
    return seen


def test_everything_in_its_place() -> None:
    seen = written([*ALL, *END], block=BLOCK)
    assert (seen.reasoning, seen.text, seen.finish) == ("hm", 'so "é"\n', "tool_calls")
    assert seen.calls == [
        {"id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"id": "c2", "name": "now", "arguments": "{}"},
    ]
    assert seen.usage == {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert {(c["id"], c["created"], c["model"]) for c in seen.chunks} == {("chatcmpl-r1", 1750000000, "alias")}
    assert seen.chunks[-1]["strom"] == {"complete": True}


def test_the_upstreams_own_chat_id_stays() -> None:
    assert written([Started("chatcmpl-7"), *SAID, *END]).chunks[0]["id"] == "chatcmpl-7"


def test_usage_in_a_frame_of_its_own() -> None:
    seen = written([*ALL, *END], include_usage=True, block=BLOCK)
    assert seen.usage["total_tokens"] == 12
    assert seen.chunks[-1]["choices"] == []


def test_running_usage() -> None:
    data = encode([*ALL, *END], include_usage=True, continuous_usage=True, input_estimate=7)
    chunks = [json.loads(line[6:]) for line in data.split(b"\n\n")[:-2]]
    assert chunks[1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
    assert chunks[-1]["usage"]["total_tokens"] == 12
    assert all(chunk["choices"] for chunk in chunks[:-1])


def test_usage_is_estimated_where_nobody_reported_it() -> None:
    seen = written([Started(), *SAID, Finished("stop"), Completed()], input_estimate=5)
    assert seen.usage == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    reports: list[Event] = [UsageReported(Usage(9)), UsageReported(Usage(output_tokens=4))]
    assert written([Started(), *reports, *END]).usage["total_tokens"] == 13


def test_each_event_leaves_at_once_but_the_finish() -> None:
    encoder = CODEC.encoder(context())
    sizes = [bool(encoder.encode([event])) for event in [Started(), *SAID[:2], SAID[3], Finished("stop")]]
    assert sizes == [True, False, True, False, False]
    assert encoder.encode([Completed()]).count(b"data: ") == 2
    assert encoder.encode([]) == b""


def test_many_events_are_one_write_and_a_second_start_changes_nothing() -> None:
    at_once = CODEC.encoder(context()).encode([*ALL, Started("other", "x"), *END])
    assert at_once == encode([*ALL, *END])


def test_an_empty_answer() -> None:
    assert written([Completed()]).finish == "stop"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("pause", "stop"),
        ("length", "length"),
        ("context_full", "length"),
        ("content_filter", "content_filter"),
        ("refusal", "content_filter"),
        ("abort", "abort"),
    ],
)
def test_reasons(reason: str, word: str) -> None:
    assert written([Started(), *SAID, Finished("stop"), Finished(reason), Completed()]).finish == word


def test_stop_after_a_call_is_tool_calls() -> None:
    assert written([Started(), *CALLED, Finished("stop"), Completed()]).finish == "tool_calls"
    assert written([Started(), *CALLED, Finished("length"), Completed()]).finish == "length"


def test_reasoning_left_out_or_as_text() -> None:
    assert written([Started(), *THOUGHT, *SAID, *END], reasoning="drop").reasoning == ""
    seen = written([Started(), *THOUGHT, *SAID, *END], reasoning="text")
    assert seen.text == '<think>\nhm\n</think>\n\nso "é"\n'
    seen = written([Started(), *THOUGHT, *CALLED, *END], reasoning="text")
    assert seen.text == "<think>\nhm\n</think>\n\n"
    assert written([Started(), *THOUGHT, *END], reasoning="text").text == "<think>\nhm\n</think>\n\n"


def test_refusals_custom_calls_and_blocks_of_others() -> None:
    events: list[Event] = [
        Started(),
        BlockStarted(0, Block("refusal")),
        TextDelta(0, "no"),
        BlockEnded(0),
        BlockStarted(1, Block("opaque", name="web_search", data="{}", protocol="anthropic")),
        BlockEnded(1),
        BlockStarted(2, Block("tool_call", "c", "sh", custom=True)),
        ArgumentsDelta(2, "ls"),
        BlockEnded(2),
        BlockStarted(3, Block("tool_call", "d", "sh", custom=True)),
        BlockEnded(3),
    ]
    seen = written([*events, *END])
    assert [call["arguments"] for call in seen.calls] == ["ls", ""]
    assert any(c["choices"][0]["delta"].get("refusal") == "no" for c in seen.chunks)


def test_failing_and_waiting() -> None:
    encoder = CODEC.encoder(context())
    assert encoder.heartbeat() == b": keep-alive\n\n"
    data = encoder.encode([Started(), *SAID[:2]]) + encoder.fail(BadRequest("No.", param="n"))
    seen = read(data)
    assert seen.broken == []
    assert seen.error == {"message": "No.", "type": "invalid_request_error", "param": "n", "code": None}
    assert json.loads(encoder.fail(Overloaded("Busy."))[6:])["error"]["type"] == "overloaded_error"


# --- the official client as a judge --------------------------------------------------------------------


def client(body: bytes, content_type: str) -> openai.OpenAI:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": content_type}, content=body)

    return openai.OpenAI(
        api_key="x", base_url="http://strom.test/v1", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )


def test_the_sdk_reads_the_stream() -> None:
    body = encode([*ALL, *END], include_usage=True, block=BLOCK)
    sdk = client(body, "text/event-stream")
    with sdk.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == 'so "é"\n'
    assert [call.function.arguments for call in message.tool_calls or []] == ['{"a":1}', "{}"]
    assert (final.choices[0].finish_reason, final.usage and final.usage.total_tokens) == ("tool_calls", 12)


def test_the_sdk_reads_the_whole_reply() -> None:
    body = CODEC.encode_reply(fold([*ALL, *END]), context(block=BLOCK))
    reply = client(body, "application/json").chat.completions.create(model="m", messages=[])
    assert reply.choices[0].message.content == 'so "é"\n'
    assert reply.usage is not None
    assert reply.usage.total_tokens == 12


def test_the_sdk_raises_the_error() -> None:
    encoder = CODEC.encoder(context())
    sdk = client(encoder.encode([Started(), *SAID[:2]]) + encoder.fail(Overloaded("Busy.")), "text/event-stream")
    with pytest.raises(openai.APIError, match=r"Busy\."):
        list(sdk.chat.completions.create(model="m", messages=[], stream=True))
