"""Whether a failed attempt is repeated: one pure decision, and the policy that it follows.

Never after a token (`interrupted`), never for what would fail again (`ineligible`: 400, 401, 403, 404, error frames, frames
that are none), never sooner than `Retry-After` says (beyond the ceiling: `delay_ceiling`, it is not shortened). A local
server may still be working on a request that reached it: without an admission callback it is asked again only when the
connection provably failed (`admission_required`). Source: streams.md section 9; source-features.md, rows M-41 to M-48.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Literal

import msgspec

from strom.client.evidence import RecoveryOutcome
from strom.client.signals import AdmissionRequest
from strom.core.errors import BadRequest, IncompleteStream, StromError, TimedOut
from strom.transport.types import Headers

Admission = Literal["allow", "reject"] | bool | None
Transition = Literal[
    "attempt_failed", "admission_pending", "delay_scheduled", "retry_started", "fallback_started", "attempt_succeeded",
]  # fmt: skip


class RetryEvent(msgspec.Struct, frozen=True):
    """What an observer is told. No payload, no header, no text of an error: only its stable code."""

    transition: Transition
    correlation_id: str
    provider: str
    attempt: int
    code: str = ""
    delay_s: float | None = None


class Retry(msgspec.Struct, frozen=True):
    """How often and when a request that gave no token yet is sent again, with identical bytes.

    `attempts` counts the first one. `budget_s` runs from the first failure; `deadline` is a time on the model's clock.
    `admission` is asked before every repetition: "allow" or True, "reject" or False, None for undecided.

    >>> Retry(attempts=3, base_delay_s=0.2, delay_ceiling_s=10).attempts
    3
    """

    attempts: int = 3
    base_delay_s: float = 0.5
    delay_ceiling_s: float = 30.0
    statuses: frozenset[int] = frozenset((408, 429, 500, 502, 503, 504, 529))
    budget_s: float | None = None
    deadline: float | None = None
    admission: Callable[[AdmissionRequest], Admission | Awaitable[Admission]] | None = None
    observer: Callable[[RetryEvent], None] | None = None
    jitter: Callable[[], float] = random.random
    """Gives numbers from 0 to 1."""
    wall: Callable[[], float] = time.time
    """Unix seconds, for a Retry-After that is a date."""

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.attempts < 1:
            raise BadRequest("Retry: attempts counts the first one, so it is at least 1.", param="retry")
        if min(self.base_delay_s, self.delay_ceiling_s, self.budget_s or 0.0) < 0:
            raise BadRequest("Retry: delays and the budget cannot be negative.", param="retry")


class Failure(msgspec.Struct, frozen=True):
    """What is known of a failed attempt. `refused`: no stream had begun. `local`: the upstream is a server on one machine."""

    error: StromError
    status: int | None
    headers: Headers
    refused: bool
    unsent: bool
    token_seen: bool
    local: bool
    attempt: int
    first_failed_at: float
    at: float


class Again(msgspec.Struct, frozen=True):
    """`ask`: only if the admission callback allows it."""

    delay_s: float
    ask: bool


class Stop(msgspec.Struct, frozen=True):
    outcome: RecoveryOutcome


def judge(policy: Retry, failure: Failure) -> Again | Stop:
    if failure.token_seen:
        return Stop("interrupted")
    if not _eligible(policy, failure):
        return Stop("ineligible")
    if failure.attempt >= policy.attempts:
        return Stop("attempts_exhausted")
    delay = _delay(policy, failure)
    if delay is None:
        return Stop("delay_ceiling")
    if _too_late(policy, failure, failure.at + delay):
        return Stop("budget_exhausted")
    if policy.admission is None and failure.local and not failure.unsent:
        return Stop("admission_required")
    return Again(delay, ask=policy.admission is not None)


def settle(answer: Admission) -> RecoveryOutcome | None:
    """None: go on; else how recovery ended."""
    match answer:
        case "allow" | True:
            return None
        case "reject" | False:
            return "admission_rejected"
        case _:  # None, and whatever else a callback may give: nothing is sent without a clear yes
            return "admission_undecided"


def _eligible(policy: Retry, failure: Failure) -> bool:
    if failure.status is not None and not 200 <= failure.status < 300:
        return failure.status in policy.statuses and failure.error.retryable
    if isinstance(failure.error, TimedOut | IncompleteStream):
        return True
    return failure.refused and failure.error.retryable


def _delay(policy: Retry, failure: Failure) -> float | None:
    """Full jitter, not below what the upstream asked for; None when that is above the ceiling."""
    floor = retry_after_s(failure, policy.wall)
    if floor > policy.delay_ceiling_s:
        return None
    most = min(policy.delay_ceiling_s, policy.base_delay_s * 2.0 ** (failure.attempt - 1))
    return max(floor, policy.jitter() * most)


def retry_after_s(failure: Failure, wall: Callable[[], float]) -> float:
    """Seconds the upstream asks to wait (`retry-after-ms`, `retry-after` as seconds or HTTP date), or 0."""
    if failure.error.retry_after_s is not None:
        return max(0.0, failure.error.retry_after_s)
    found = {name: value.decode("latin-1").strip() for name, value in failure.headers}
    if (milliseconds := _number(found.get(b"retry-after-ms", ""))) is not None:
        return milliseconds / 1000.0
    text = found.get(b"retry-after", "")
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall())
    except ValueError:
        return 0.0


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() and len(text) < 16 else None


def _too_late(policy: Retry, failure: Failure, start: float) -> bool:
    past_budget = policy.budget_s is not None and start > failure.first_failed_at + policy.budget_s
    return past_budget or (policy.deadline is not None and start > policy.deadline)
