"""The access log: one line for each call, at its end, off the hot path.

    observe ─▶ queue ─▶ a thread that words and writes what has gathered, every 0.2 s and at the end

A line says who called what, how it went and how long it took: never a message's text, and no secret (the writer it is given
redacts, as every log does). Lost at a kill: at most the last 0.2 s. What the writer cannot take in time is dropped and counted.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

import msgspec

from strom.core.record import CallRecord
from strom.telemetry import families as f
from strom.telemetry.sampler import Reading

PERIOD_S = 0.2
MOST_WAITING = 50_000
LONGEST_TEXT = 200
Format = Literal["console", "json"]


class AccessLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a line, in their order; what is unknown is left out."""

    time: str
    level: str
    logger: str
    message: str
    trace_id: str
    key: str | None
    protocol: str
    model: str | None
    endpoint: str | None
    status: str
    http_status: int | None
    streamed: bool
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    bytes_out: int = 0
    attempts: int = 0
    fault: str | None = None
    error: str | None = None


class AccessLog:
    """`write` takes whole lines, in the thread of the log."""

    def __init__(self, write: Callable[[str], None], form: Format) -> None:
        self._write = write
        self._word = json_line if form == "json" else console_line
        self._waiting: deque[CallRecord] = deque()
        self._lost = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strom-access-log", daemon=True)
        self._thread.start()

    def observe(self, record: CallRecord) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(record)
        else:
            self._lost += 1

    def close(self) -> None:
        """Everything observed so far is written when this returns."""
        self._over.set()
        self._thread.join(5)

    def readings(self) -> Iterable[Reading]:
        yield f.LOG_LOST, (), float(self._lost)

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        """A record is not changed once it is final, so another thread may read it."""
        lines = [self._word(self._waiting.popleft()) for _ in range(len(self._waiting))]
        if not lines:
            return
        try:
            self._write("\n".join(lines) + "\n")
        except (OSError, ValueError):  # nobody reads it any more, or it is closed
            self._lost += len(lines)


def json_line(record: CallRecord) -> str:
    return msgspec.json.encode(access_line(record)).decode()


def console_line(record: CallRecord) -> str:
    """2026-03-01T12:00:00.123Z INFO    strom.access: 200 completed qwen3 at mlx-1, key ci, 12+34 tokens, 0.123 s + 1.234 s"""
    line = access_line(record)
    said = [f"{line.http_status or '-'} {line.status} {_quoted(line.model or '-')} at {line.endpoint or '-'}"]
    if line.key is not None:
        said.append(f"key {_quoted(line.key)}")
    if line.output_tokens is not None:
        said.append(f"{line.input_tokens if line.input_tokens is not None else '?'}+{line.output_tokens} tokens")
    if line.duration_ms is not None:
        first = "" if line.ttft_ms is None else f"first token {line.ttft_ms / 1000:.3f} s, "
        said.append(f"{first}all {line.duration_ms / 1000:.3f} s")
    said.append(f"{line.bytes_out} bytes")
    if line.error is not None:
        said.append(f"fault {line.fault}: {_quoted(line.error)}")
    return f"{line.time} {line.level.upper():<7} {line.logger}: {', '.join(said)} ({line.trace_id})"


def access_line(record: CallRecord) -> AccessLine:
    usage, timing = record.usage, record.timing
    ended = record.ended_at if record.ended_at is not None else record.started_at
    return AccessLine(  # by position: names would cost as much as the rest of the line
        instant(ended),
        "info",
        "strom.access",
        "call",
        record.trace_id,
        record.key_name,
        record.protocol_in,
        record.model_requested[:LONGEST_TEXT] if record.model_requested is not None else None,
        record.endpoint_id,
        record.status,
        record.http_status,
        record.streamed,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        timing.time_to_first_token_ms,
        timing.request_duration_ms,
        record.bytes_out,
        len(record.attempts),
        record.fault,
        record.error.code[:LONGEST_TEXT] if record.error is not None else None,
    )


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def instant(seconds: float) -> str:
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


def _quoted(text: str) -> str:
    """A client's word cannot end the line or hide in it."""
    text = text[:LONGEST_TEXT]
    return text if text.isprintable() and " " not in text else json.dumps(text)
