"""Cuts a recorded answer behind the real gateway, and judges what the client and the record were told.

What an upstream has proven is read here from its bytes alone, without the codecs. Source: streams.md section 1.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, NoReturn

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
_MOST_TOLD = 2000
_BATCH = 16
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
    return stream_signals(front, body)


def stream_signals(front: str, body: bytes) -> Signals:
    successes = errors = 0
    for line in body.split(b"\n"):
        success, error = _signal(front, line)
        successes += success
        errors += error
    return Signals(successes, errors)


class Listener:
    """What a client has been told so far: lines that are whole are read once."""

    def __init__(self, front: str, exchange: MemoryExchange) -> None:
        self._front = front
        self._exchange = exchange
        self._heard = 0
        self._rest = b""
        self._told = Signals(0, 0)
        self.size_bytes = 0

    def listen(self) -> None:
        new = b"".join(self._exchange.writes[self._heard :])
        self._heard = len(self._exchange.writes)
        self.size_bytes += len(new)
        lines, end, self._rest = (self._rest + new).rpartition(b"\n")
        if end:
            more = stream_signals(self._front, lines)
            self._told = Signals(self._told.successes + more.successes, self._told.errors + more.errors)

    def forget(self) -> None:
        """Listen, and keep no copy of what was heard: a copy of the process is the smaller."""
        self.listen()
        if self._exchange.status == 200:
            self._exchange.writes.clear()
            self._heard = 0

    def signals(self, *, streamed: bool) -> Signals:
        if self._exchange.status != 200 or not streamed:
            return signals_of(self._front, self._exchange, streamed=streamed)
        last = stream_signals(self._front, self._rest)
        return Signals(self._told.successes + last.successes, self._told.errors + last.errors)


class _Calling(NamedTuple):
    front: str
    how: How
    exchange: MemoryExchange
    upstream: MemoryUpstream
    client: Listener


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
        self.status = int(recording.index["status"])
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
        exchange, upstream = self._begin(cut.front)
        self._play(upstream, cut)
        rig.clock.advance(_LINGER_S)
        broken = self._judge(cut, Listener(cut.front, exchange), exchange, upstream, rig.records.all)
        if rig.clock.armed:
            broken.append("a timer is left")
        rig.client.sent.clear()
        rig.records.all.clear()
        return broken

    def cut_everywhere(self, offsets: range, done: Callable[[int], None]) -> Iterator[str]:
        """Each of `offsets` (rising by one), for every front and both ways; what is broken, the first promises of each batch
        of offsets. `done` is told how many offsets are done.

        The answer is read once, by all calls of a batch side by side; then a copy of the process (fork) reads on to each
        one's own offset and ends it there. So the work is linear in the length, where `cut` begins anew for each offset.
        For a process of one thread.
        """
        calls = [[self._call(front, how) for front in FRONTS for how in HOWS] for _ in range(_BATCH)]
        everyone = [call for those in calls for call in those]
        for _, _, _, upstream, _ in everyone:
            upstream.response(self.status, SSE if self.streamed else JSON)
            if offsets.start:
                upstream.read(self.body[: offsets.start])
        told, tell = os.pipe()
        try:
            for first in range(offsets.start, offsets.stop, _BATCH):
                batch = range(first, min(first + _BATCH, offsets.stop))
                child = os.fork()
                if not child:
                    self._end_all(calls, batch, tell)
                _, status = os.waitpid(child, 0)
                done(len(batch))
                if status:
                    yield os.read(told, _MOST_TOLD).decode()
                for _, _, _, upstream, client in everyone:
                    upstream.read(self.body[first : first + _BATCH])
                    if self.streamed:
                        client.forget()
        finally:
            os.close(told)
            os.close(tell)

    def _end_all(self, calls: list[list[_Calling]], batch: range, tell: int) -> NoReturn:
        """In the copy: what is broken goes to `tell`."""
        gc.disable()
        broken: list[str] = []
        try:
            for offset, those in zip(batch, calls, strict=False):
                broken += self._end_at(offset, those, batch.start)
            for those in calls[len(batch) :]:
                for call in those:
                    call.exchange.disconnect()
            self._rig.clock.advance(_LINGER_S)
            if self._rig.clock.armed:
                broken.append("a timer is left")
        except BaseException as error:  # noqa: BLE001 - nothing of the copy may go on in the caller's code
            broken.append(repr(error))
        if broken:
            os.write(tell, "; ".join(broken).encode()[:_MOST_TOLD])
        os._exit(bool(broken))

    def _end_at(self, offset: int, calls: list[_Calling], read: int) -> Iterator[str]:
        """`read`: how far the answer has been read."""
        for _, how, _, upstream, _ in calls:
            if offset > read:
                upstream.read(self.body[read:offset])
            _end(upstream, how)
        self._rig.clock.advance(_LINGER_S / _BATCH)
        records = {record.trace_id.encode(): record for record in self._rig.records.all}
        for front, how, exchange, upstream, client in calls:
            own = records.get(exchange.header_out(b"x-strom-trace-id") or b"")
            found = self._judge(Cut(front, offset, how), client, exchange, upstream, [own] if own is not None else [])
            yield from (f"{front} {how} at {offset}: {what}" for what in found)

    def _begin(self, front: str) -> tuple[MemoryExchange, MemoryUpstream]:
        exchange = MemoryExchange("POST", PATHS[front], body=self._requests[front])
        self._rig.gateway.handle_call(exchange, CODECS[front])
        return exchange, self._rig.upstream()

    def _call(self, front: str, how: How) -> _Calling:
        exchange, upstream = self._begin(front)
        return _Calling(front, how, exchange, upstream, Listener(front, exchange))

    def _judge(
        self,
        cut: Cut,
        client: Listener,
        exchange: MemoryExchange,
        upstream: MemoryUpstream,
        records: list[CallRecord],
    ) -> list[str]:
        client.listen()
        signals = client.signals(streamed=self.streamed)
        size_bytes = client.size_bytes
        broken = [*self._at_the_client(cut, exchange, signals), *_in_the_record(exchange, size_bytes, signals, records)]
        if not upstream.over or upstream.paused:
            broken.append("the upstream is still open")
        return broken

    def _play(self, upstream: MemoryUpstream, cut: Cut) -> None:
        """Two reads, divided anywhere, and the end."""
        upstream.response(self.status, SSE if self.streamed else JSON)
        middle = cut.offset * 31 % 101 * cut.offset // 101
        for part in (self.body[:middle], self.body[middle : cut.offset]):
            if part:
                upstream.read(part)
        _end(upstream, cut.how)

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


def _end(upstream: MemoryUpstream, how: How) -> None:
    if how == "close":
        upstream.end()
    else:
        upstream.fail(_LOST)


def _in_the_record(
    exchange: MemoryExchange, size_bytes: int, signals: Signals, records: list[CallRecord]
) -> Iterator[str]:
    if len(records) != 1:
        yield f"{len(records)} records"
        return
    record, success = records[0], bool(signals.successes)
    if record.status not in (("completed",) if success else ("incomplete", "failed")) or record.complete is not success:
        yield f"the record says {record.status}, complete {record.complete}"
    if (record.error is None) is not success:
        yield f"the record's error is {record.error}"
    if (record.http_status, record.bytes_out) != (exchange.status, size_bytes):
        yield f"the record says status {record.http_status} and {record.bytes_out} bytes"
