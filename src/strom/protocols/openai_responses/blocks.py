"""Puts the blocks of a Responses stream into canonical order.

Upstream's items may overlap in any way; canonical text and thinking blocks may not. Each item writes what happens to
it as steps into its `Lane`. A step becomes an event at once, with two exceptions that keep the order legal: a text
that is interrupted by another item ends its block, and begins a new one if it goes on; and what comes in the middle
of an open tool call, other calls excepted, waits until the call ends, for a call cannot be cut in two. Invariants:
indices rise by one in order of starting; nothing is lost; a lane waits only while a call is open.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Event,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from strom.protocols.openai_responses.schema import NAME


def _citation(index: int, data: str) -> Event:
    return CitationDelta(index, NAME, data)


def _signature(index: int, data: str) -> Event:
    return SignatureDelta(index, data, NAME)


_DELTAS: dict[str, Callable[[int, str], Event]] = {
    "text": TextDelta,
    "thinking": ThinkingDelta,
    "arguments": ArgumentsDelta,
    "citation": _citation,
    "signature": _signature,
}
Step = tuple[str, str, Block | None]
"""What happens (start, end, or a key of `_DELTAS`), its text, and the block of a start."""


class Lane:
    """The blocks of one item, one after the other. `shown`: a block of it is open in the events, under `index`.

    It does not know its board, which knows its lanes: a circle of the two would stay in memory until a collection.
    """

    __slots__ = ("block", "held", "index", "is_call", "shown")

    def __init__(self, *, is_call: bool) -> None:
        self.block: Block | None = None
        self.is_call = is_call
        self.shown = False
        self.index = -1
        self.held: list[Step] = []


class Board:
    """All lanes of one answer. `out` collects the events and is taken away by the caller."""

    __slots__ = ("_calls", "_next_index", "_releasing", "_single", "_waiting", "out")

    def __init__(self) -> None:
        self.out: list[Event] = []
        self._next_index = 0
        self._single: Lane | None = None  # the lane, no call, whose block is open
        self._calls: list[Lane] = []  # the calls that are open
        self._waiting: list[Lane] = []
        self._releasing = False

    def start(self, lane: Lane, block: Block) -> None:
        self._step(lane, ("start", "", block))

    def add(self, lane: Lane, kind: str, text: str) -> None:
        if lane.shown and not lane.held:
            self.out.append(_DELTAS[kind](lane.index, text))
        else:
            self._step(lane, (kind, text, None))

    def end(self, lane: Lane, invalid: str = "") -> None:
        """Ends the open block, if there is one."""
        self._step(lane, ("end", invalid, None))

    def _step(self, lane: Lane, step: Step) -> None:
        if lane.held or not (lane.shown or self._admits(lane)):
            if not lane.held:
                self._waiting.append(lane)
            lane.held.append(step)
        else:
            self._apply(lane, step)

    def _admits(self, lane: Lane) -> bool:
        """Whether a lane without an open block may write now."""
        return not self._waiting and (lane.is_call or not self._calls)

    def _apply(self, lane: Lane, step: Step) -> None:
        kind, text, block = step
        if kind == "end":
            self._close(lane, text)
            return
        if block is not None:
            lane.block = block
        if not lane.shown and lane.block is not None:
            self._open(lane, lane.block)
        if block is None:
            self.out.append(_DELTAS[kind](lane.index, text))

    def _open(self, lane: Lane, block: Block) -> None:
        if self._single is not None:
            self._close(self._single, "")
        if lane.is_call:
            self._calls.append(lane)
        else:
            self._single = lane
        lane.shown, lane.index = True, self._next_index
        self._next_index += 1
        self.out.append(BlockStarted(lane.index, block))

    def _close(self, lane: Lane, invalid: str) -> None:
        if not lane.shown:
            return
        lane.shown = False
        self.out.append(BlockEnded(lane.index, invalid))
        if lane.is_call:
            self._calls.remove(lane)
            self._release()
        else:
            self._single = None

    def _release(self) -> None:
        """A call has ended: let out what waited, in order, as far as it may."""
        if self._releasing:
            return
        self._releasing = True
        while self._waiting and (self._waiting[0].is_call or not self._calls):
            lane = self._waiting.pop(0)
            held, lane.held = lane.held, []
            for step in held:
                self._apply(lane, step)
        self._releasing = False
