"""Canonical events → Ollama lines, judged by a grammar that does not know the codec."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import ModelNotFound, ProviderError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage
from strom.protocols.codec import ReplyContext
from strom.protocols.ollama import CODEC, GENERATE_CODEC
from tests.grammar.ollama import Seen, read
from tests.patience import assert_linear
from tests.protocols.ollama.lines import BLOCK, context, decode

FORMS = [("chat", CODEC), ("generate", GENERATE_CODEC)]
THINKING: list[Event] = [
    Started("id", "upstream", 1),
    BlockStarted(0, Block("thinking")),
    ThinkingDelta(0, "Hm"),
    ThinkingDelta(0, "m"),
    SignatureDelta(0, "s"),
    BlockEnded(0),
]
TEXT: list[Event] = [
    BlockStarted(1, Block("text")),
    TextDelta(1, "Hé"),
    TextDelta(1, 'l"lo'),
    CitationDelta(1, "x", "{}"),
    BlockEnded(1),
]
END: list[Event] = [UsageReported(Usage(9)), UsageReported(Usage(None, 3)), Finished("stop"), Completed()]


def encode(events: list[Event], form: str = "chat", reply: ReplyContext | None = None) -> Seen:
    """All at once and one by one must come out the same."""
    codec = dict(FORMS)[form]
    single = codec.encoder(reply or context())
    body = b"".join(single.encode([event]) for event in events)
    assert codec.encoder(reply or context()).encode(events) == body
    return read(body, form=form)


def calls(*blocks: tuple[Block, list[str]]) -> list[Event]:
    out: list[Event] = [Started()]
    for index, (block, pieces) in enumerate(blocks):
        out.append(BlockStarted(index, block))
        out += [ArgumentsDelta(index, piece) for piece in pieces]
        out.append(BlockEnded(index))
    return out


@pytest.mark.parametrize("form", ["chat", "generate"])
def test_a_line_per_delta_and_one_done_line(form: str) -> None:
    seen = encode([*THINKING, Noted("x"), *TEXT, *END], form)
    assert (seen.thinking, seen.text) == ("Hmm", 'Hél"lo')
    assert seen.kinds == ["thinking", "thinking", "text", "text"]
    assert seen.finish == "stop"
    assert (seen.last["prompt_eval_count"], seen.last["eval_count"]) == (9, 3)
    assert list(seen.last)[-1] == "strom"
    assert seen.last["strom"] == json.loads(BLOCK)
    assert seen.last["model"] == "asked-for"


def test_nothing_is_held_back_but_the_end() -> None:
    encoder = CODEC.encoder(context())
    assert encoder.encode([Started()]) == b""
    assert encoder.encode([BlockStarted(0, Block("text"))]) == b""
    assert read(encoder.encode([TextDelta(0, "a")]), complete=False).text == "a"
    assert encoder.encode([BlockEnded(0)]) == b""
    assert encoder.encode([Finished("stop")]) == b""
    assert read(encoder.encode([Completed()])).finish == "stop"


def test_a_second_attempt_changes_nothing() -> None:
    assert encode([Started("a"), Started("b"), *END]).text == ""


@pytest.mark.parametrize("form", ["chat", "generate"])
def test_calls_go_out_whole_with_an_object(form: str) -> None:
    block = Block("tool_call", "call_1", "f")
    seen = encode([*calls((block, ['{"a"', ":1}"]), (Block("tool_call", "call_2", "g"), [])), *END], form)
    assert seen.calls == [("call_1", "f", {"a": 1}), ("call_2", "g", {})]
    assert seen.kinds == ["call", "call"]
    assert seen.finish == "stop"


def test_a_call_leaves_when_it_ends() -> None:
    encoder = CODEC.encoder(context())
    events = calls((Block("tool_call", "c", "f"), ["{", "}"]))
    assert encoder.encode(events[:-1]) == b""
    assert read(encoder.encode(events[-1:]), complete=False).calls == [("c", "f", {})]


def test_interleaved_calls_leave_in_the_order_of_their_start() -> None:
    events: list[Event] = [
        Started(),
        BlockStarted(0, Block("tool_call", "a", "f")),
        BlockStarted(1, Block("tool_call", "b", "g")),
        ArgumentsDelta(1, '{"y":1}'),
        ArgumentsDelta(0, '{"x":1}'),
        BlockEnded(1),
        BlockEnded(0),
    ]
    assert [name for _, name, _ in encode([*events, *END]).calls] == ["f", "g"]


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (['{\n "a": 1.0,\r\n "b": "x\\ny"\n}'], {"a": 1.0, "b": "x\ny"}),
        (["  "], {}),
        (["[1]"], {"_raw": "[1]"}),
        (['{"a":'], {"_raw": '{"a":'}),
        (['{"a":NaN}'], {"_raw": '{"a":NaN}'}),
        (['{"a":"\ud800"}'], {"_raw": '{"a":"?"}'}),
        (['{"a":"\u2028\u0085"}'], {"a": "\u2028\u0085"}),
    ],
)
def test_arguments_become_an_object_on_one_line(pieces: list[str], arguments: dict[str, object]) -> None:
    assert encode([*calls((Block("tool_call", "c", "f"), pieces)), *END]).calls == [("c", "f", arguments)]


def test_raw_text_of_a_free_text_tool_becomes_its_input() -> None:
    seen = encode([*calls((Block("tool_call", "c", "f", custom=True), ["a\n", '"b"'])), *END])
    assert seen.calls == [("c", "f", {"input": 'a\n"b"'})]


@given(st.text())
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    text = "x" + text.encode("utf-8", "replace").decode()
    events: list[Event] = [Started(), BlockStarted(0, Block("text")), TextDelta(0, text), BlockEnded(0), *END]
    assert encode(events).text == text
    encoder = CODEC.encoder(context())
    decoded = decode([encoder.encode(events)])
    assert TextDelta(0, text) in decoded or text.lstrip(" \t\r\n").startswith("<think>")


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("context_full", "length"),
        ("tool_calls", "stop"),
        ("content_filter", "stop"),
        ("refusal", "stop"),
        ("pause", "stop"),
        ("eos_token", "eos_token"),
    ],
)
def test_reasons(reason: str, word: str) -> None:
    assert encode([Started(), Finished(reason), Completed()]).finish == word


def test_counts_and_durations_only_when_known() -> None:
    assert set(encode([Started(), Finished("stop"), Completed()]).last) == {
        "model", "created_at", "message", "done", "done_reason", "strom",
    }  # fmt: skip
    usage = Usage(None, 3, durations=(("total_duration", 5), ("eval_duration", 4), ("sample_duration", 1)))
    last = encode([Started(), UsageReported(usage), Finished("stop"), Completed()]).last
    assert list(last)[4:-1] == ["done_reason", "total_duration", "eval_count", "eval_duration", "sample_duration"]


def test_without_a_routing_block() -> None:
    assert "strom" not in encode([*THINKING, *END], reply=context(block=lambda: None)).last
    assert "llmeu" in encode([*THINKING, *END], reply=context(block_name="llmeu")).last


def test_reasoning_as_text_or_not_at_all() -> None:
    seen = encode([*THINKING, *TEXT, *END], reply=context(reasoning="text"))
    assert (seen.thinking, seen.text) == ("", '<think>\nHmm\n</think>\n\nHél"lo')
    seen = encode([*THINKING, *END], reply=context(reasoning="text"))
    assert seen.text == "<think>\nHmm\n</think>\n\n"
    call: list[Event] = [BlockStarted(1, Block("tool_call", "c", "f")), BlockEnded(1)]
    seen = encode([*THINKING, *call, *END], reply=context(reasoning="text"))
    assert (seen.text, seen.kinds[-1]) == ("<think>\nHmm\n</think>\n\n", "call")
    seen = encode([*THINKING, *TEXT, *END], reply=context(reasoning="drop"))
    assert (seen.thinking, seen.text) == ("", 'Hél"lo')


def test_refusals_are_text_and_opaque_blocks_nothing() -> None:
    events: list[Event] = [
        Started(),
        BlockStarted(0, Block("opaque", name="x", data="{}", protocol="p")),
        BlockEnded(0),
        BlockStarted(1, Block("refusal")),
        TextDelta(1, "No."),
        BlockEnded(1),
    ]
    assert encode([*events, *END]).text == "No."


@pytest.mark.parametrize(("form", "codec"), FORMS)
def test_heartbeat_and_error(form: str, codec: type[CODEC]) -> None:  # type: ignore[valid-type]
    encoder = codec.encoder(context())  # type: ignore[attr-defined]
    body = encoder.heartbeat() + encoder.encode([*THINKING]) + encoder.heartbeat()
    assert read(body, form=form, complete=False).idle == 2
    seen = read(body + encoder.fail(ProviderError("It broke.\u2028")), form=form)
    assert seen.error == "It broke.\u2028"
    assert read(encoder.fail(ModelNotFound("The model 'x' is not served here.")), form=form).error == (
        "model 'x' not found. The model 'x' is not served here."
    )


def test_the_instant_is_made_from_the_seconds_where_no_text_is_given() -> None:
    seen = encode([Started(), *END], reply=context(created_at="", created=0))
    assert seen.last["created_at"] == "1970-01-01T00:00:00Z"


def test_many_fragments_of_one_call_cost_linear_time() -> None:
    def make(count: int) -> Callable[[], None]:
        events = list(calls((Block("tool_call", "c", "f"), ['{"a":"', *("x" * count), '"}'])))

        def work() -> None:
            encoder = CODEC.encoder(context())
            for event in events:
                encoder.encode([event])

        return work

    assert_linear(make, 10_000)
