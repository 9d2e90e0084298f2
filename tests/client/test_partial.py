"""Partial JSON: however the text is cut, what is shown grows towards the whole, and the work is linear."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.partial import NOTHING, PartialJson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def snapshots(text: str, *, step: int = 1) -> list[Any]:
    partial = PartialJson()
    shown = []
    for at in range(0, len(text), step):
        partial.feed(text[at : at + step])
        value = partial.snapshot()
        if value is not NOTHING:
            shown.append(value)
    return shown


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.booleans(), st.integers(1, 5))
@settings(max_examples=150)
def test_the_last_snapshot_is_the_value(value: dict[str, Any], ascii_only: bool, step: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    shown = snapshots(text, step=step)
    assert shown[-1] == value
    for earlier, later in itertools.pairwise(shown):
        assert grows(earlier, later), (earlier, later)


def grows(earlier: Any, later: Any) -> bool:
    """Nothing that was shown is taken back; texts only get longer."""
    if isinstance(earlier, dict) and isinstance(later, dict):
        return all(name in later and grows(item, later[name]) for name, item in earlier.items())
    if isinstance(earlier, list) and isinstance(later, list):
        return len(earlier) <= len(later) and all(map(grows, earlier, later))
    if isinstance(earlier, str) and isinstance(later, str):
        return later.startswith(earlier)
    return bool(earlier == later)


def test_a_number_is_shown_when_it_cannot_go_on() -> None:
    assert snapshots('{"a": 12, "b": 3') == [{}, {"a": 12}]


def test_a_literal_and_a_key_are_shown_whole_or_not_at_all() -> None:
    assert snapshots('{"a": tru') == [{}]
    assert snapshots('{"a": true}') == [{}, {"a": True}]
    assert snapshots('{"long key') == [{}]


@pytest.mark.parametrize("text", [r'{"a": "x\n', r'{"a": "x\u00e9', r'{"a": "x\ud83d\ude00', r'{"a": "x\\'])
def test_escapes_are_not_shown_in_halves(text: str) -> None:
    for value in snapshots(text)[1:]:
        assert value["a"].rstrip("\n\\é😀") in ("x", "")


def test_what_stands_around_the_object_is_left_out() -> None:
    partial = PartialJson()
    partial.feed('Sure:\n```json\n{"a": 1}')
    partial.feed("\n``` {more}")
    assert partial.complete
    assert json.loads(partial.text) == {"a": 1}
    assert partial.snapshot() == {"a": 1}
    assert partial.snapshot() is NOTHING


def test_garbage_gives_nothing() -> None:
    assert snapshots("no object") == []
    assert snapshots('{"a" "b"}') == [{}]


def test_nested_far_too_deep_is_nothing() -> None:
    snapshots('{"a":' + "[" * 5000, step=100)


def test_work_is_linear() -> None:
    """What is parsed in all snapshots together is a constant times the length, and short answers miss nothing."""
    for size in (100, 1000, 8000):
        text = json.dumps({"items": ["x" * 20] * size})
        partial, parsed = PartialJson(), 0
        for at in range(0, len(text), 7):
            partial.feed(text[at : at + 7])
            if partial.snapshot() is not NOTHING:
                parsed += at
        assert parsed < 70 * len(text)
