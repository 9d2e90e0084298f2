"""From what a call has shown to its record: status, usage, cost, attempts. Pure bookkeeping."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from strom.core.errors import (
    AuthError,
    Cancelled,
    IncompleteCompletion,
    IncompleteStream,
    Overloaded,
    RateLimited,
    StromError,
    TimedOut,
    Unreachable,
)
from strom.core.evidence import Evidence
from strom.core.messages import Request
from strom.core.record import Attempt, CallRecord, Cost, RecordError, RecordUsage, Status, UsageParts
from strom.core.usage import Usage, UsageSource, estimate_tokens
from strom.gateway.plan import Plan
from strom.upstreams.pricing import TRILLION, Billed, amounts, holds
from strom.upstreams.settings import Price, Prices

if TYPE_CHECKING:
    from strom.gateway.attempt import UpstreamAttempt

_OUTCOMES: tuple[tuple[type[StromError], str], ...] = (
    (Cancelled, "cancelled"),
    (TimedOut, "timeout"),
    (Unreachable, "unreachable"),
    (RateLimited, "refused"),
    (Overloaded, "refused"),
)


class UsageEstimate(msgspec.Struct, frozen=True):
    """`demanded`: a number must stand where the upstream told none (streams.md section 6)."""

    input_tokens: int
    demanded: bool


def demands_usage(protocol: str, request: Request) -> bool:
    """Whether numbers stand in every complete answer to this request. Ollama leaves them out where they are unknown."""
    match protocol:
        case "openai-chat":
            return request.include_usage or not request.stream
        case "ollama":
            return False
        case _:
            return True


def milliseconds(since: float, until: float | None) -> float | None:
    """To a thousandth. A whole number is rounded first, which takes a tenth of the time of `round` to a place."""
    return None if until is None else round((until - since) * 1_000_000) / 1000


def status_of(evidence: Evidence, error: StromError | None, *, dispatched: bool) -> Status:
    """streams.md section 1."""
    match error:
        case None:
            return "completed" if evidence.complete else "started"
        case Cancelled():
            return "cancelled"
        case IncompleteStream() | IncompleteCompletion():
            return "incomplete"
        case _:
            return "failed" if dispatched else "rejected"


def describe_attempt(attempt: UpstreamAttempt, error: StromError | None, now: float, plan: Plan) -> Attempt:
    upstream = attempt.endpoint.upstream
    described = Attempt(attempt.endpoint.id, upstream.region)
    described.sovereignty_class, described.policy_id = upstream.sovereignty_class, plan.policy_id
    described.ms = milliseconds(attempt.started_at, now)
    if error is not None:
        described.outcome = outcome_of(error)
        described.reason = error.code
    return described


def outcome_of(error: StromError) -> str:
    client_side = error.fault == "client" and not isinstance(error, Cancelled | RateLimited | AuthError)
    return next((word for kind, word in _OUTCOMES if isinstance(error, kind)), "refused" if client_side else "failed")


def describe_endpoint(record: CallRecord, attempt: UpstreamAttempt, plan: Plan) -> None:
    """Where the call went. `model_used` is the upstream's own word once it said one."""
    endpoint, upstream = attempt.endpoint, attempt.endpoint.upstream
    record.protocol_out = upstream.protocol
    record.provider = upstream.name
    record.endpoint_id = endpoint.id
    record.inference_region = upstream.region
    record.sovereignty_class = upstream.sovereignty_class
    record.retention = upstream.retention
    record.policy_id = plan.policy_id
    if record.model_used is None:
        record.model_used = plan.model_for(endpoint)
    guessed = record.status == "failed" and not record.deltas and record.usage_source == "estimated"
    # Where its protocol demands numbers, nobody knows of any work.
    record.cost_estimate = None if guessed else cost(record.usage, endpoint.price, record.started_at)


def fill_record(record: CallRecord, estimate: UsageEstimate, evidence: Evidence, error: StromError | None) -> None:
    record.model_used = evidence.model or None
    record.finish_reason = evidence.finish_reason
    record.finish_reason_source = "assumed" if evidence.finish_assumed else None
    record.complete = evidence.complete and error is None
    record.deltas = evidence.deltas
    record.usage, record.usage_source = settled_usage(evidence, estimate, ended_well=error is None)
    if error is not None:
        record.fault = error.fault
        record.error = RecordError(error.code, error.message)


def settled_usage(evidence: Evidence, estimate: UsageEstimate, *, ended_well: bool) -> tuple[RecordUsage, UsageSource]:
    """Reported counts, and estimates for those that are demanded. A count reported before an early end is only a floor."""
    usage = evidence.usage if evidence.usage is not None else Usage()
    reported = usage.input_tokens is not None and usage.output_tokens is not None
    if reported and ended_well:
        return record_usage(usage), "estimated" if evidence.continued else "reported"
    if not estimate.demanded:
        return record_usage(usage), "none" if evidence.usage is None else "reported"
    given = usage.input_tokens if usage.input_tokens is not None else estimate.input_tokens
    produced = max(usage.output_tokens or 0, estimate_tokens(evidence.output_characters))
    return record_usage(usage.updated(Usage(given, produced))), "estimated"


def record_usage(usage: Usage) -> RecordUsage:
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    plain = None if usage.input_tokens is None else max(0, usage.input_tokens - (cached or 0) - (written or 0))
    parts = UsageParts(plain, cached, written, usage.output_tokens)
    return RecordUsage(usage.input_tokens, usage.output_tokens, cached, usage.reasoning_tokens, parts)


def cost(usage: RecordUsage, prices: Prices | None, at: float = 0.0) -> Cost | None:
    """None when a count, or the price on the day of `at` (Unix seconds), is unknown.

    Counted in trillionths; a float of so few digits gives back the decimal it came from (stores/rows.py keeps that).
    """
    price = price_on(prices, at)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.parts.cache_write or 0, usage.input_tokens - cached)
    reasoning = min(usage.reasoning_tokens or 0, usage.output_tokens)
    plain = usage.input_tokens - cached - written
    billed = Billed(plain, cached, written, usage.output_tokens - reasoning, reasoning)
    paid_in, paid_out, unit = amounts(price, billed)
    if unit != TRILLION:
        paid_in, paid_out = round(Fraction(paid_in * TRILLION, unit)), round(Fraction(paid_out * TRILLION, unit))
    return Cost((paid_in + paid_out) / TRILLION, price.currency, paid_in / TRILLION, paid_out / TRILLION)


def price_on(prices: Prices | None, at: float) -> Price | None:
    """The first that holds on that day (UTC)."""
    if not isinstance(prices, tuple):
        if prices is None or (prices.valid_from is None and prices.valid_until is None):
            return prices
        prices = (prices,)
    day = datetime.fromtimestamp(at, UTC).date()
    return next((price for price in prices if holds(price, day)), None)
