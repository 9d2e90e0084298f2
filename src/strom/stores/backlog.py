"""Records that are taken in and not written yet, by trace id."""

from __future__ import annotations

import msgspec

from strom.core.record import CallRecord
from strom.stores.rows import decode


class Begun(msgspec.Struct, omit_defaults=True):
    """What is known of a call when it begins: a part of its record, in the same names."""

    trace_id: str
    started_at: float
    protocol_in: str = ""
    model_requested: str | None = None
    policy_id: str | None = None
    key_name: str | None = None
    streamed: bool = False
    client: str | None = None
    peer: str | None = None


class Backlog:
    """`begun`: encoded, since a running call goes on to change its record. `settled`: the record and its encoding."""

    __slots__ = ("begun", "settled")

    def __init__(self) -> None:
        self.begun: dict[str, bytes] = {}
        self.settled: dict[str, tuple[CallRecord, bytes]] = {}

    def __len__(self) -> int:
        return len(self.begun) + len(self.settled)

    def records(self) -> list[CallRecord]:
        """Settled ones first: of a call that is there twice the first one counts."""
        return [*(record for record, _ in self.settled.values()), *map(decode, self.begun.values())]


def without_overflow(older: Backlog, newer: Backlog, capacity: int) -> tuple[Backlog, list[str]]:
    """Both as one, the older ones first as far as there is room, and the trace ids of what found none."""
    for trace_id, encoded in newer.begun.items():
        older.begun[trace_id] = encoded
    for trace_id, entry in newer.settled.items():
        older.begun.pop(trace_id, None)
        older.settled[trace_id] = entry
    dropped: list[str] = []
    for entries in (older.begun, older.settled):
        while len(entries) > capacity:
            dropped.append(entries.popitem()[0])
    return older, dropped
