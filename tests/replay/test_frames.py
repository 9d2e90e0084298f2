"""Tokens and terminators are found in all four protocols by structure alone."""

from __future__ import annotations

import json

import pytest

from strom.replay.frames import frames, token_offset
from tests.recordings import load
from tests.replay.recordings import BODY, FRAMES

SSE, NDJSON = "text/event-stream", "application/x-ndjson"


def event(value: object, name: str = "") -> bytes:
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + json.dumps(value).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("value", "bears"),
    [
        ({"choices": [{"delta": {"content": "a"}}]}, True),
        ({"choices": [{"delta": {"content": ""}}]}, False),
        ({"choices": [{"delta": {"role": "assistant"}}]}, False),
        ({"choices": [{"delta": {"reasoning_content": "a"}}]}, True),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}}]}, False),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]}, True),
        ({"choices": [{"delta": {}, "logprobs": {"content": "a"}}]}, False),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, True),
        ({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}, True),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, False),
        ({"type": "message_start", "message": {"content": []}}, False),
        ({"type": "response.output_text.delta", "delta": "a"}, True),
        ({"type": "response.output_text.done", "text": "a"}, False),
        ({"type": "response.completed", "response": {"output": [{"content": [{"text": "a"}]}]}}, False),
        ({"message": {"content": "a"}, "done": False}, True),
        ({"message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "done": False}, True),
        ({"response": "a", "done": False}, True),
        ("text", False),
    ],
)
def test_which_frames_bear_a_token(value: object, bears: bool) -> None:
    assert [frame.bears_token for frame in frames(event(value), SSE)] == [bears]
    line = json.dumps(value).encode() + b"\n"
    assert [frame.bears_token for frame in frames(line, NDJSON)] == [bears]


@pytest.mark.parametrize(
    "data",
    [
        b"data: [DONE]\n\n",
        event({"type": "message_stop"}, "message_stop"),
        event({"type": "response.incomplete", "response": {}}, "response.incomplete"),
    ],
)
def test_terminators_of_event_streams(data: bytes) -> None:
    assert [frame.is_terminator for frame in frames(BODY[:-14] + data, SSE)] == [False] * 4 + [True]


def test_a_terminator_of_json_lines() -> None:
    data = b'{"done": false}\n{"done": true}\n'
    assert [(frame.start, frame.end, frame.is_terminator) for frame in frames(data, NDJSON)] == [
        (0, 16, False),
        (16, 31, True),
    ]


def test_offsets_are_those_of_the_bytes() -> None:
    found = frames(BODY, SSE)
    assert [BODY[frame.start : frame.end] for frame in found] == list(FRAMES)
    assert token_offset(found, 0, len(BODY)) == found[1].start
    assert token_offset(found, 1, len(BODY)) == found[1].end
    assert token_offset(found, 2, len(BODY)) == found[2].end
    assert token_offset(found, 3, len(BODY)) == len(BODY)


def test_other_bodies_have_no_frames() -> None:
    assert frames(b'{"content": "a"}', "application/json") == []


@pytest.mark.parametrize(
    ("engine", "case"),
    [("vllm", "plain"), ("vllm", "anthropic_stream"), ("xllamacpp", "responses_stream"), ("vllm", "echo_tools_stream")],
)
def test_real_streams_have_tokens_and_one_terminator_at_their_end(engine: str, case: str) -> None:
    recording = load(engine, case)
    found = frames(recording.response, SSE)
    assert found[-1].end == len(recording.response)
    assert [frame.is_terminator for frame in found] == [False] * (len(found) - 1) + [True]
    assert sum(frame.bears_token for frame in found) > 3
