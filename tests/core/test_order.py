"""The order checker accepts legal streams and nothing else."""

from __future__ import annotations

import pytest

from strom.core.errors import ProviderError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
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
from strom.core.order import OrderBroken, OrderChecker
from strom.core.usage import Usage

TEXT = Block("text")
CALL = Block("tool_call", "c", "f")
END: list[Event] = [Finished("stop"), Completed()]


def check(*events: Event) -> OrderChecker:
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    return checker


def test_legal_streams() -> None:
    thinking: list[Event] = [
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "t"),
        SignatureDelta(0, "s"),
        BlockEnded(0),
    ]
    text: list[Event] = [BlockStarted(1, TEXT), TextDelta(1, "a"), CitationDelta(1, "x", "{}"), BlockEnded(1)]
    calls: list[Event] = [
        BlockStarted(2, CALL),
        BlockStarted(3, CALL),
        ArgumentsDelta(3, "{}"),
        ArgumentsDelta(2, "{}"),
        BlockEnded(3),
        BlockEnded(2),
    ]
    usage: list[Event] = [UsageReported(Usage(1)), Noted("x"), Finished("length")]
    assert check(Started(), *thinking, *text, *calls, *usage, *END).ended
    assert check(Noted("x"), Failed(ProviderError("x"))).ended
    assert check(Started(), BlockStarted(0, TEXT), Failed(ProviderError("x"))).ended


@pytest.mark.parametrize(
    "events",
    [
        [Started(), Started()],
        [BlockStarted(0, TEXT)],
        [Started(), BlockStarted(1, TEXT)],
        [Started(), BlockStarted(0, TEXT), BlockStarted(1, TEXT)],
        [Started(), BlockStarted(0, CALL), BlockStarted(1, TEXT)],
        [Started(), BlockStarted(0, TEXT), BlockStarted(1, CALL)],
        [Started(), BlockStarted(0, Block("tool_call", "", "f"))],
        [Started(), BlockStarted(0, Block("tool_call", "c", ""))],
        [Started(), BlockEnded(0)],
        [Started(), TextDelta(0, "x")],
        [Started(), BlockStarted(0, TEXT), TextDelta(0, "")],
        [Started(), BlockStarted(0, TEXT), ThinkingDelta(0, "x")],
        [Started(), BlockStarted(0, TEXT), ArgumentsDelta(0, "x")],
        [Started(), BlockStarted(0, TEXT), BlockEnded(0), TextDelta(0, "x")],
        [Finished("stop")],
        [Started(), Finished("")],
        [Started(), Completed()],
        [Started(), BlockStarted(0, TEXT), Finished("stop"), Completed()],
        [Started(), *END, Noted("x")],
        [Started(), *END, Completed()],
        [Failed(ProviderError("x")), Failed(ProviderError("x"))],
    ],
)
def test_broken_streams(events: list[Event]) -> None:
    check(*events[:-1])
    with pytest.raises(OrderBroken):
        check(*events)
