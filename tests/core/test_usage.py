"""Token counts: the last report wins, field by field."""

from __future__ import annotations

import pytest

from strom.core.usage import MOST_TOKENS, Usage, estimate_tokens, token_count


def test_a_later_report_replaces_what_it_mentions() -> None:
    first = Usage(10, 1, 4, 2, None, (("load", 1),))
    assert first.updated(Usage(output_tokens=9, reasoning_tokens=3)) == Usage(10, 9, 4, 2, 3, (("load", 1),))
    assert first.updated(Usage(0, 0, 0, 0, 0, (("eval", 2),))) == Usage(0, 0, 0, 0, 0, (("eval", 2),))


def test_the_total_is_unknown_when_a_part_is() -> None:
    assert Usage(1, 2).total_tokens == 3
    assert Usage(1).total_tokens is None
    assert Usage(output_tokens=1).total_tokens is None


def test_any_text_is_at_least_one_token() -> None:
    assert [estimate_tokens(characters) for characters in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


@pytest.mark.parametrize(
    ("told", "count"),
    [(None, None), (0, 0), (7, 7), (7.0, 7), (MOST_TOKENS, MOST_TOKENS), (MOST_TOKENS + 1, None), (-1, None), (1e308, None),
     (10**330, None), (float("nan"), None), (float("inf"), None)],
)  # fmt: skip
def test_what_cannot_be_a_count_is_not_told(told: float | None, count: int | None) -> None:
    assert token_count(told) == count
