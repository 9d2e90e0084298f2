"""The record of one call: what the routing block shows, what the store keeps, what `/platform/v1/traces` answers.

Field names are the contract's (product.md section 3). None means unknown: never 0, never guessed. No message text and no
secret ever stands in a record.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from strom.core.errors import Fault

Status = Literal["started", "completed", "incomplete", "failed", "cancelled", "rejected"]
"""started: not settled yet; the rest: streams.md section 1."""


class Attempt(msgspec.Struct):
    """One try at one endpoint. `outcome`: ok | failed | timeout | refused | unreachable | cancelled."""

    endpoint_id: str
    region: str | None = None
    outcome: str = "ok"
    reason: str | None = None
    """Stable code and words, safe to show: no secrets, no bodies."""
    ms: float | None = None
    sovereignty_class: str | None = None
    policy_id: str | None = None
    """What bound the call when this endpoint was chosen; None: nothing did."""


class Cost(msgspec.Struct):
    amount: float
    currency: str
    input_amount: float
    output_amount: float


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds on a monotonic clock, from the first dispatch (streams.md section 7)."""

    time_to_first_token_ms: float | None = None
    first_token_kind: str | None = None
    request_duration_ms: float | None = None
    upstream_connect_ms: float | None = None
    """None when a pooled connection served, or the call was never dispatched."""
    upstream_response_ms: float | None = None
    """From dispatch to the upstream's response head."""


class UsageParts(msgspec.Struct, frozen=True):
    """The same counts as disjoint parts, the way they are priced: the first three add up to the whole input."""

    input: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    output: int | None = None


class RecordUsage(msgspec.Struct, frozen=True):
    """`input_tokens` is the whole prompt, `cached_tokens` a part of it; `reasoning_tokens` a part of `output_tokens`."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    parts: UsageParts = UsageParts()


class RecordError(msgspec.Struct):
    code: str
    message: str


class CallRecord(msgspec.Struct):
    """`usage` and `timing` are replaced, never changed: a call under way shares the empty ones with all others."""

    trace_id: str
    status: Status = "started"
    started_at: float = 0.0
    """Unix seconds; shown as RFC 3339."""
    ended_at: float | None = None
    protocol_in: str = ""
    protocol_out: str | None = None
    model_requested: str | None = None
    """None: the request was refused before it was read, or named none."""
    model_used: str | None = None
    model_version: str | None = None
    provider: str | None = None
    endpoint_id: str | None = None
    inference_region: str | None = None
    sovereignty_class: str | None = None
    policy_id: str | None = None
    retention: str | None = None
    key_name: str | None = None
    cost_estimate: Cost | None = None
    usage: RecordUsage = RecordUsage()
    usage_source: str = "none"
    timing: Timing = Timing()
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    dropped: list[str] = msgspec.field(default_factory=list)
    finish_reason: str | None = None
    finish_reason_source: str | None = None
    """"assumed" when the provider never tells one."""
    complete: bool = False
    continued: bool = False
    """An endpoint failed after output, and another went on."""
    fault: Fault | None = None
    error: RecordError | None = None
    http_status: int | None = None
    streamed: bool = False
    bytes_out: int = 0
    deltas: int = 0
    client: str | None = None
    """The program that called, by the first word of its user-agent: `OpenAI/Python`."""
    peer: str | None = None
    """The caller's address; only where `[store] keep_peer` says so."""
