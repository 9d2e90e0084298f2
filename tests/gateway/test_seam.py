"""Where two halves of an answer meet: nothing twice, nothing lost, and no guess."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.gateway.seam import MAX_OVERLAP, MIN_OVERLAP, Seam, SeamBroken

ANSWER = "The quick brown fox jumps over the lazy dog, and then it sleeps until the evening comes around."


def joined(seam: Seam, pieces: list[str]) -> str:
    return "".join(seam.feed(piece) for piece in pieces) + seam.finish()


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    """The text in pieces that are not empty."""
    places = st.lists(st.integers(1, max(1, len(text) - 1)), unique=True, max_size=8).map(sorted)
    return places.map(lambda at: [p for p in (text[a:b] for a, b in zip([0, *at], [*at, None], strict=True)) if p])


@given(st.integers(0, len(ANSWER) - 1), st.data(), st.booleans())
def test_what_goes_on_passes(at: int, data: st.DataObject, prefilled: bool) -> None:
    assert joined(Seam(ANSWER[:at], prefilled=prefilled), data.draw(cuts(ANSWER[at:]))) == ANSWER[at:]


@given(st.integers(40, len(ANSWER) - 1), st.data(), st.booleans())
def test_what_is_begun_anew_is_cut_away(at: int, data: st.DataObject, prefilled: bool) -> None:
    assert joined(Seam(ANSWER[:at], prefilled=prefilled), data.draw(cuts(ANSWER))) == ANSWER[at:]


@given(st.integers(MIN_OVERLAP, 30), st.data())
def test_the_end_that_is_repeated_is_cut_away(back: int, data: st.DataObject) -> None:
    seam = Seam(ANSWER[:50], prefilled=False)
    assert joined(seam, data.draw(cuts(ANSWER[50 - back :]))) == ANSWER[50:]


@given(st.text("ab ", min_size=1, max_size=60), st.text("ab ", min_size=1, max_size=60), st.data())
def test_a_prefilled_text_that_repeats_itself_loses_nothing(earlier: str, more: str, data: st.DataObject) -> None:
    """ "la la la": a repetition that cannot be told from the answer is the answer."""
    text = (earlier * 60)[: len(earlier) * 3 + 100]
    assert joined(Seam(text, prefilled=True), data.draw(cuts(more))) == more


@given(st.text(max_size=80), st.lists(st.text(min_size=1, max_size=20), max_size=8), st.booleans())
def test_whatever_comes_is_a_tail_of_what_came(earlier: str, pieces: list[str], prefilled: bool) -> None:
    with suppress(SeamBroken):
        assert "".join(pieces).endswith(joined(Seam(earlier, prefilled=prefilled), pieces))


def test_a_different_beginning_is_refused() -> None:
    with pytest.raises(SeamBroken):
        joined(Seam(ANSWER[:60], prefilled=True), [ANSWER[:40], "something else"])


def test_a_beginning_that_is_not_finished_is_refused() -> None:
    with pytest.raises(SeamBroken):
        joined(Seam(ANSWER[:60], prefilled=True), [ANSWER[:40]])


def test_white_space_that_was_not_shown_is_not_doubled() -> None:
    assert joined(Seam("one \n", prefilled=True, cut=" \n"), [" ", "\n", "two"]) == "two"
    assert joined(Seam("one \n", prefilled=True, cut=" \n"), ["two"]) == "two"
    assert joined(Seam("one ", prefilled=True, cut=" "), [" "]) == ""


def test_little_is_held_back() -> None:
    seam = Seam(ANSWER * 20, prefilled=False)
    held = 0
    for character in "Completely different words follow now.":
        held = 0 if seam.feed(character) else held + 1
        assert held < MAX_OVERLAP
    assert seam.joined
