"""Every recorded answer of a real server, for clients of all four protocols, streamed and whole.

A proven answer says the same in both forms, keeps the grammar of its protocol (judged without the codecs) and is read by the
official SDK; an unproven one, or an error, ends in an error that the SDK raises. By default every recording up to
`SHORT_BYTES` and every `STRIDE`-th longer one up to `LONG_BYTES`; STROM_MATRIX=all: all of them.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.matrix.officials import ERRORS, Officials
from tests.matrix.plays import BEHIND, FRONTS, Played, Stage, is_proven
from tests.matrix.views import View, assert_alike, view
from tests.recordings import index, load, names, recordings_root

SHORT_BYTES, LONG_BYTES = 8_000, 40_000
STRIDE = 6
EVERYTHING = os.environ.get("STROM_MATRIX") == "all"


def _recordings() -> list[tuple[str, str]]:
    found = [name for protocol in BEHIND for name in names(protocol=protocol)]
    sizes = {(entry["engine"], entry["case"]): entry["bytes"] for entry in index()} if found else {}
    if EVERYTHING:
        return found
    long = [name for name in found if SHORT_BYTES < sizes[name] <= LONG_BYTES]
    taken = set(long[::STRIDE])
    return [name for name in found if sizes[name] <= SHORT_BYTES or name in taken]


@pytest.fixture(scope="module")
def officials() -> Officials:
    return Officials()


def test_the_recordings_are_there() -> None:
    recordings_root()
    assert len(_recordings()) > 100


@pytest.mark.parametrize(("engine", "case"), _recordings())
def test_recording(engine: str, case: str, officials: Officials) -> None:
    recording = load(engine, case)
    stage, proven = Stage(recording), is_proven(recording)
    for front in FRONTS:
        streamed, whole = stage.play(front, streamed=True), stage.play(front, streamed=False)
        if proven:
            _agree(streamed, whole, officials, strict=front != stage.behind)
        else:
            for played in (streamed, whole):
                _is_honest(played, officials)
            statuses = streamed.answer.status, whole.answer.status
            assert proven is not None or min(statuses) == max(statuses) >= 400, "an error has no status of its own"


def _agree(streamed: Played, whole: Played, officials: Officials, *, strict: bool) -> None:
    seen = [view(streamed.answer, strict=strict), view(whole.answer, strict=strict)]
    assert_alike(*seen)
    for played, each in zip((streamed, whole), seen, strict=True):
        _count_alike(played, each)
        told = officials.read(played.answer)
        assert told == (each.text, [call[1] for call in each.calls], each.finish), played.answer.front
        assert (played.record.status, played.record.complete) == ("completed", True)
        assert each.block["complete"] is True


def _count_alike(played: Played, each: View) -> None:
    """The record counts what the client was told."""
    told = [each.usage[name] for name in ("completion_tokens", "output_tokens", "eval_count") if name in each.usage]
    counted = played.record.usage.output_tokens if played.record.usage else None
    assert [counted] == told if counted is not None else told in ([], [0])


def _is_honest(played: Played, officials: Officials) -> None:
    """An error that an SDK's user cannot miss, and no sign of success."""
    assert played.record.status in ("incomplete", "failed")
    assert played.record.error is not None
    answer = played.answer
    if not (answer.streamed and answer.status == 200):
        assert answer.status >= 400
        assert "error" in json.loads(answer.body)
    for success in (b"[DONE]", b"message_stop", b"response.completed", b'"done":true', b'"done": true'):
        assert success not in answer.body
    with pytest.raises(ERRORS):
        officials.read(played.answer)
