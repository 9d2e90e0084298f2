"""Calls played at random: whatever upstream and client do, one end, one record, nothing left behind.

A seed that fails is played again with STROM_SIMULATION_SEEDS=1234 (one seed) or =0:5000 (a range), for long runs too.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import pytest

from tests.gateway.rig import data_objects
from tests.gateway.simulated import Simulation
from tests.grammar import anthropic, ollama, openai_chat, openai_responses

FIXED = 400
BATCH = 50
TERMINATORS = {
    "openai-chat": b"data: [DONE]",
    "anthropic": b"message_stop",
    "openai-responses": b'"type":"response.completed"',
    "ollama": b'"done_reason"',
}


def seeds() -> range:
    """The fixed set, or what the environment asks for."""
    asked = os.environ.get("STROM_SIMULATION_SEEDS", "")
    first, _, last = asked.partition(":")
    if not first:
        return range(FIXED)
    return range(int(first), int(last) if last else int(first) + 1)


ALL = seeds()
"""Read when collected: tests see no STROM_* variable of this machine."""


@pytest.mark.parametrize("batch", range(0, len(ALL), BATCH))
def test_whatever_happens_a_call_ends_once_and_well(batch: int, caplog: pytest.LogCaptureFixture) -> None:
    broken = []
    for seed in ALL[batch : batch + BATCH]:
        caplog.clear()
        played = Simulation(seed)
        played.play()
        try:
            check(played)
            assert not [r for r in caplog.records if r.levelno >= logging.WARNING], caplog.text
        except (AssertionError, LookupError, ValueError) as error:
            broken.append(f"seed {seed} ({describe(played)}): {type(error).__name__} {str(error)[:300]}")
    assert not broken, "\n".join(broken)


def describe(played: Simulation) -> str:
    parts = ", ".join(f"{played.protocol_of(n)} {part.ending} {part.status}" for n, part in enumerate(played.parts))
    return f"{played.front} {'stream' if played.streams else 'whole'} over {parts}"


def check(played: Simulation) -> None:
    rig, exchange = played.rig, played.exchange
    assert played.over, f"the call hangs in state {exchange.state}"
    record = rig.record
    assert not rig.services.running
    assert rig.clock.armed == 0, "a timer is left"
    assert all(upstream.over for upstream in rig.client.sent), "an upstream is left open"
    assert not rig.board.under_way, "an attempt is not rated"
    assert len(rig.board.ends) == len(rig.client.sent)
    assert list(rig.records.begun) == ([record.trace_id] if rig.client.sent else [])
    assert record.bytes_out == len(exchange.body_out)
    assert (record.status == "cancelled") == (exchange.state == "left")
    check_record(played)
    if exchange.state != "left":
        check_reply(played)
    last = len(rig.client.sent) - 1
    assert not record.continued or played.continues
    for number in range(0 if record.continued else last):
        assert f"w{number}x".encode() not in exchange.body_out, "text of an earlier attempt"


def reports(played: Simulation) -> bool:
    """Whether an upstream may have told counts before its first token."""
    bodies = [b"".join(part.reads) for part in played.parts]
    return any(word in body for body in bodies for word in (b"usage", b"eval_count"))


def check_record(played: Simulation) -> None:
    record, attempts = played.rig.record, len(played.rig.client.sent)
    assert len(record.attempts) == attempts
    assert record.timing.request_duration_ms is not None
    assert (record.timing.time_to_first_token_ms is None) == (record.timing.first_token_kind is None)
    assert (record.timing.first_token_kind is None) == (record.deltas == 0)
    assert (record.status == "completed") == record.complete == (record.error is None) == (record.fault is None)
    assert record.attempts[-1].outcome == "ok" or record.error is not None
    assert all(attempt.outcome != "ok" for attempt in record.attempts[:-1])
    usage = record.usage
    if record.usage_source == "none":
        assert usage.input_tokens is None
    if record.usage_source == "none" or usage.output_tokens is None:
        assert record.cost_estimate is None
    if record.status not in ("completed", "cancelled") and record.usage_source == "estimated" and not reports(played):
        assert record.deltas or not usage.output_tokens


def check_reply(played: Simulation) -> None:
    exchange, record = played.exchange, played.rig.record
    assert exchange.state == "finished"
    assert record.http_status == exchange.status
    delivered = played.delivered()
    if record.status == "completed":
        assert played.parts[len(played.rig.client.sent) - 1].proves is not False, "a success nobody proved"
    elif delivered is not None and delivered.proves:
        assert record.error is not None
        assert record.error.code.endswith("_timeout"), "a proven answer was refused"
    if exchange.status != 200:
        check_error(played)
    elif not played.streams:
        assert record.status == "completed"
        assert json.loads(exchange.body_out)["strom"]["complete"] is True
    else:
        check_stream(played)


def check_error(played: Simulation) -> None:
    exchange = played.exchange
    assert exchange.status >= 400
    assert exchange.header_out(b"content-type") == b"application/json"
    assert json.loads(exchange.body_out)["error"]
    assert b"html" not in exchange.body_out


def check_stream(played: Simulation) -> None:
    exchange, record, body = played.exchange, played.rig.record, played.exchange.body_out
    strict = played.front not in played.behind
    number = len(played.rig.client.sent) - 1
    if played.parts[number].ending == "bent" and played.front == played.protocol_of(number):
        return  # legal JSON that nobody understands is passed on as it is
    failed = read(played, body, strict=strict)
    assert failed == (record.status != "completed"), "error and success do not exclude each other"
    proven = TERMINATORS[played.front] in body or b'"type":"response.incomplete"' in body
    assert proven == (record.status == "completed"), "terminator without success, or success without it"
    for block in blocks(played.front, body):
        assert block["complete"] is record.complete
        assert block["trace_id"] == record.trace_id
        assert block["usage_source"] == record.usage_source
        assert [a["outcome"] for a in block["attempts"]] == [a.outcome for a in record.attempts]
        assert block["timing"]["request_duration_ms"] == record.timing.request_duration_ms
        assert block["dropped"] == record.dropped
    assert exchange.header_out(b"x-strom-trace-id") == record.trace_id.encode()


def read(played: Simulation, body: bytes, *, strict: bool) -> bool:
    """Whether the stream ended in an error. Raises where it breaks its protocol."""
    match played.front:
        case "openai-chat":
            seen = openai_chat.read(body, asked=played.asked, strict=strict)
            assert seen.broken == []
            return seen.error is not None
        case "anthropic":
            return anthropic.read(body, strict=strict).error is not None
        case "openai-responses":
            return "response.failed" in openai_responses.read(body, strict=strict).types
        case _:
            return ollama.read(body, strict=strict).error is not None


def blocks(front: str, body: bytes) -> list[Any]:
    lines = [json.loads(line) for line in body.split(b"\n") if line] if front == "ollama" else []
    found = lines or data_objects(body)
    return [holder["strom"] for item in found for holder in (item, item.get("response") or {}) if "strom" in holder]
