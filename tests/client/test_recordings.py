"""Real servers' streams through the library: each ends in exactly one terminal event, however its bytes are cut."""

from __future__ import annotations

import itertools
import random

import pytest

from strom.client.events import StreamCompleted, StreamContent, StreamError, StreamEvent, StreamThinking, StreamToolCall
from strom.client.options import ModelOptions
from tests import recordings
from tests.client.rig import Answer, Rig

PROTOCOLS = {"chat": "openai-chat", "messages": "anthropic", "ollama": "ollama", "responses": "openai-responses"}
CASES = [(protocol, *names) for protocol in PROTOCOLS for names in recordings.names(protocol=protocol, streamed=True)]


def test_the_recordings_are_there() -> None:
    recordings.recordings_root()
    assert CASES


def play(protocol: str, recording: recordings.Recording, pieces: list[bytes]) -> list[StreamEvent]:
    headers = [(name.encode(), value.encode()) for name, value in recording.headers]
    status = int(recording.status_line.split(" ")[1])
    options: ModelOptions = {"protocol": PROTOCOLS[protocol]}  # type: ignore[typeddict-item]  # values are protocols
    if recording.engine.startswith("transformers"):
        options["quirks"] = {"done_required": False}
    rig = Rig([Answer(tuple(pieces), status, headers)], model=options)
    return rig.play(tools=[{"name": "get_weather"}])


def told(events: list[StreamEvent]) -> tuple[str, str, list[tuple[str, str]], str, str | None]:
    text = "".join(event.text for event in events if isinstance(event, StreamContent))
    thinking = "".join(event.text for event in events if isinstance(event, StreamThinking))
    calls = [(event.call.name, event.call.raw) for event in events if isinstance(event, StreamToolCall)]
    last = events[-1]
    assert isinstance(last, StreamCompleted | StreamError)
    assert sum(isinstance(event, StreamCompleted | StreamError) for event in events) == 1
    assert (last.metadata.text, last.metadata.thinking) == (text, thinking)
    broken_off = isinstance(last, StreamError) and last.reason in ("invalid_stream_event", "unexpected_tool_calls")
    reason = None if broken_off else last.metadata.finish_reason  # then it depends on what the last read brought
    return text, thinking, calls, last.type, reason


@pytest.mark.parametrize(("protocol", "engine", "case"), CASES)
def test_recording(protocol: str, engine: str, case: str) -> None:
    recording = recordings.load(engine, case)
    whole = told(play(protocol, recording, [recording.response]))
    assert told(play(protocol, recording, recording.chunks)) == whole
    cuts = sorted(random.Random(case).choices(range(len(recording.response) + 1), k=20))
    edges = [0, *cuts, len(recording.response)]
    pieces = [recording.response[start:end] for start, end in itertools.pairwise(edges) if start < end]
    assert told(play(protocol, recording, pieces)) == whole
    if whole[4] in ("stop", "tool_calls") and (whole[4] == "stop" or whole[2]):
        assert whole[3] == "completed"
