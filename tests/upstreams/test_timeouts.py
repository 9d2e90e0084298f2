"""Whose clocks count: the provider's, a model's in their place, and a caller's only if it is less patient."""

from __future__ import annotations

import pytest

from strom.core.errors import BadRequest
from strom.upstreams.timeouts import SomeTimeouts, Timeouts, parse_wishes

BASE = Timeouts(connect_s=5, first_token_s=100, idle_s=50, total_s=None, min_chars_per_s=2)


def test_a_model_replaces_what_it_names() -> None:
    own = SomeTimeouts(first_token_s=600, total_s=900, throughput_window_s=10)
    assert own.replacing(BASE) == Timeouts(5, 600, 50, 900, 2, 10)


def test_a_caller_only_tightens() -> None:
    wishes = parse_wishes(b"first_token_s=600, idle_s=5, total_s=30,min_chars_per_s=1")
    assert wishes.tightening(BASE) == Timeouts(5, 100, 5, 30, 2)


def test_a_caller_may_raise_the_floor() -> None:
    assert parse_wishes(b"min_chars_per_s=9").tightening(BASE).min_chars_per_s == 9


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"5",
        b"idle_s",
        b"idle_s=",
        b"idle_s=x",
        b"idle_s=0",
        b"idle_s=-1",
        b"idle_s=nan",
        b"idle_s=inf",
        b"idle_s=1,idle_s=2",
        b"speed=3",
        b"throughput_window_s=1",
        b"idle_s=1;total_s=2",
        b"\xff=1",
        b"idle_s=1," * 200,
    ],
)
def test_what_is_no_list_of_clocks_is_refused(value: bytes) -> None:
    with pytest.raises(BadRequest, match="x-strom-timeouts"):
        parse_wishes(value)
