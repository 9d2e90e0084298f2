"""Tool calls as real servers stream them: decoded, and repaired on relay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.events import ArgumentsDelta, Block, BlockEnded, BlockStarted, Event, Noted, TextDelta
from strom.core.messages import Part, TextPart, ThinkingPart, ToolCallPart
from tests.protocols.openai_chat.frames import (
    DONE,
    call,
    chunk,
    decode,
    folded,
    legal_relay,
    role,
    stop,
    text,
    thinking,
)

END = [stop("tool_calls"), DONE]


def parts_of(*frames: bytes) -> tuple[Part, ...]:
    return folded(decode([role(), *frames, *END])).parts()


def calls_of(*frames: bytes) -> list[tuple[str, str, Any]]:
    """(id, name, arguments parsed) after decoding, which a relayed stream has to show as well."""
    decoded = [
        (part.call_id, part.name, json.loads(part.arguments or "{}"))
        for part in parts_of(*frames)
        if isinstance(part, ToolCallPart)
    ]
    seen, relayed = legal_relay([role(), *frames, *END])
    assert [(c["id"], c["name"], json.loads(c["arguments"])) for c in seen.calls] == decoded
    assert relayed.evidence.tool_calls == len(decoded)
    return decoded


def test_one_call_in_fragments() -> None:
    frames = [
        call(index=0, id="c", type="function", name="f", arguments=""),
        call(index=0, arguments='{"a":'),
        call(index=0, arguments="1}"),
    ]
    assert calls_of(*frames) == [("c", "f", {"a": 1})]
    assert decode([role(), *frames, *END])[1:5] == [
        BlockStarted(0, Block("tool_call", "c", "f")),
        ArgumentsDelta(0, '{"a":'),
        ArgumentsDelta(0, "1}"),
        BlockEnded(0),
    ]


def test_sequential_calls_end_one_after_the_other() -> None:
    events = decode(
        [
            role(),
            call(index=0, id="c1", name="f", arguments="{}"),
            call(index=1, id="c2", name="g", arguments="{}"),
            *END,
        ]
    )
    kinds = [(type(e), e.index) for e in events if isinstance(e, BlockStarted | BlockEnded)]
    assert kinds == [(BlockStarted, 0), (BlockEnded, 0), (BlockStarted, 1), (BlockEnded, 1)]


def test_interleaved_calls_overlap() -> None:
    frames = [
        call(index=0, id="c1", type="function", name="f", arguments='{"a":'),
        call(index=1, id="c2", type="function", name="g", arguments='{"b":'),
        call(index=0, arguments="1}"),
        call(index=1, arguments="2}"),
    ]
    assert calls_of(*frames) == [("c1", "f", {"a": 1}), ("c2", "g", {"b": 2})]


def test_a_missing_index_is_the_open_calls() -> None:
    frames = [
        call(id="a", type="function", name="f", arguments='{"n":1}'),
        call(id="b", type="function", name="f", arguments='{"n":'),
        call(arguments="2}"),
    ]
    assert calls_of(*frames) == [("a", "f", {"n": 1}), ("b", "f", {"n": 2})]


def test_a_known_id_without_index_finds_its_call() -> None:
    frames = [
        call(id="a", name="f", arguments='{"n":'),
        call(id="b", name="g", arguments='{"n":'),
        call(id="a", arguments="1}"),
        call(id="b", arguments="2}"),
    ]
    assert calls_of(*frames) == [("a", "f", {"n": 1}), ("b", "g", {"n": 2})]


def test_all_calls_have_index_zero() -> None:
    frames = [
        call(index=0, id="a", type="function", name="f", arguments='{"n":1}'),
        call(index=0, id="b", type="function", name="f", arguments='{"n":2}'),
    ]
    assert calls_of(*frames) == [("a", "f", {"n": 1}), ("b", "f", {"n": 2})]


def test_a_fresh_id_on_every_fragment_continues() -> None:
    frames = [
        call(index=0, id="1", type="function", name="f", arguments=""),
        call(index=0, id="2", type="function", name="", arguments='{"n"'),
        call(index=0, id="3", type="function", name="", arguments=":1}"),
    ]
    assert calls_of(*frames) == [("1", "f", {"n": 1})]


def test_ids_are_invented_once_where_they_are_missing() -> None:
    frames = [
        call(index=0, name="f", arguments='{"n":'),
        call(index=0, id="", arguments="1}"),
        call(index=1, id=None, name="f", arguments='{"n":2}'),
    ]
    calls = calls_of(*frames)
    assert [arguments for _, _, arguments in calls] == [{"n": 1}, {"n": 2}]
    assert len({call_id for call_id, _, _ in calls}) == 2
    assert all(call_id.startswith("call_") for call_id, _, _ in calls)


def test_calls_without_index_and_id_are_told_apart_by_complete_arguments() -> None:
    frames = [call(name="f", arguments='{"n":1}'), call(name="f", arguments='{"n":2}')]
    assert [arguments for _, _, arguments in calls_of(*frames)] == [{"n": 1}, {"n": 2}]


def test_an_id_that_comes_late_is_no_new_call() -> None:
    frames = [call(index=0, name="f", arguments=""), call(index=0, id="x", name="f", arguments="{}")]
    assert len(calls_of(*frames)) == 1


def test_one_id_for_two_calls_is_made_unique() -> None:
    frames = [
        call(index=0, id="same", type="function", name="f", arguments='{"n":1}'),
        call(index=1, id="same", type="function", name="f", arguments='{"n":2}'),
    ]
    ids = [call_id for call_id, _, _ in calls_of(*frames)]
    assert ids[0] == "same"
    assert len(set(ids)) == 2


def test_numbers_as_ids_and_texts_as_indices() -> None:
    frames = [
        call(index="0", id=7, type="function", name="f", arguments="{}"),
        call(index=1.0, id=8, type="function", name="g", arguments="{}"),
        call(index="x", id=9, type="function", name="h", arguments="{}"),
    ]
    assert [(c, n) for c, n, _ in calls_of(*frames)] == [("7", "f"), ("8", "g"), ("9", "h")]


def test_the_name_repeated_in_every_delta() -> None:
    frames = [
        call(index=0, id="c", type="function", name="f", arguments=""),
        call(index=0, id="c", type="function", name="f", arguments='{"n":'),
        call(index=0, id="c", type="function", name="f", arguments="1}"),
        call(index=0, id="c", type="function", name="f", arguments=""),
    ]
    assert calls_of(*frames) == [("c", "f", {"n": 1})]


def test_the_name_split_over_two_deltas() -> None:
    frames = [
        call(index=0, id="c", type="function", name="edit_", arguments=""),
        call(index=0, name="file"),
        call(index=0, arguments="{}"),
    ]
    assert parts_of(*frames) == (ToolCallPart("c", "edit_file", "{}"),)


def test_arguments_before_the_name_wait_for_it() -> None:
    frames = [call(index=0, id="c", arguments='{"n":'), call(index=0, name="f"), call(index=0, arguments="1}")]
    events = decode([role(), *frames, *END])
    assert events[1:4] == [
        BlockStarted(0, Block("tool_call", "c", "f")),
        ArgumentsDelta(0, '{"n":'),
        ArgumentsDelta(0, "1}"),
    ]


def test_a_call_that_never_gets_a_name_is_noted() -> None:
    events = decode([role(), call(index=0, id="c", arguments="{}"), *END])
    assert Noted("a tool call without a name") in events
    assert folded(events).parts() == ()


def test_a_call_without_a_name_does_not_disturb_the_next() -> None:
    frames = [call(index=0, id="c", arguments='{"a":'), call(index=1, id="d", name="f", arguments="{}")]
    assert parts_of(*frames) == (ToolCallPart("d", "f", "{}"),)


@pytest.mark.parametrize("arguments", [{"city": "São"}, {}])
def test_arguments_as_an_object(arguments: dict[str, str]) -> None:
    frames = [call(index=0, id="c", type="function", name="f", arguments=arguments)]
    assert calls_of(*frames) == [("c", "f", arguments)]


@pytest.mark.parametrize("arguments", [[""], [None], [], ["", None]])
def test_empty_arguments(arguments: list[str | None]) -> None:
    frames = [call(index=0, id="c", type="function", name="f")]
    frames += [call(index=0, arguments=value) for value in arguments]
    assert calls_of(*frames) == [("c", "f", {})]


def test_a_call_without_arguments_keeps_its_place() -> None:
    frames = [
        call(index=0, id="c0", type="function", name="now", arguments=""),
        call(index=1, id="c1", type="function", name="f", arguments='{"n":1}'),
    ]
    assert calls_of(*frames) == [("c0", "now", {}), ("c1", "f", {"n": 1})]


def test_a_fence_is_stripped_live() -> None:
    frames = [
        call(index=0, id="c", type="function", name="f", arguments="``"),
        call(index=0, arguments='`json\n{"n": "}'),
        call(index=0, arguments='"}\n``'),
        call(index=0, arguments="`\n"),
    ]
    assert calls_of(*frames) == [("c", "f", {"n": "}"})]


def test_whole_parallel_calls_in_one_delta() -> None:
    parts = [
        {"index": n, "id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": f'{{"n":{n}}}'}}
        for n in range(3)
    ]
    assert [a for _, _, a in calls_of(chunk({"tool_calls": parts}))] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_arguments_cut_by_the_limit_are_invalid_but_passed_on() -> None:
    events = decode([role(), call(index=0, id="c", name="f", arguments='{"a":"x'), stop("length"), DONE])
    ended = next(event for event in events if isinstance(event, BlockEnded))
    assert "not valid JSON" in ended.invalid
    assert folded(events).parts() == (ToolCallPart("c", "f", '{"a":"x'),)


def test_white_space_between_calls_is_dropped_and_text_is_not() -> None:
    first, second = (call(index=n, id=f"c{n}", name="f", arguments="{}") for n in range(2))
    calls = (ToolCallPart("c0", "f", "{}"), ToolCallPart("c1", "f", "{}"))
    assert parts_of(first, text("\n"), text(" "), second, text("\n")) == calls
    assert parts_of(first, text("\n"), text("so"), second) == (calls[0], TextPart("\nso"), calls[1])
    assert parts_of(first, text("\n"), thinking("hm"), second) == (calls[0], ThinkingPart("hm"), calls[1])


def test_text_in_the_middle_of_arguments_waits() -> None:
    frames = [
        role(),
        call(index=0, id="c", name="f", arguments='{"a":'),
        text("late"),
        call(index=0, arguments="1}"),
        *END,
    ]
    assert folded(decode(frames)).parts() == (ToolCallPart("c", "f", '{"a":1}'), TextPart("late"))
    cut = [role(), call(index=0, id="c", name="f", arguments='{"a":'), text("late"), stop("length"), DONE]
    assert folded(decode(cut)).parts()[1] == TextPart("late")


def test_text_after_a_call_opens_a_block_of_its_own() -> None:
    events: list[Event] = decode([text("a"), call(index=0, id="c", name="f", arguments="{}"), text("b"), *END])
    assert [e for e in events if isinstance(e, TextDelta)] == [TextDelta(0, "a"), TextDelta(2, "b")]


def test_what_comes_after_complete_arguments_is_ignored() -> None:
    frames = [
        call(index=0, id="c", name="f", arguments="{}"),
        text("so"),
        call(index=0, arguments=" "),
    ]
    assert parts_of(*frames) == (ToolCallPart("c", "f", "{}"), TextPart("so"))


def test_legacy_function_call() -> None:
    frames = [
        chunk({"function_call": {"name": "f", "arguments": '{"a":'}}),
        chunk({"function_call": {"arguments": "1}"}}),
        stop("function_call"),
        DONE,
    ]
    (part,) = folded(decode(frames)).parts()
    assert isinstance(part, ToolCallPart)
    assert (part.name, part.arguments) == ("f", '{"a":1}')


def test_legacy_beside_tool_calls_is_the_same_call() -> None:
    part = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    both = chunk({"function_call": {"name": "f", "arguments": "{}"}, "tool_calls": [part]})
    assert parts_of(both) == (ToolCallPart("c", "f", "{}"),)


def test_custom_calls_are_plain_text() -> None:
    frames = [
        chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "ls "}}]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "-l"}}]}),
        call(index=1, id="d", type="function", name="f", arguments="{}"),
    ]
    assert parts_of(*frames) == (ToolCallPart("c", "sh", "ls -l", custom=True), ToolCallPart("d", "f", "{}"))
    seen, relayed = legal_relay([role(), *frames, *END])
    assert [c["arguments"] for c in seen.calls] == ["ls -l", "{}"]
    assert relayed.evidence.output_characters == len("ls -l{}")


def test_broken_parts_of_a_call() -> None:
    empty = chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom"}]})
    assert parts_of(empty) == ()
    assert parts_of(chunk({"tool_calls": [{"index": 0}]})) == ()


def test_ids_differ_between_answers() -> None:
    def first_id(response_id: str) -> str:
        frame = chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}, id=response_id)
        (part,) = folded(decode([frame, *END])).parts()
        assert isinstance(part, ToolCallPart)
        return part.call_id

    assert first_id("chatcmpl-1") == first_id("chatcmpl-1") != first_id("chatcmpl-2")
