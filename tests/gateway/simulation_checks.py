"""What must be true of a call that was played, whatever happened to it. Shared by one call alone and by several at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from strom.core.record import CallRecord
from strom.transport.memory import MemoryExchange, MemoryUpstream
from tests.gateway.rig import Rig, data_objects
from tests.gateway.simulated import Part
from tests.grammar import anthropic, ollama, openai_chat, openai_responses

TERMINATORS = {
    "openai-chat": b"data: [DONE]",
    "anthropic": b"message_stop",
    "openai-responses": b'"type":"response.completed"',
    "ollama": b'"done_reason"',
}


class Played(Protocol):
    """`sent`: what was sent upstream for this call, `parts`: what each of them met; `asked`: for usage (Chat)."""

    front: str
    behind: tuple[str, ...]
    streams: bool
    asked: bool
    continues: bool
    exchange: MemoryExchange

    @property
    def parts(self) -> Sequence[Part]: ...

    @property
    def record(self) -> CallRecord: ...

    @property
    def sent(self) -> Sequence[MemoryUpstream]: ...

    def protocol_of(self, attempt: int) -> str: ...

    def delivered(self) -> Part | None:
        """The last attempt's part, if all of it has come."""
        ...


def check_rest(rig: Rig) -> None:
    """Nothing is left of any call."""
    assert not rig.services.running
    assert rig.clock.armed == 0, "a timer is left"
    assert all(upstream.over for upstream in rig.client.sent), "an upstream is left open"
    assert not rig.board.under_way, "an attempt is not rated"
    assert len(rig.board.ends) == len(rig.client.sent)


def check(played: Played) -> None:
    """One call that has ended."""
    exchange, record = played.exchange, played.record
    assert exchange.state in ("finished", "aborted", "left"), f"the call hangs in state {exchange.state}"
    assert record.bytes_out == len(exchange.body_out)
    assert (record.status == "cancelled") == (exchange.state == "left")
    check_record(played)
    if exchange.state != "left":
        check_reply(played)
    assert not record.continued or played.continues
    for part in played.parts[: 0 if record.continued else -1]:
        assert part.mark.encode() not in exchange.body_out, "text of an earlier attempt"


def reports(played: Played) -> bool:
    """Whether an upstream may have told counts before its first token."""
    bodies = [b"".join(part.reads) for part in played.parts]
    return any(word in body for body in bodies for word in (b"usage", b"eval_count"))


def check_record(played: Played) -> None:
    record, attempts = played.record, len(played.sent)
    made = [each for each in record.attempts if not (each.reason or "").startswith("queue_")]
    assert len(made) == attempts, "an attempt that found no place is told, and not made"
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


def check_reply(played: Played) -> None:
    exchange, record = played.exchange, played.record
    assert exchange.state == "finished"
    assert record.http_status == exchange.status
    delivered = played.delivered()
    if record.status == "completed":
        assert played.parts[-1].proves is not False, "a success nobody proved"
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


def check_error(played: Played) -> None:
    exchange = played.exchange
    assert exchange.status >= 400
    assert exchange.header_out(b"content-type") == b"application/json"
    assert json.loads(exchange.body_out)["error"]
    assert b"html" not in exchange.body_out


def check_stream(played: Played) -> None:
    exchange, record, body = played.exchange, played.record, played.exchange.body_out
    strict = played.front not in played.behind
    number = len(played.sent) - 1
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


def read(played: Played, body: bytes, *, strict: bool) -> bool:
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
