"""Straightens overlapping tool calls for protocols whose blocks come one after the other.

Upstreams may interleave the fragments of parallel calls. Everything of a later call is held back only while an earlier one
is open; then it follows at once, and from there on it streams live. All else passes untouched. Blocks leave in the order in
which they started, so their indices keep rising. Source: streams.md section 4.
"""

from __future__ import annotations

from strom.core.events import ArgumentsDelta, BlockEnded, BlockStarted, Event

_OF_A_BLOCK = (BlockStarted, ArgumentsDelta, BlockEnded)


class Sequencer:
    """Feed it events in canonical order. While nothing overlaps it returns the very list it was given."""

    __slots__ = ("_held", "_open")

    def __init__(self) -> None:
        self._open: int | None = None  # the tool block that streams live
        self._held: dict[int, list[Event]] = {}  # later blocks in the order of their start, with all they have so far

    def feed(self, events: list[Event]) -> list[Event]:
        if self._held:
            return self._straighten(events)
        for at, event in enumerate(events):
            kind = type(event)
            if kind is BlockEnded:
                self._open = None
            elif kind is BlockStarted and event.block.kind == "tool_call":  # type: ignore[union-attr]  # kind says which
                if self._open is not None:
                    return events[:at] + self._straighten(events[at:])
                self._open = event.index  # type: ignore[union-attr]
        return events

    def _straighten(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if not isinstance(event, _OF_A_BLOCK):
                out.append(event)
                continue
            if isinstance(event, BlockStarted) and event.block.kind == "tool_call" and self._open is None:
                self._open = event.index
            elif isinstance(event, BlockStarted) and event.block.kind == "tool_call":
                self._held[event.index] = []
            held = self._held.get(event.index)
            if held is not None:
                held.append(event)
                continue
            out.append(event)
            if isinstance(event, BlockEnded) and event.index == self._open:
                self._release(out)
        return out

    def _release(self, out: list[Event]) -> None:
        """The live block ended: let the next ones out, up to and including the first that is still open."""
        self._open = None
        while self._held and self._open is None:
            index = next(iter(self._held))
            events = self._held.pop(index)
            out.extend(events)
            if not isinstance(events[-1], BlockEnded):
                self._open = index
