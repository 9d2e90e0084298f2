"""Tool-call ids: legal, reversible, without collisions (cases 131 and 132 of the collected reports)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.ids import DIGEST_PREFIX, MAX_LENGTH, PREFIX, from_legal, is_legal, to_legal

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.parametrize("call_id", ["toolu_01", "call-A", "functions_Bash_0", "strom_abc", "x" * 64])
def test_legal_ids_stay(call_id: str) -> None:
    assert to_legal(call_id) == call_id == from_legal(call_id)


@pytest.mark.parametrize("call_id", ["functions.Bash:0", "", "ü", "a b", "\ud83d", "call_é" * 3])
def test_illegal_ids_come_back(call_id: str) -> None:
    mapped = to_legal(call_id)
    assert LEGAL.fullmatch(mapped)
    assert mapped.startswith(PREFIX)
    assert from_legal(mapped) == call_id


def test_ids_that_differ_in_an_illegal_character_stay_different() -> None:
    assert len({to_legal(call_id) for call_id in ("functions.Bash:0", "functions_Bash_0", "functions.Bash_0")}) == 3


def test_over_long_ids_are_digested_the_same_everywhere() -> None:
    mapped = to_legal("call_" + "a" * 100)
    assert mapped == to_legal("call_" + "a" * 100) != to_legal("call_" + "a" * 101)
    assert mapped.startswith(DIGEST_PREFIX)
    assert len(mapped) <= MAX_LENGTH
    assert from_legal(mapped) == mapped == to_legal(mapped)


def test_an_id_that_looks_like_ours_is_mapped_once_more() -> None:
    first = to_legal("a.b")
    second = to_legal(first)
    assert second != first
    assert from_legal(second) == first


@pytest.mark.parametrize("call_id", [PREFIX + "A", PREFIX + "_w", PREFIX + "YWJj", "x" * 65, "strom_\u00e9"])
def test_an_id_that_only_begins_like_ours_is_nobodys(call_id: str) -> None:
    assert from_legal(call_id) == call_id


@given(st.text(max_size=80) | st.from_regex(r"(strom_)?[A-Za-z0-9_-]{0,60}", fullmatch=True))
def test_any_id_becomes_legal_and_comes_back(call_id: str) -> None:
    mapped = to_legal(call_id)
    assert LEGAL.fullmatch(mapped)
    assert is_legal(mapped)
    assert mapped.startswith(DIGEST_PREFIX) or from_legal(mapped) == call_id


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_two_ids_collide(one: str, other: str) -> None:
    assert one == other or to_legal(one) != to_legal(other)
