"""Call records as rows: the whole record as JSON, and beside it the columns that queries look at.

What is only shown costs no column, so a new field of `CallRecord` needs no migration; a record written before a field existed
reads as the field's default. Amounts stand as exact decimals: the shortest text of a float of up to 15 digits is the decimal it
was made from (gateway/accounts.py makes them so).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from strom.core.record import CallRecord

COLUMNS = (
    "trace_id", "started_at", "ended_at", "status", "protocol_in", "model_requested", "model_used", "provider",
    "endpoint_id", "inference_region", "policy_id", "key_name", "fault", "input_tokens", "output_tokens",
    "cached_tokens", "reasoning_tokens", "cost_amount", "cost_currency", "record",
)  # fmt: skip
_LIST = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))
_NEWER = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])
_INSERT = f"INSERT INTO calls ({_LIST}) VALUES ({_MARKS}) ON CONFLICT (trace_id) DO "  # noqa: S608 (our own names)
PUT = f"{_INSERT}UPDATE SET {_NEWER}"
"""The final record, whatever stood there."""
INSERT_NEW = f"{_INSERT}NOTHING"
SETTLE = f"{_INSERT}UPDATE SET {_NEWER} WHERE calls.status = 'started'"
"""For records of dead processes: what is settled stays."""

_FEW_DIGITS = 1000
"""Below it twelve places are no more than the 15 digits that a float holds exactly; amounts have no more places."""
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(CallRecord).decode


def to_row(record: CallRecord, encoded: bytes) -> tuple[Any, ...]:
    """Values in the order of COLUMNS. `encoded`: the record as JSON."""
    usage, cost = record.usage, record.cost_estimate
    return (
        record.trace_id,
        record.started_at,
        record.ended_at,
        record.status,
        record.protocol_in,
        record.model_requested,
        record.model_used,
        record.provider,
        record.endpoint_id,
        record.inference_region,
        record.policy_id,
        record.key_name,
        record.fault,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        None if cost is None else exact(cost.amount),
        None if cost is None else cost.currency,
        encoded.decode(),
    )


def exact(amount: float) -> str:
    """The decimal that a float stands for, without an exponent."""
    if 0 <= amount < _FEW_DIGITS:
        return f"{amount:.12f}".rstrip("0").rstrip(".")
    return format(Decimal(repr(amount)), "f")


def without_nul(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """PostgreSQL's text holds no NUL; what a client put into a name must not cost its record. (JSON escapes it.)"""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row)
