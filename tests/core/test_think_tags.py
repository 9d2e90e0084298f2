"""Thinking in tags is told apart from text while it streams."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.think_tags import ThinkTags


def split(*texts: str, preopened: bool = False, reasoning: bool = False) -> tuple[str, str]:
    """(thinking, text), joined."""
    tags = ThinkTags(preopened=preopened)
    if reasoning:
        tags.after_reasoning()
    pieces = [piece for text in texts for piece in tags.feed(text)] + tags.flush()
    assert all(text for _, text in pieces)
    return (
        "".join(text for kind, text in pieces if kind == "thinking"),
        "".join(text for kind, text in pieces if kind == "text"),
    )


CASES = [
    ("<think>a</think>b", ("a", "b")),
    (" \n<think>a</think>\nb", ("a", "\nb")),
    ("<think>a < b </th></think>c", ("a < b </th>", "c")),
    ("<think>a</think>b <think>c</think>", ("a", "b <think>c</think>")),
    ("<think>a", ("a", "")),
    ("<think>a</thi", ("a</thi", "")),
    ("<think></think>b", ("", "b")),
    ("a <think>b</think>", ("", "a <think>b</think>")),
    ("<thinking>b", ("", "<thinking>b")),
    ("  plain", ("", "  plain")),
    ("<th", ("", "<th")),
    (" ", ("", " ")),
    ("</think>a", ("", "</think>a")),
    ("", ("", "")),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_tags_however_they_are_cut(text: str, wanted: tuple[str, str]) -> None:
    assert split(text) == wanted
    assert split(*text) == wanted
    for at in range(len(text)):
        assert split(text[:at], text[at:]) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a</think>b", ("a", "b")),
        ("<think>a</think>b", ("a", "b")),
        ("</think>b", ("", "b")),
        ("<a", ("<a", "")),
        ("<", ("<", "")),
    ],
)
def test_a_tag_the_template_opened(text: str, wanted: tuple[str, str]) -> None:
    assert split(text, preopened=True) == wanted
    assert split(*text, preopened=True) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("</think>a", "a"),
        ("\n</think>a", "a"),
        ("</thin", "</thin"),
        ("<think>a", "<think>a"),
        ("a</think>", "a</think>"),
    ],
)
def test_a_tag_left_over_after_reasoning(text: str, wanted: str) -> None:
    for preopened in (False, True):
        assert split(*text, reasoning=True, preopened=preopened) == ("", wanted)


def test_nothing_is_held_that_is_no_tag() -> None:
    tags = ThinkTags()
    assert tags.feed("<th") == []
    assert tags.feed("e") == [("text", "<the")]
    assert tags.settled
    assert tags.feed("<think>") == [("text", "<think>")]
    tags.after_reasoning()
    assert tags.feed("</think>") == [("text", "</think>")]
    inside = ThinkTags()
    assert inside.feed("<think>a") == [("thinking", "a")]
    assert inside.feed("b<") == [("thinking", "b")]
    assert inside.feed("c") == [("thinking", "<c")]
    assert not inside.settled


def test_flushing_in_the_middle_of_thinking() -> None:
    tags = ThinkTags()
    tags.feed("<think>a</")
    assert tags.flush() == [("thinking", "</")]
    assert tags.feed("b</think>c") == [("thinking", "b"), ("text", "c")]
    assert tags.flush() == []


def test_switched_off() -> None:
    tags = ThinkTags(enabled=False)
    assert tags.settled
    assert tags.feed("<think>") == [("text", "<think>")]
    assert tags.feed("") == []


@given(st.text(alphabet="<>/think a\n", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_any_text_however_it_is_cut(text: str, places: list[int]) -> None:
    cuts = [0, *sorted(min(p, len(text)) for p in places), len(text)]
    assert split(*(text[a:b] for a, b in pairwise(cuts))) == split(text)
