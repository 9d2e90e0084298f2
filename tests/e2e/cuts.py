"""Cuts a recorded answer behind the real gateway, and judges what the client and the record were told.

What an upstream has proven is read here from its bytes alone, without the codecs. Source: streams.md section 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from strom.core.record import CallRecord
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.types import TransportFailure
from tests.gateway.rig import JSON, PATHS, SSE, Rig
from tests.grammar import anthropic, ollama, openai_chat, openai_responses
from tests.recordings import Recording

How = Literal["close", "reset"]
HOWS: tuple[How, ...] = ("close", "reset")
BEHIND = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses"}
"""The recordings' names of protocols, and ours."""
FRONTS = ("openai-chat", "anthropic", "openai-responses", "ollama")
_MESSAGES = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "m", "messages": _MESSAGES},
    "anthropic": {"model": "m", "messages": _MESSAGES, "max_tokens": 64},
    "openai-responses": {"model": "m", "input": "hi", "store": False},
    "ollama": {"model": "m", "messages": _MESSAGES},
}
_LOST = TransportFailure("cut", "connection lost inside the body", sent=True)
_LINGER_S = 3.0
"""Longer than the gateway lets a proven stream go on."""


class Cut(NamedTuple):
    """One answer ended at `offset`."""

    front: str
    offset: int
    how: How


class Proof(NamedTuple):
    """From which offsets on an answer is proven: `maybe` where only the sentinel's line ends are missing, `surely` then."""

    maybe: int
    surely: int


def proof_of(behind: str, body: bytes) -> Proof | None:
    """None: these bytes never prove an end."""
    reason = False
    for start, end in _events(body):
        data = b"".join(line[5:].strip() for line in body[start:end].split(b"\n") if line.startswith(b"data:"))
        if behind == "openai-chat" and data == b"[DONE]":
            return Proof(start + len(body[start:end].rstrip()), end) if reason else None
        value = _parse(data)
        if value.get("error"):
            return None
        if behind == "openai-chat":
            reason = reason or any(choice.get("finish_reason") for choice in value.get("choices") or [])
        elif behind == "anthropic":
            reason = reason or bool(value.get("type") == "message_delta" and value["delta"].get("stop_reason"))
            if value.get("type") == "message_stop":
                return Proof(end, end) if reason else None
        elif value.get("type") in ("response.completed", "response.incomplete"):
            return Proof(end, end)
    return None


