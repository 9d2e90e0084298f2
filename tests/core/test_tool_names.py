"""Tool names on their way out and back, and custom tools unwrapped while they stream."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.events import ArgumentsDelta, Block, BlockEnded, BlockStarted, Event, TextDelta
from strom.core.messages import Json, OpaquePart, Tool
from strom.core.tool_names import InputUnwrapper, ToolNameFilter, plan_names, upstream_name
from strom.protocols.codec import ToolName


def unwrap(text: str, size: int) -> tuple[str, list[str]]:
    unwrapper = InputUnwrapper()
    pieces = [unwrapper.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return "".join(pieces) + unwrapper.finish(), pieces


# --- out ---


def test_legal_names_stay_and_namespaces_are_flattened() -> None:
    tools = [Tool("ls"), Tool("run", namespace="agents"), Tool("x", opaque=OpaquePart("anthropic", "bash", Json("{}")))]
    assert plan_names(tools, 64) == {("", "ls"): "ls", ("agents", "run"): "agents__run"}


def test_illegal_and_long_names_become_legal_and_stay_apart() -> None:
    tools = [Tool("a.b"), Tool("a_b"), Tool("a b"), Tool("n" * 70), Tool("n" * 71), Tool("")]
    names = list(plan_names(tools, 64).values())
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert names[1] == "a_b"


def test_a_flattened_name_gives_way_to_one_that_is_taken() -> None:
    tools = [Tool("run", namespace="a"), Tool("a__run"), Tool("run", namespace="a")]
    plan = plan_names(tools, 64)
    assert plan["", "a__run"] == "a__run"
    assert plan["a", "run"] != "a__run"


def test_names_only_mentioned_are_mapped_alike() -> None:
    assert upstream_name("ns", "f", 64) == "ns__f"
    assert upstream_name("", "f.g", 64) == upstream_name("", "f.g", 64) != upstream_name("", "f_g", 64)


# --- back ---


def test_without_a_table_the_same_list_comes_back() -> None:
    events: list[Event] = [BlockStarted(0, Block("tool_call", "c", "f"))]
    assert ToolNameFilter({}).feed(events) is events
    deltas: list[Event] = [TextDelta(0, "a")]
    assert ToolNameFilter({"x": ToolName("y")}).feed(deltas) is deltas


def test_names_and_namespaces_come_back() -> None:
    names = ToolNameFilter({"ns__f": ToolName("f", "ns")})
    events: list[Event] = [BlockStarted(0, Block("tool_call", "c", "ns__f")), ArgumentsDelta(0, "{}"), BlockEnded(0)]
    started, *rest = names.feed(events)
    assert started == BlockStarted(0, Block("tool_call", "c", "f", namespace="ns"))
    assert rest == events[1:]
    other: list[Event] = [BlockStarted(1, Block("tool_call", "c", "g")), BlockStarted(2, Block("text"))]
    assert names.feed(other) == other


def test_a_custom_call_is_unwrapped_in_place() -> None:
    names = ToolNameFilter({"patch": ToolName("patch", custom=True)})
    out = names.feed(
        [
            BlockStarted(0, Block("tool_call", "c", "patch")),
            ArgumentsDelta(0, '{"inp'),
            ArgumentsDelta(0, 'ut":"*** Begin\\n'),
            ArgumentsDelta(0, '+hi"'),
            ArgumentsDelta(0, "}"),
            BlockEnded(0),
        ]
    )
    assert out == [
        BlockStarted(0, Block("tool_call", "c", "patch", custom=True)),
        ArgumentsDelta(0, "*** Begin\n"),
        ArgumentsDelta(0, "+hi"),
        BlockEnded(0),
    ]
    rest = names.feed([BlockStarted(1, Block("tool_call", "d", "patch")), ArgumentsDelta(1, '{"in'), BlockEnded(1)])
    assert rest[1:] == [ArgumentsDelta(1, '{"in'), BlockEnded(1)]


@given(st.text(), st.integers(1, 9), st.booleans())
def test_any_text_survives_any_cut(text: str, size: int, ascii_only: bool) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert unwrap(wrapped, size)[0] == text


def test_pieces_leave_as_they_come() -> None:
    assert unwrap('{"input":"abc"}', 1)[1] == [*[""] * 10, "a", "b", "c", "", ""]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("plain text", "plain text"),
        ('{"note": 1, "input": "x"}', "x"),
        ('{"input": {"a": 1}}', '{"input": {"a": 1}}'),
        ('{"inp', '{"inp'),
        ('{"other": 1}', '{"other": 1}'),
        ('{"other": 1', '{"other": 1'),
        ("{}", ""),
        ("", ""),
        (" " * 2000, " " * 2000),
        (r'{"input": "a\qb"}', r'a\qb"}'),
        (r'{"input": "\ud83d"}', "\ufffd"),
        (r'{"input": "\ud83dx\ude80"}', "\ufffdx\ufffd"),
        (r'{"input": "cut \ud83d', "cut \ufffd"),
        (r'{"input": "cut \u00', "cut "),
        ('{"input": "x"} trailing', "x"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_what_is_no_wrapper_is_kept(arguments: str, expected: str, size: int) -> None:
    assert unwrap(arguments, size)[0] == expected
