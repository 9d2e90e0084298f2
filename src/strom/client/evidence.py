"""What is known of a stream when it ends, well or not. None means: not reported, never 0 and never guessed.

Product reference: product.md section 6; timing: streams.md section 7.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from strom.core.record import Cost
from strom.core.usage import Usage

FirstTokenKind = Literal["thinking", "content", "tool_call"]
RecoveryOutcome = Literal[
    "succeeded",
    "interrupted",
    "ineligible",
    "attempts_exhausted",
    "admission_required",
    "admission_rejected",
    "admission_undecided",
    "delay_ceiling",
    "budget_exhausted",
    "cancelled",
]


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of the model. `raw` is the arguments as they came; `invalid` says why they are no JSON object, or ""."""

    id: str
    name: str
    arguments: dict[str, Any]
    raw: str = ""
    invalid: str = ""


class StreamMetrics(msgspec.Struct, frozen=True):
    """Milliseconds on the client's monotonic clock, from the first dispatch of the last request.

    No token came: the first two are None. Never dispatched: all are None.
    """

    time_to_first_token_ms: float | None = None
    first_token_kind: FirstTokenKind | None = None
    request_duration_ms: float | None = None


class AttemptReport(msgspec.Struct, frozen=True):
    """One try at one upstream. `outcome`: ok, or the code of the error. `ms`: from its dispatch to its end."""

    provider: str
    model: str
    outcome: str
    ms: float | None = None
    status: int | None = None


class RecoveryReport(msgspec.Struct, frozen=True):
    """How recovery ended. None stands in its place where no `Retry` was given."""

    outcome: RecoveryOutcome
    attempts: int


class CompletionMetadata(msgspec.Struct, frozen=True):
    """The evidence of a stream: on its terminal event, on a reply, and on the exception of a failure.

    `usage` adds up all requests of a run with tools; `timing` is that of the last one. `text` and `thinking` are what came,
    `tool_calls` the calls of the last turn. `metadata`: what only this provider reports, under its own names and in its own
    units. `continued`: this answer goes on from an earlier, incomplete one. `dropped`: what could not be sent or read.
    `resumed`: how often a broken connection was resumed; None without `resume=True`, and where the backend keeps no streams.
    """

    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    usage: Usage | None = None
    provider_model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    metadata: dict[str, Any] = {}
    timing: StreamMetrics = StreamMetrics()
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    requests: int = 0
    attempts: tuple[AttemptReport, ...] = ()
    recovery: RecoveryReport | None = None
    cost: Cost | None = None
    dropped: tuple[str, ...] = ()
    correlation_id: str = ""
    continued: bool = False
    resumed: int | None = None

    @property
    def time_to_first_token_ms(self) -> float | None:
        return self.timing.time_to_first_token_ms

    @property
    def first_token_kind(self) -> FirstTokenKind | None:
        return self.timing.first_token_kind

    @property
    def request_duration_ms(self) -> float | None:
        return self.timing.request_duration_ms


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Field by field; a count that one of both did not report is the other's."""
    if first is None or second is None:
        return first or second
    return Usage(
        _add(first.input_tokens, second.input_tokens),
        _add(first.output_tokens, second.output_tokens),
        _add(first.cached_tokens, second.cached_tokens),
        _add(first.cache_write_tokens, second.cache_write_tokens),
        _add(first.reasoning_tokens, second.reasoning_tokens),
        second.durations or first.durations,
    )


def _add(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return first + second
