"""Members of a JSON object change, the bytes of the others stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.wire.splice import append_member, join, split


def test_values_keep_their_bytes() -> None:
    raw = b' {"a" : 1.50 , "b":[1,  {"c":null}],"\\u00e9":"\\u0041"}'
    members = split(raw)
    assert members == {"a": b"1.50", "b": b'[1,  {"c":null}]', "é": b'"\\u0041"'}
    assert join(members) == '{"a":1.50,"b":[1,  {"c":null}],"é":"\\u0041"}'.encode()
    assert join({}) == b"{}"


def test_of_repeated_names_the_last_one_counts() -> None:
    assert split(b'{"a":1,"a":2}') == {"a": b"2"}


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"a":', b'"x"', b"\xff", b"[" * 100000, b'{"a":1} x'])
def test_what_is_no_object(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        split(raw)


@pytest.mark.parametrize(
    ("raw", "wanted"), [(b"{}", b'{"n":1}'), (b'{ "a": 1 } \n', b'{ "a": 1,"n":1}'), (b"{ \n }", b'{"n":1}')]
)
def test_appending(raw: bytes, wanted: bytes) -> None:
    assert append_member(raw, "n", b"1") == wanted


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.none(), max_size=2), max_size=5))
def test_nothing_is_lost(value: dict[str, object]) -> None:
    raw = json.dumps(value).encode()
    assert json.loads(join(split(raw))) == value
    assert json.loads(append_member(raw, "new member", b"[]")) == {**value, "new member": []}


def test_a_member_of_the_same_name_is_replaced() -> None:
    assert append_member(b'{"a":1,"strom":{"x":1},"b":2}', "strom", b"{}") == b'{"a":1,"b":2,"strom":{}}'
    assert append_member(b'{"strom" : 1}', "strom", b"2") == b'{"strom":2}'


def test_text_that_looks_like_the_member_stays() -> None:
    data = b'{"content":"\\"strom\\":{}","inner":{"strom":1}}'
    assert append_member(data, "strom", b"2") == data[:-1] + b',"strom":2}'
