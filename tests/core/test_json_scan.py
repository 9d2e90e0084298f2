"""Tool arguments are followed while they stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.json_scan import JsonScan
from tests.patience import assert_linear


def scan(*fragments: str) -> tuple[str, JsonScan]:
    scanner = JsonScan()
    return "".join(map(scanner.feed, fragments)), scanner


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":"}{\\"[","b":[{}]}', "[]", '[{"a":"\\\\"}]', '{"\\u007b":0}'])
def test_a_value_is_complete_with_its_last_character(text: str) -> None:
    scanner = JsonScan()
    for character in text[:-1]:
        scanner.feed(character)
        assert not scanner.complete
    scanner.feed(text[-1])
    assert scanner.complete
    assert scanner.text == text


def test_nothing_after_the_end_and_no_white_space_before() -> None:
    passed, scanner = scan(" \n", ' {"a":', "1} ", "\n", "x")
    assert passed == scanner.text == '{"a":1}'
    assert scanner.problem() == ""


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_counts_as_an_object(text: str) -> None:
    passed, scanner = scan(text)
    assert (passed, scanner.empty, scanner.complete, scanner.problem()) == ("", True, False, "")


@given(st.lists(st.integers(0, 40), max_size=5))
def test_a_fence_is_stripped_live(places: list[int]) -> None:
    text = '```json\n{"a": "```"}\n```\n'
    cuts = sorted({0, len(text), *(p for p in places if p < len(text))})
    passed, scanner = scan(*(text[a:b] for a, b in pairwise(cuts)))
    assert passed == '{"a": "```"}'
    assert scanner.complete
    assert scanner.fenced
    assert scanner.problem() == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":', "not valid JSON"),
        ("{,}", "not valid JSON"),
        ("hello", "not valid JSON"),
        ("```json", "not valid JSON"),
        ('{"a":"\ud83d"}', "not valid JSON"),
        ("[" * 100000, "not valid JSON"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('"text"', "not a JSON object"),
    ],
)
def test_problems(text: str, problem: str) -> None:
    assert problem in scan(text)[1].problem()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.data())
def test_any_object_however_it_is_cut(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    cuts = [0, *sorted(places), len(text)]
    passed, scanner = scan(*(text[a:b] for a, b in pairwise(cuts)), " ")
    assert passed == text
    assert scanner.complete


def test_many_tiny_fragments_take_linear_time() -> None:
    def make(count: int) -> Callable[[], None]:
        def work() -> None:
            scanner = JsonScan()
            scanner.feed('{"a":"')
            for _ in range(count):
                scanner.feed("xy")
            scanner.feed('"}')
            assert scanner.complete

        return work

    assert_linear(make, 10_000)