def _events(body: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of every closed event. The recordings know LF and CRLF."""
    start = 0
    while start < len(body):
        ends = [at + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if (at := body.find(mark, start)) >= 0]
        if not ends:
            return
        yield start, min(ends)
        start = min(ends)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class Signals(NamedTuple):
    """How often a client was told that the answer is whole, and that it is not."""

    successes: int
    errors: int


def signals_of(front: str, exchange: MemoryExchange, *, streamed: bool) -> Signals:
    body = exchange.body_out
    if exchange.status != 200 or not streamed:
        failed = "error" in json.loads(body) if exchange.status != 200 else bool(json.loads(body).get("error"))
        return Signals(int(exchange.status == 200 and not failed), int(failed))
    successes = errors = 0
    for line in body.split(b"\n"):
        success, error = _signal(front, line)
        successes += success
        errors += error
    return Signals(successes, errors)


def _signal(front: str, line: bytes) -> tuple[bool, bool]:
    match front:
        case "openai-chat":
            return line == b"data: [DONE]", b'"error"' in line and bool(_parse(line[5:]).get("error"))
        case "anthropic":
            return line == b"event: message_stop", line == b"event: error"
        case "openai-responses":
            whole = line in (b"event: response.completed", b"event: response.incomplete")
            return whole, line == b"event: response.failed"
        case _:
            if b'"done"' not in line and b'"error"' not in line:
                return False, False
            value = _parse(line)
            return value.get("done") is True, bool(value.get("error"))


def _grammar(front: str, body: bytes, *, strict: bool) -> Iterator[str]:
    """What the independent checkers of order find wrong with a stream that has ended."""
    try:
        match front:
            case "openai-chat":
                yield from openai_chat.read(body, strict=strict).broken
            case "anthropic":
                anthropic.read(body, strict=strict)
            case "openai-responses":
                openai_responses.read(body, strict=strict)
            case _:
                ollama.read(body, strict=strict)
    except (AssertionError, ValueError, KeyError) as error:
        yield f"{type(error).__name__}: {error}"


class Cutter:
    """One recording behind one gateway, for any number of cuts. `grammar`: the order of what goes out is judged too."""

    def __init__(self, recording: Recording, *, grammar: bool = False) -> None:
        self.behind = BEHIND[recording.index["protocol"]]
        self.body = recording.response
        self.streamed = bool(recording.index["streamed"])
        if self.streamed:
            self.proof = proof_of(self.behind, self.body)
        else:
            proven = recording.index["ends_with_proof"]
            self.proof = Proof(len(self.body.rstrip()), len(self.body)) if proven else None
        self._grammar = grammar
        self._rig = Rig(self.behind)
        self._requests = {
            front: json.dumps({**request, "stream": self.streamed}).encode() for front, request in REQUESTS.items()
        }

    def cut(self, cut: Cut) -> list[str]:
        """The broken promises, empty when all are kept."""
        rig = self._rig
        exchange = MemoryExchange("POST", PATHS[cut.front], body=self._requests[cut.front])
        rig.gateway.handle_call(exchange, CODECS[cut.front])
        upstream = rig.upstream()
        self._play(upstream, cut)
        rig.clock.advance(_LINGER_S)
        signals = signals_of(cut.front, exchange, streamed=self.streamed)
        broken = [*self._at_the_client(cut, exchange, signals), *_in_the_record(exchange, signals, rig.records.all)]
        if not upstream.over or upstream.paused:
            broken.append("the upstream is still open")
        if rig.clock.armed:
            broken.append("a timer is left")
        rig.client.sent.clear()
        rig.records.all.clear()
        return broken

    def _play(self, upstream: MemoryUpstream, cut: Cut) -> None:
        """Two reads, divided anywhere, and the end."""
        upstream.response(200, SSE if self.streamed else JSON)
        middle = cut.offset * 31 % 101 * cut.offset // 101
        for part in (self.body[:middle], self.body[middle : cut.offset]):
            if part:
                upstream.read(part)
        if cut.how == "close":
            upstream.end()
        else:
            upstream.fail(_LOST)

    def _at_the_client(self, cut: Cut, exchange: MemoryExchange, signals: Signals) -> Iterator[str]:
        if exchange.state != "finished":
            yield f"the client's body is {exchange.state}"
        if signals.successes + signals.errors != 1:
            yield f"{signals.successes} successes and {signals.errors} errors are told"
        if signals.successes and (self.proof is None or cut.offset < self.proof.maybe):
            yield "a success without proof"
        # A whole body that is lost has not ended by its own framing, however much of it came.
        provable = self.proof is not None and (self.streamed or cut.how == "close")
        if signals.errors and provable and self.proof is not None and cut.offset >= self.proof.surely:
            yield "an error after the proof"
        if self._grammar and self.streamed and exchange.status == 200:
            yield from _grammar(cut.front, exchange.body_out, strict=cut.front != self.behind)


def _in_the_record(exchange: MemoryExchange, signals: Signals, records: list[CallRecord]) -> Iterator[str]:
    if len(records) != 1:
        yield f"{len(records)} records"
        return
    record, success = records[0], bool(signals.successes)
    if record.status not in (("completed",) if success else ("incomplete", "failed")) or record.complete is not success:
        yield f"the record says {record.status}, complete {record.complete}"
    if (record.error is None) is not success:
        yield f"the record's error is {record.error}"
    if (record.http_status, record.bytes_out) != (exchange.status, len(exchange.body_out)):
        yield f"the record says status {record.http_status} and {record.bytes_out} bytes"
