"""The legal order of a canonical stream, as a checker. Used by tests and by nothing on the hot path.

Its rules are those in the head of events.py, written down once more and independently of every codec.
"""

from __future__ import annotations

from strom.core.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)

FITS: dict[type, tuple[BlockKind, ...]] = {
    TextDelta: ("text", "refusal"),
    ThinkingDelta: ("thinking",),
    SignatureDelta: ("thinking",),
    ArgumentsDelta: ("tool_call",),
    CitationDelta: ("text",),
}


class OrderBroken(AssertionError):
    """A stream that breaks the canonical order: a defect of whoever made it."""


class OrderChecker:
    """Raises OrderBroken at the first event that may not come where it comes."""

    def __init__(self) -> None:
        self.started = False
        self.finished = False
        self.ended = False
        self.next_index = 0
        self.open: dict[int, BlockKind] = {}

    def feed(self, event: Event) -> None:
        self._require(not self.ended, event, "after the terminal event")
        match event:
            case Started():
                self._require(not self.started, event, "second Started")
                self.started = True
            case BlockStarted():
                self._start_block(event)
            case BlockEnded(index):
                self._require(index in self.open, event, "end of a block that is not open")
                del self.open[index]
            case UsageReported() | Noted():
                pass
            case Finished(reason):
                self._require(self.started and bool(reason), event, "Finished before Started or without a reason")
                self.finished = True
            case Completed():
                self._require(self.finished and not self.open, event, "Completed without Finished, or with open blocks")
                self.ended = True
            case Failed():
                self.ended = True
            case _:
                self._delta(event)

    def _start_block(self, event: BlockStarted) -> None:
        self._require(self.started, event, "block before Started")
        self._require(event.index == self.next_index, event, f"index is not {self.next_index}")
        overlap_allowed = event.block.kind == "tool_call" and all(kind == "tool_call" for kind in self.open.values())
        self._require(not self.open or overlap_allowed, event, "block overlaps another")
        if event.block.kind == "tool_call":
            self._require(bool(event.block.call_id and event.block.name), event, "call without id or name")
        self.open[event.index] = event.block.kind
        self.next_index += 1

    def _delta(self, event: Event) -> None:
        index = getattr(event, "index", -1)
        self._require(index in self.open, event, "delta for a block that is not open")
        self._require(self.open[index] in FITS[type(event)], event, f"does not fit a {self.open[index]} block")
        self._require(bool(getattr(event, "text", "x")), event, "empty delta")

    def _require(self, holds: bool, event: Event, rule: str) -> None:  # noqa: FBT001
        if not holds:
            raise OrderBroken(f"{rule}: {event!r}")
