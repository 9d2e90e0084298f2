"""The routing block of a reply, made from the record of its call. Shape: product.md section 3."""

from __future__ import annotations

import msgspec

from strom.core.record import Attempt, CallRecord, Cost, Timing
from strom.wire.splice import append_member


class RoutingBlock(msgspec.Struct):
    """Fields in the contract's order. What is unknown is null."""

    trace_id: str
    model_used: str | None
    model_version: str | None
    provider: str | None
    endpoint_id: str | None
    inference_region: str | None
    sovereignty_class: str | None
    policy_id: str | None
    retention: str | None
    cost_estimate: Cost | None
    usage_source: str
    timing: Timing
    attempts: list[Attempt]
    dropped: list[str]
    complete: bool


_ENCODE = msgspec.json.Encoder().encode


def encode_block(record: CallRecord) -> bytes:
    """The block as JSON. An assumed finish reason and a continuation say so."""
    block = RoutingBlock(
        record.trace_id,
        record.model_used,
        record.model_version,
        record.provider,
        record.endpoint_id,
        record.inference_region,
        record.sovereignty_class,
        record.policy_id,
        record.retention,
        record.cost_estimate,
        record.usage_source,
        record.timing,
        record.attempts,
        record.dropped,
        record.complete,
    )
    encoded = _ENCODE(block)
    if record.continued:
        encoded = append_member(encoded, "continued", b"true")
    if record.finish_reason_source is not None:
        return append_member(encoded, "finish_reason_source", _ENCODE(record.finish_reason_source))
    return encoded
