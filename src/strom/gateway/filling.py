"""A call's record brought up to date from what the call has seen. Nothing here changes the call's course."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.core.errors import Cancelled, RateLimited, StromError
from strom.core.evidence import Evidence
from strom.core.record import Timing
from strom.gateway.accounts import (
    UsageEstimate,
    demands_usage,
    describe_attempt,
    describe_endpoint,
    fill_record,
    milliseconds,
    status_of,
)
from strom.gateway.echoes import without_echoes

if TYPE_CHECKING:
    from strom.gateway.call import Call


def bring_up_to_date(call: Call, error: StromError | None, now: float) -> None:
    """`now` on the call's clock; once the block is written, that moment."""
    attempt, record = call.attempt, call.record
    evidence = attempt.evidence if attempt is not None else Evidence()
    record.status = status_of(evidence, error, dispatched=call.dispatched_at is not None)
    fill_record(record, _estimate(call, evidence, error), evidence, error)
    if isinstance(error, RateLimited) and attempt is not None and attempt.dispatched:
        record.fault = "upstream"  # its limits are on us; a caller's own refuse before anything is sent
    if record.error is not None:
        record.error.message = without_echoes(record.error.message, call.request)
    record.dropped = [*call.dropped, *evidence.notes, *evidence.lost_to(call.codec.name)]
    record.attempts = list(call.past)
    if attempt is not None:
        describe_endpoint(record, attempt, call.plan)
        if not attempt.waits:  # nothing was tried there yet
            record.attempts.append(describe_attempt(attempt, error, now, call.plan))
    if call.dispatched_at is None or attempt is None:
        return
    if call.first_token_at is None and evidence.first_token_kind is not None:
        call.first_token_at = now  # the first token came in the read that is being passed on
    record.timing = Timing(
        time_to_first_token_ms=milliseconds(call.dispatched_at, call.first_token_at),
        first_token_kind=evidence.first_token_kind,
        request_duration_ms=milliseconds(call.dispatched_at, now),
        upstream_response_ms=milliseconds(attempt.started_at, attempt.response_at),
    )


def _estimate(call: Call, evidence: Evidence, error: StromError | None) -> UsageEstimate:
    """A call that failed before its first token used nothing that anybody knows of, whatever the protocol demands. One that its
    client left while the backend worked has at least had its prompt read."""
    if isinstance(error, Cancelled) and call.attempt is not None and call.attempt.dispatched:
        demanded = True
    elif error is not None:
        in_band = call.committed and call.codec.name == "openai-responses"  # its error event has a usage object
        demanded = evidence.deltas > 0 or (in_band and call.dispatched_at is not None)
    else:
        demanded = demands_usage(call.codec.name, call.request)
    return UsageEstimate(call.input_estimate, demanded=demanded)
