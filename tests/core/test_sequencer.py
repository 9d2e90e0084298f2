"""Overlapping tool calls become sequential; all else passes at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Finished,
    Started,
    TextDelta,
)
from strom.core.order import OrderChecker
from strom.core.sequencer import Sequencer


def call(index: int) -> BlockStarted:
    return BlockStarted(index, Block("tool_call", f"id{index}", "f"))


def test_sequential_events_pass_as_the_same_list() -> None:
    sequencer = Sequencer()
    reads: list[list[Event]] = [
        [Started(), BlockStarted(0, Block("text")), TextDelta(0, "a")],
        [BlockEnded(0), call(1), ArgumentsDelta(1, "{}"), BlockEnded(1), call(2)],
        [ArgumentsDelta(2, "{}"), BlockEnded(2), Finished("tool_calls"), Completed()],
    ]
    for events in reads:
        assert sequencer.feed(events) is events


def test_a_later_call_waits_for_the_earlier_one_and_then_streams_live() -> None:
    sequencer = Sequencer()
    assert sequencer.feed([call(0), call(1)]) == [call(0)]
    assert sequencer.feed([ArgumentsDelta(1, "b1")]) == []
    assert sequencer.feed([ArgumentsDelta(0, "a1")]) == [ArgumentsDelta(0, "a1")]
    assert sequencer.feed([BlockEnded(0)]) == [BlockEnded(0), call(1), ArgumentsDelta(1, "b1")]
    assert sequencer.feed([ArgumentsDelta(1, "b2")]) == [ArgumentsDelta(1, "b2")]
    assert sequencer.feed([BlockEnded(1), Finished("tool_calls")]) == [BlockEnded(1), Finished("tool_calls")]


def test_ended_calls_that_waited_come_out_together() -> None:
    sequencer = Sequencer()
    sequencer.feed([call(0), call(1), BlockEnded(1), call(2), BlockEnded(2), call(3)])
    assert sequencer.feed([BlockEnded(0)]) == [
        BlockEnded(0),
        call(1),
        BlockEnded(1),
        call(2),
        BlockEnded(2),
        call(3),
    ]
    assert sequencer.feed([BlockEnded(3), call(4)]) == [BlockEnded(3), call(4)]


def test_a_call_after_an_overlap_streams_live_again() -> None:
    sequencer = Sequencer()
    mixed: list[Event] = [call(0), call(1), BlockEnded(0), BlockEnded(1), call(2)]
    assert sequencer.feed(mixed) == [call(0), BlockEnded(0), call(1), BlockEnded(1), call(2)]
    assert sequencer.feed([call(3), ArgumentsDelta(2, "a")]) == [ArgumentsDelta(2, "a")]


def test_other_events_are_not_held_while_a_call_waits() -> None:
    sequencer = Sequencer()
    sequencer.feed([call(0), call(1)])
    assert sequencer.feed([Finished("length")]) == [Finished("length")]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_any_interleaving_keeps_every_fragment_and_the_order(steps: list[tuple[int, bool]]) -> None:
    events: list[Event] = [Started()]
    opened: list[int] = []
    ended: set[int] = set()
    for slot, ends in steps:
        if slot >= len(opened):
            opened.append(len(opened))
            events.append(call(opened[-1]))
        elif slot not in ended:
            events.append(BlockEnded(slot) if ends else ArgumentsDelta(slot, "x"))
            ended |= {slot} if ends else set()
    events += [BlockEnded(index) for index in opened if index not in ended]
    events += [Finished("tool_calls"), Completed()]
    sequencer, checker = Sequencer(), OrderChecker()
    out = [found for event in events for found in sequencer.feed([event])]
    live: set[int] = set()
    for found in out:
        checker.feed(found)
        if isinstance(found, BlockStarted):
            assert not live
            live.add(found.index)
        elif isinstance(found, BlockEnded):
            live.remove(found.index)
    assert sorted(map(repr, out)) == sorted(map(repr, events))
    assert Sequencer().feed(events) is events or len(Sequencer().feed(events)) == len(events)
