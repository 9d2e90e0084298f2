"""Records of calls as the gateway makes them, for what observes them."""

from __future__ import annotations

from typing import Any

import msgspec

from strom.core.record import Attempt, CallRecord, RecordUsage, Timing


def good(**changes: Any) -> CallRecord:
    """A streamed call that went well."""
    record = CallRecord(
        "0123456789abcdef0123456789abcdef",
        "completed",
        1000.0,
        1002.0,
        protocol_in="openai-chat",
        protocol_out="openai-chat",
        model_requested="qwen3",
        model_used="qwen3-8b-4bit",
        provider="mlx",
        endpoint_id="mlx-1",
        key_name="ci",
        usage=RecordUsage(12, 34, 5, 6),
        timing=Timing(120.0, "text", 1110.0, None, 100.0),
        attempts=[Attempt("mlx-1")],
        complete=True,
        http_status=200,
        streamed=True,
        bytes_out=1234,
        deltas=34,
    )
    return msgspec.structs.replace(record, **changes)
