"""What encoders and relays are told of a call."""

from __future__ import annotations

from strom.core.record import CallRecord
from strom.gateway.outgoing import Incoming
from strom.gateway.services import Services
from strom.protocols.codec import ReplyContext
from strom.stores.records import rfc3339

_DATED = frozenset(("ollama", "openai-responses"))


def make_context(services: Services, incoming: Incoming, record: CallRecord, input_estimate: int) -> ReplyContext:
    """Without a routing block: the call puts its own in."""
    request = incoming.request
    return ReplyContext(
        reply_id=record.trace_id,
        request_id=record.trace_id,
        model=request.model,
        created=int(record.started_at),
        created_at=rfc3339(record.started_at) if incoming.codec.name in _DATED else "",
        include_usage=request.include_usage,
        continuous_usage=request.continuous_usage,
        input_estimate=input_estimate,
        block_name=services.settings.block_name or "",
        reasoning=services.settings.reasoning,
        request=request,
    )
