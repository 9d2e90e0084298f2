"""What a store of call records offers, and the parts of it that do not depend on where they lie.

Order of every list: newest first, by `started_at`, then by trace id. A cursor names the last record seen, so that a page
stays right while new calls arrive.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from strom.core.errors import BadRequest
from strom.core.record import CallRecord

if TYPE_CHECKING:
    from strom.stores.usage import UsagePage, UsageQuery

EQUAL = {
    "status": "status",
    "provider": "provider",
    "key_name": "key_name",
    "protocol_in": "protocol_in",
    "endpoint": "endpoint_id",
    "region": "inference_region",
    "policy": "policy_id",
    "fault": "fault",
}
"""Filters that demand one value, and the field of the record (and column of the table) they look at."""
_TIMES = ("started_at", "ended_at")
_CURSOR = msgspec.json.Decoder(tuple[float, str])


class RecordFilter(msgspec.Struct, frozen=True):
    """None: anything. `model` is the name asked for or the one that answered. Times in Unix seconds."""

    status: str | None = None
    model: str | None = None
    provider: str | None = None
    key_name: str | None = None
    protocol_in: str | None = None
    endpoint: str | None = None
    region: str | None = None
    policy: str | None = None
    fault: str | None = None
    since: float | None = None
    """Started then or later."""
    until: float | None = None
    """Started before."""
    ended_since: float | None = None
    """Ended then or later: what a follower asks for."""

    def matches(self, record: CallRecord) -> bool:
        for name, field in EQUAL.items():
            wanted = getattr(self, name)
            if wanted is not None and getattr(record, field) != wanted:
                return False
        if self.model is not None and self.model not in (record.model_requested, record.model_used):
            return False
        return self._in_time(record)

    def _in_time(self, record: CallRecord) -> bool:
        if self.ended_since is not None and (record.ended_at is None or record.ended_at < self.ended_since):
            return False
        return (self.since is None or record.started_at >= self.since) and (
            self.until is None or record.started_at < self.until
        )


class Page(msgspec.Struct, frozen=True):
    records: list[CallRecord]
    next_cursor: str | None = None
    """None: there is nothing older."""


class RecordReader(Protocol):
    """Reading. Raises StromError only."""

    def get(self, trace_id: str) -> CallRecord | None: ...

    def list(self, wanted: RecordFilter = ..., limit: int = ..., cursor: str | None = ...) -> Page:
        """Raises BadRequest when the cursor is none of ours."""
        ...

    def usage(self, query: UsageQuery = ...) -> UsagePage:
        """Raises BadRequest when the cursor is none of ours."""
        ...

    def close(self) -> None: ...


class RecordStore(RecordReader, Protocol):
    """Writing and reading. `begin` and `put` return at once and raise nothing; what they took is seen by the next read.

    `begin` makes a call visible (status "started") before it settles, and from then on no death of the process hides it;
    `put` takes its final record, which nobody changes after that. `flush` waits until everything taken so far is kept and
    says whether that came about.
    """

    @property
    def lost(self) -> int:
        """Records that could not be kept."""
        ...

    def begin(self, record: CallRecord) -> None: ...

    def put(self, record: CallRecord) -> None: ...

    def flush(self, timeout_s: float = ...) -> bool: ...


def position(record: CallRecord) -> tuple[float, str]:
    """Where a record stands in the order of lists."""
    return (record.started_at, record.trace_id)


def encode_cursor(record: CallRecord) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position(record))).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[float, str]:
    """Raises BadRequest."""
    try:
        return _CURSOR.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):  # DecodeError and ValidationError are ValueErrors
        raise BadRequest("cursor: not a cursor of this list; take next_cursor as it came", param="cursor") from None


def page_of(records: Iterable[CallRecord], wanted: RecordFilter, limit: int, cursor: str | None) -> Page:
    """A page out of records in memory, in any order."""
    before = decode_cursor(cursor) if cursor else None
    found = [record for record in records if wanted.matches(record) and (before is None or position(record) < before)]
    found.sort(key=position, reverse=True)
    return Page(found[:limit], encode_cursor(found[limit - 1]) if len(found) > limit else None)


def started(record: CallRecord) -> CallRecord:
    """What is kept of a call at its beginning: a copy, since the call goes on to change its record."""
    return CallRecord(
        record.trace_id,
        started_at=record.started_at,
        protocol_in=record.protocol_in,
        model_requested=record.model_requested,
        policy_id=record.policy_id,
        key_name=record.key_name,
        streamed=record.streamed,
        client=record.client,
        peer=record.peer,
    )


def rfc3339(seconds: float) -> str:
    """UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_fields(record: CallRecord) -> dict[str, Any]:
    """A record as `/platform/v1/traces` shows it: those of the routing block among them, times as RFC 3339."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    for name in _TIMES:
        if fields[name] is not None:
            fields[name] = rfc3339(fields[name])
    return fields


def record_json(record: CallRecord) -> bytes:
    return msgspec.json.encode(record_fields(record))
