"""The judges on real bytes: they find an end proven exactly where the index of the recordings does."""

from __future__ import annotations

from typing import Any

import pytest

from strom.conformance.asking import Capture, Read
from strom.conformance.dialects.dialect import Ask, Dialect
from strom.conformance.dialects.table import DIALECTS
from strom.conformance.framing import split_events
from strom.conformance.reading import Reading
from tests.recordings import Recording, index, load

NAMES = {"chat": "openai-chat", "responses": "openai-responses", "anthropic": "anthropic"}


def dialect_of(recording: Recording) -> Dialect:
    return next(dialect for dialect in DIALECTS if dialect.name == NAMES[recording.index["protocol"]])


def reading_of(recording: Recording) -> Reading:
    capture = Capture()
    capture.reads = [Read(float(number), chunk) for number, chunk in enumerate(recording.chunks)]
    options: dict[str, Any] = recording.request.get("body", {}).get("stream_options") or {}
    return dialect_of(recording).judge_stream(split_events(capture), Ask(usage=bool(options.get("include_usage"))))


def faults(reading: Reading, *topics: str) -> list[str]:
    return [text for topic, text in reading.broken if topic in topics]


def streams() -> list[Recording]:
    entries = [entry for entry in index() if entry["streamed"] and entry["protocol"] in NAMES]
    judged = [entry for entry in entries if entry["status"] == 200 and entry["ends_with_proof"] is not None]
    return [load(entry["engine"], entry["case"]) for entry in judged]


def test_an_end_is_proven_where_the_index_says_so() -> None:
    recordings = streams()
    assert len(recordings) > 50
    wrong = []
    for recording in recordings:
        reading = reading_of(recording)
        proven = reading.error is None and reading.finish is not None and not faults(reading, "terminator")
        if proven != recording.index["ends_with_proof"]:
            wrong.append((recording.engine, recording.case, reading.finish, reading.broken))
    assert wrong == []


@pytest.mark.parametrize(
    ("engine", "case", "fault"),
    [
        ("mlx_lm", "plain", "the role is sent more than once"),
        ("transformers", "plain", "no [DONE]"),
        ("xllamacpp", "responses_tools", "an event has no sequence_number"),
    ],
)
def test_known_deviations_are_found(engine: str, case: str, fault: str) -> None:
    assert fault in [text for _, text in reading_of(load(engine, case)).broken]


@pytest.mark.parametrize("engine", ["xllamacpp", "vllm"])
def test_servers_that_keep_the_rules(engine: str) -> None:
    assert reading_of(load(engine, "plain")).broken == []
