"""The clock of one request, to the letter of streams.md section 7.

Starts at the first dispatch and runs through retries, their delays and callbacks. The first token-bearing event settles
time and kind; later ones change nothing. Times are given to it.
"""

from __future__ import annotations

from strom.client.evidence import FirstTokenKind, StreamMetrics
from strom.core.events import ArgumentsDelta, Event, TextDelta, ThinkingDelta

_KINDS: dict[type, FirstTokenKind] = {
    ThinkingDelta: "thinking",
    TextDelta: "content",
    ArgumentsDelta: "tool_call",
}


class StreamClock:
    """`ended` freezes the duration; without it the duration is unknown until `metrics(now)` is asked."""

    __slots__ = ("dispatched_at", "ended_at", "first_at", "first_kind")

    def __init__(self) -> None:
        self.dispatched_at: float | None = None
        self.first_at: float | None = None
        self.first_kind: FirstTokenKind | None = None
        self.ended_at: float | None = None

    def dispatch(self, at: float) -> None:
        if self.dispatched_at is None:
            self.dispatched_at = at

    def observe(self, at: float, events: list[Event]) -> None:
        """Decoders give the events of a frame in the order thinking, content, arguments: the first one has precedence."""
        if self.first_kind is not None:
            return
        for event in events:
            kind = _KINDS.get(type(event))
            if kind is not None:
                self.first_at, self.first_kind = at, kind
                return

    def end(self, at: float) -> None:
        if self.ended_at is None:
            self.ended_at = at

    def metrics(self) -> StreamMetrics:
        start = self.dispatched_at
        if start is None:
            return StreamMetrics()
        return StreamMetrics(_ms(start, self.first_at), self.first_kind, _ms(start, self.ended_at))


def _ms(start: float, at: float | None) -> float | None:
    return None if at is None else max(0.0, (at - start) * 1000.0)
