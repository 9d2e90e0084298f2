"""What a stream has shown so far."""

from __future__ import annotations

from strom.core.errors import IncompleteStream
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Failed,
    Finished,
    Noted,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.evidence import Evidence
from strom.core.usage import Usage


def test_a_complete_stream() -> None:
    evidence = Evidence()
    assert not evidence.ended
    evidence.observe([Started("id", "model"), BlockStarted(0, Block("thinking")), ThinkingDelta(0, "ab")])
    evidence.observe([BlockEnded(0), BlockStarted(1, Block("text")), TextDelta(1, "cde"), BlockEnded(1)])
    evidence.observe([BlockStarted(2, Block("tool_call", "c", "f")), ArgumentsDelta(2, "{}"), BlockEnded(2)])
    evidence.observe([UsageReported(Usage(5, 1)), UsageReported(Usage(output_tokens=4)), Noted("x")])
    evidence.observe([Finished("tool_calls", raw="tool_use", assumed=True), Completed()])
    assert (evidence.response_id, evidence.model, evidence.first_token_kind) == ("id", "model", "thinking")
    assert (evidence.deltas, evidence.output_characters, evidence.tool_calls) == (3, 7, 1)
    assert evidence.usage == Usage(5, 4)
    assert (evidence.finish_reason, evidence.finish_raw, evidence.finish_assumed) == ("tool_calls", "tool_use", True)
    assert evidence.notes == ["x"]
    assert evidence.complete
    assert evidence.ended


def test_a_failed_stream() -> None:
    evidence = Evidence()
    error = IncompleteStream("cut")
    evidence.observe([Started(), Failed(error)])
    assert evidence.error is error
    assert evidence.ended
    assert not evidence.complete
