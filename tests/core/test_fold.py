"""A whole reply is a folded stream."""

from __future__ import annotations

import pytest

from strom.core.errors import IncompleteStream, ProviderError
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
from strom.core.fold import Fold, fold, unfold
from strom.core.messages import (
    ImagePart,
    Json,
    OpaquePart,
    RefusalPart,
    Reply,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from strom.core.order import OrderChecker
from strom.core.usage import Usage

PARTS = (
    ThinkingPart("hm", signature="sig", origin="anthropic", item_id="i1"),
    ThinkingPart(encrypted="data", origin="anthropic", item_id="i2"),
    TextPart("so"),
    RefusalPart("no"),
    ToolCallPart("c", "f", "{}", namespace="box", item_id="i3"),
    ToolCallPart("d", "sh", "ls", custom=True),
    ToolCallPart("e", "now", ""),
    OpaquePart("anthropic", "server_tool_use", Json('{"a":1}')),
    TextPart(""),
    RefusalPart(""),
    ThinkingPart(""),
)
REPLY = Reply("id", "m", 5, PARTS, "stop_sequence", "END", "stop", True, Usage(9, 3), ("left out",))


def test_unfolding_and_folding_gives_the_reply_back() -> None:
    events = list(unfold(REPLY))
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    assert fold(events) == REPLY


def test_pieces_are_joined() -> None:
    events: list[Event] = [
        Started("id", "m", 5),
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "a"),
        ThinkingDelta(0, "b"),
        SignatureDelta(0, "x"),
        SignatureDelta(0, "y"),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        TextDelta(1, "c"),
        CitationDelta(1, "anthropic", '{"n":1}'),
        CitationDelta(1, "anthropic", '{"n":2}'),
        TextDelta(1, "d"),
        BlockEnded(1),
        BlockStarted(2, Block("tool_call", "c", "f")),
        ArgumentsDelta(2, "{"),
        ArgumentsDelta(2, "}"),
        BlockEnded(2),
        UsageReported(Usage(9)),
        Noted("n"),
        UsageReported(Usage(output_tokens=3)),
        Finished("stop"),
        Completed(),
    ]
    reply = fold(events)
    assert reply.parts == (
        ThinkingPart("ab", signature="xy", origin="anthropic"),
        TextPart("cd", citations=Json('[{"n":1},{"n":2}]')),
        ToolCallPart("c", "f", "{}"),
    )
    assert (reply.usage, reply.notes) == (Usage(9, 3), ("n",))


def test_an_unproven_stream_is_no_reply() -> None:
    begun: list[Event] = [Started(), BlockStarted(0, Block("text")), TextDelta(0, "half")]
    folded = Fold()
    folded.feed(begun)
    with pytest.raises(IncompleteStream):
        folded.reply()
    assert folded.parts() == (TextPart("half"),)
    error = ProviderError("broken")
    folded.feed([Failed(error)])
    with pytest.raises(ProviderError) as caught:
        folded.reply()
    assert caught.value is error
    with pytest.raises(IncompleteStream):
        fold([Started(), Completed()])


def test_a_reply_cannot_hold_everything() -> None:
    with pytest.raises(ValueError, match="ImagePart"):
        list(unfold(Reply("", "", 0, (ImagePart(),), "stop")))
