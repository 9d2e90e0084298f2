"""Ollama lines → canonical events. No recordings of a real Ollama exist; see lines.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.core.errors import (
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    ModelNotFound,
    ProviderError,
    StromError,
)
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from strom.protocols.ollama import CODEC
from tests.patience import assert_linear
from tests.protocols.ollama.lines import STRICT, call, checked, decode, done, dump, line, merged, part

STREAM = [
    line(thinking="Hm", at="2026-01-05T10:00:01Z"),
    line(thinking="m. ", at="2026-01-05T10:00:01.5+02:00"),
    line("Größe: "),
    line('"x"\n\u2028'),
    line("ok"),
    line(tool_calls=[call("f", {"a": [1, {"b": None}]}), call("g", {}, id="call_g")]),
    done(),
]
USAGE = Usage(
    9,
    3,
    durations=(
        ("total_duration", 900),
        ("load_duration", 77),
        ("prompt_eval_duration", 5),
        ("eval_duration", 6),
    ),
)


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def error_of(events: list[Event]) -> StromError:
    assert isinstance(events[-1], Failed)
    return events[-1].error


def test_text_thinking_calls_usage_and_proof() -> None:
    events = merged(decode(STREAM))
    started = events[7]
    assert isinstance(started, BlockStarted)
    assert started.block.call_id.startswith("call_")
    assert events == [
        Started("", "qwen3", 1_767_607_201),
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "Hmm. "),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        TextDelta(1, 'Größe: "x"\n\u2028ok'),
        BlockEnded(1),
        BlockStarted(2, Block("tool_call", started.block.call_id, "f")),
        ArgumentsDelta(2, '{"a":[1,{"b":null}]}'),
        BlockEnded(2),
        BlockStarted(3, Block("tool_call", "call_g", "g")),
        ArgumentsDelta(3, "{}"),
        BlockEnded(3),
        UsageReported(USAGE),
        Finished("tool_calls", raw="stop"),
        Completed(),
    ]


@pytest.mark.parametrize("size", [1, 2, 5, 64, 100_000])
def test_cuts_do_not_matter(size: int) -> None:
    body = b"".join(STREAM)
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    assert merged(decode(chunks)) == merged(decode(STREAM))


@settings(max_examples=60)
@given(st.lists(st.text(max_size=8), max_size=8), st.integers(1, 90))
def test_any_text_survives_any_cut(texts: list[str], size: int) -> None:
    body = b"".join(line("x" + text.encode("utf-8", "replace").decode()) for text in texts) + done()
    events = decode([body[at : at + size] for at in range(0, len(body), size)])
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == "".join("x" + text.encode("utf-8", "replace").decode() for text in texts)


@settings(max_examples=150)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(STREAM)), max_size=6))
def test_garbage_raises_nothing_and_ends_once(chunks: list[bytes]) -> None:
    decoder = CODEC.decoder(STRICT)
    checked([event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish())


@settings(max_examples=150)
@given(st.integers(0, 2000), st.integers(0, 255))
def test_one_wrong_byte_raises_nothing(place: int, value: int) -> None:
    body = bytearray(b"".join(STREAM))
    body[place % len(body)] = value
    decoder = CODEC.decoder(STRICT)
    checked(decoder.feed(bytes(body)) + decoder.finish())


def test_each_delta_leaves_at_once() -> None:
    decoder = CODEC.decoder(STRICT)
    assert kinds(decoder.feed(line("a"))) == ["Started", "BlockStarted", "TextDelta"]
    for number in range(3):
        stamp = f"2026-01-05T10:00:02.{number + 1}Z"
        assert decoder.feed(line(f"tok{number} ", at=stamp)) == [TextDelta(0, f"tok{number} ")]


def test_a_line_of_the_learned_shape_that_is_no_text_line_is_read() -> None:
    decoder = CODEC.decoder(STRICT)
    decoder.feed(line("a "))
    assert decoder.feed(line("b ")) == [TextDelta(0, "b ")]
    for text in ("", 'q"', "\\", "tab\t", "\u2028", "\x7f"):
        assert decoder.feed(line(text)) == ([TextDelta(0, text)] if text else [])
    assert decoder.feed(line("c ")) == [TextDelta(0, "c ")]
    assert kinds(decoder.feed(line("d ")[:-1].replace(b"d ", b"\xff ") + b"\n")) == ["Failed"]


def test_the_learned_shape_is_forgotten_with_its_block() -> None:
    decoder = CODEC.decoder(STRICT)
    decoder.feed(line("a "))
    decoder.feed(line("b "))
    decoder.feed(line(tool_calls=[call("f", {})]) + line("c "))
    assert decoder.feed(line("d ")) == [TextDelta(2, "d ")]
    assert kinds(decoder.feed(line("e ", thinking="t"))) == [
        "BlockEnded",
        "BlockStarted",
        "ThinkingDelta",
        "BlockEnded",
        "BlockStarted",
        "TextDelta",
    ]
    assert decoder.feed(line("f ")) == [TextDelta(4, "f ")]


def test_a_text_that_stands_elsewhere_in_the_line_is_not_mistaken() -> None:
    decoder = CODEC.decoder(STRICT)
    for text in ("assistant", "qwen3", "content", "2026-01-05T10:00:01.123456789Z"):
        assert decoder.feed(line(text))[-1] == TextDelta(0, text)
    assert decoder.feed(line("x", at="not a stamp")) == [TextDelta(0, "x")]
    assert decoder.feed(line("y", at="quite another")) == [TextDelta(0, "y")]


def test_lines_of_generate() -> None:
    events = decode([part("", thinking="Hm"), part("Hi"), part("", done=True, done_reason="length", eval_count=2)])
    assert events[1:] == [
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "Hm"),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        TextDelta(1, "Hi"),
        BlockEnded(1),
        UsageReported(Usage(None, 2)),
        Finished("length", raw="length"),
        Completed(),
    ]


def test_blocks_change_with_every_change_of_kind() -> None:
    events = decode([line("---"), line("\n"), line(thinking="Hmm"), line("Yes."), done()])
    assert [event.block.kind for event in events if isinstance(event, BlockStarted)] == ["text", "thinking", "text"]


def test_white_space_after_a_call_is_no_block_unless_text_follows() -> None:
    calls = [line("\n", tool_calls=[call("f", {})]), line(" \n"), line(tool_calls=[call("f", {})])]
    events = decode([*calls, line("\n\n"), done()])
    assert [event.block.kind for event in events if isinstance(event, BlockStarted)] == [
        "text",
        "tool_call",
        "tool_call",
    ]
    events = decode([*calls, line("\n\n"), line("text"), done()])
    assert TextDelta(3, "\n\ntext") in events
    events = decode([*calls, line("\n\n"), line(thinking="t"), done()])
    assert "TextDelta" not in kinds(events[9:])


# --- think tags --------------------------------------------------------------------------------------


def test_think_tags_are_thinking() -> None:
    events = decode([line("<thi"), line("nk>o"), line("ne</think>two <think>three</think>"), done()])
    assert merged(events)[2] == ThinkingDelta(0, "one")
    assert TextDelta(1, "two <think>three</think>") in merged(events)


def test_a_leftover_closing_tag_is_dropped() -> None:
    events = decode([line(thinking="one"), line("</think>two"), done()])
    assert TextDelta(1, "two") in events


def test_think_tags_by_quirk() -> None:
    events = decode([line("one</think>two"), done()], Quirks(think_preopened=True))
    assert ThinkingDelta(0, "one") in events
    events = decode([line("<think>one</think>"), done()], Quirks(think_tags=False))
    assert TextDelta(0, "<think>one</think>") in events


def test_what_only_began_like_a_tag_is_text_also_before_an_error() -> None:
    assert TextDelta(0, "<th") in decode([line("<th"), done()])
    events = decode([line("<th")])
    assert TextDelta(0, "<th") in events
    assert isinstance(error_of(events), IncompleteStream)


# --- calls -------------------------------------------------------------------------------------------


def test_ids_are_invented_once_and_differ() -> None:
    events = decode(
        [line(tool_calls=[call("f", {}), call("f", {}, id=""), call("f", {}, id="x"), call("f", {}, id="x")]), done()]
    )
    ids = [event.block.call_id for event in events if isinstance(event, BlockStarted)]
    assert len(set(ids)) == 4
    assert ids[2] == "x"
    again = decode([line(tool_calls=[call("f", {})], at="2026-01-05T10:09:09Z"), done()])
    assert again[1].block.call_id not in ids  # type: ignore[union-attr]


def test_a_number_as_id_is_text() -> None:
    assert decode([line(tool_calls=[call("f", {}, id=7)]), done()])[1] == BlockStarted(0, Block("tool_call", "7", "f"))


@pytest.mark.parametrize(
    ("given", "text", "valid"),
    [
        ({"a": 1}, '{"a":1}', True),
        ('{"a": 1}', '{"a": 1}', True),
        ('```json\n{"a": 1}\n```', '{"a": 1}', True),
        ("", "{}", True),
        (None, "{}", True),
        ([1], "[1]", False),
        ("{nope", "{nope", False),
    ],
)
def test_arguments(given: object, text: str, valid: bool) -> None:
    events = decode([line(tool_calls=[call("f", given)]), done()])
    assert events[2] == ArgumentsDelta(0, text)
    assert isinstance(events[3], BlockEnded)
    assert (events[3].invalid == "") is valid


def test_missing_arguments_and_a_missing_name() -> None:
    events = decode([line(tool_calls=[{"function": {"name": "f"}}, {"function": {}}, {}]), done()])
    assert ArgumentsDelta(0, "{}") in events
    assert events.count(Noted("a tool call without a name")) == 2


def test_broken_arguments_fail_the_stream() -> None:
    raw = line(tool_calls=[call("f", "X")])
    assert isinstance(error_of(decode([raw.replace(b'"X"', b'"\xff"')])), InvalidStreamEvent)
    assert isinstance(error_of(decode([raw.replace(b'"X"', b'{"a":"\xff"}')])), InvalidStreamEvent)


# --- the end -----------------------------------------------------------------------------------------


def test_length_is_never_upgraded_and_unknown_words_are_kept() -> None:
    calls = line(tool_calls=[call("f", {})])
    assert Finished("length", raw="length") in decode([calls, done(done_reason="length")])
    assert Finished("load", raw="load") in decode([done(done_reason="load")])


def test_an_end_without_done_is_incomplete() -> None:
    assert isinstance(error_of(decode([line("Half")])), IncompleteStream)
    assert isinstance(error_of(decode([])), IncompleteStream)
    assert isinstance(error_of(decode([line("Half"), line("", done_reason="stop")])), IncompleteStream)


def test_done_without_reason_is_an_incomplete_completion_that_keeps_its_counts() -> None:
    events = decode([line("Half"), done(done_reason=None)])
    assert isinstance(error_of(events), IncompleteCompletion)
    assert UsageReported(USAGE) in events


def test_quirks_take_the_missing_part_for_granted() -> None:
    no_reason = Quirks(finish_reason_required=False)
    assert decode([line("a"), done(done_reason="")], no_reason)[-2:] == [Finished("stop", assumed=True), Completed()]
    calls = line(tool_calls=[call("f", {})])
    assert decode([calls, done(done_reason=None)], no_reason)[-2] == Finished("tool_calls", assumed=True)
    no_done = Quirks(done_required=False)
    assert decode([line("a"), line("", done_reason="length")], no_done)[-2:] == [
        Finished("length", raw="length"),
        Completed(),
    ]
    assert isinstance(error_of(decode([line("a")], no_done)), IncompleteStream)
    assert isinstance(error_of(decode([line("a"), line("", done_reason="stop"), b"{"], no_done)), IncompleteStream)
    neither = Quirks(done_required=False, finish_reason_required=False)
    assert decode([line("a")], neither)[-2:] == [Finished("stop", assumed=True), Completed()]
    assert isinstance(error_of(decode([], neither)), IncompleteStream)


def test_the_done_line_is_proof_with_or_without_its_line_end() -> None:
    assert decode([line("a"), done()[:-1]])[-1] == Completed()
    assert isinstance(error_of(decode([line("a"), done()[:-2]])), IncompleteStream)


def test_another_unfinished_line_is_no_event() -> None:
    events = decode([line("a"), line("b")[:-1]])
    assert TextDelta(0, "b") not in events
    assert isinstance(error_of(events), IncompleteStream)


def test_an_error_line_ends_the_stream_with_or_without_its_line_end() -> None:
    raw = dump({"error": "an error was encountered while running the model"})
    for chunk in (raw, raw[:-1]):
        error = error_of(decode([line("Yes"), chunk]))
        assert isinstance(error, ProviderError)
        assert error.message == "an error was encountered while running the model"
    assert isinstance(error_of(decode([dump({"error": "model 'x' not found"})])), ModelNotFound)
    assert error_of(decode([dump({"error": {"message": "told"}})])).message == "told"
    assert "without saying" in error_of(decode([dump({"error": [1]})])).message


@pytest.mark.parametrize("nothing", [None, "", False])
def test_no_error_is_no_error(nothing: object) -> None:
    assert decode([line("a", error=nothing), done()])[-1] == Completed()


def test_unknown_counts_stay_unknown() -> None:
    assert UsageReported(Usage(None, 3)) in decode([line("", done=True, done_reason="stop", eval_count=3.0)])
    assert "UsageReported" not in kinds(decode([line("", done=True, done_reason="stop")]))


@pytest.mark.parametrize("raw", [b"nope\n", b"[1]\n", b"{}\n", b'{"status":"x"}\n', b'{"done":"yes"}\n', b'"s"\n'])
def test_what_is_no_line_is_an_error(raw: bytes) -> None:
    assert isinstance(error_of(decode([line("a"), raw, done()])), InvalidStreamEvent)


def test_blank_lines_are_nothing_and_what_follows_the_end_is_ignored() -> None:
    assert decode([b"\n", line("a") + b" \r\n", done() + line("late")])[-1] == Completed()


def test_a_line_that_never_ends_is_an_error() -> None:
    assert isinstance(error_of(decode([line("a"), b"x" * 100], Quirks(max_frame_bytes=90))), InvalidStreamEvent)


@pytest.mark.parametrize("stamp", ["", "yesterday", "0001-01-01T00:00:00+23:00"])
def test_a_stamp_that_is_no_instant_is_unknown(stamp: str) -> None:
    assert decode([line("a", at=stamp), done()])[0] == Started("", "qwen3", 0)


def test_a_stamp_without_a_zone_is_utc() -> None:
    assert decode([line("a", at="1970-01-01T00:00:05.123456789"), done()])[0] == Started("", "qwen3", 5)


# --- work --------------------------------------------------------------------------------------------


def test_work_is_linear_in_the_length_of_a_line() -> None:
    def make(size: int) -> Callable[[], None]:
        body = line("x" * size) + done()

        def work() -> None:
            decoder = CODEC.decoder(STRICT)
            for at in range(0, len(body), 16):
                decoder.feed(body[at : at + 16])

        return work

    assert_linear(make, 160_000)
