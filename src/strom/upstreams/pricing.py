"""What tokens cost, by a price: the one rule of the gateway and the library. Counted in decimals, so that sums are exact.

What is not priced apart costs as the whole it is part of: cached and written input as input, reasoning as output.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import msgspec

from strom.upstreams.settings import Price


class Billed(NamedTuple):
    """Tokens of one call, each counted once."""

    plain: int
    cached: int
    written: int
    output: int
    reasoning: int


class _Rates(msgspec.Struct, frozen=True):
    """A price per token, exactly."""

    input: Decimal
    cached: Decimal
    written: Decimal
    output: Decimal
    reasoning: Decimal


def amounts(price: Price, billed: Billed) -> tuple[Decimal, Decimal]:
    """For the input and for the output."""
    rates = _rates(price)
    paid_in = billed.plain * rates.input + billed.cached * rates.cached + billed.written * rates.written
    return paid_in, billed.output * rates.output + billed.reasoning * rates.reasoning


def holds(price: Price, day: date) -> bool:
    begun = price.valid_from is None or price.valid_from <= day
    return begun and (price.valid_until is None or day <= price.valid_until)


@lru_cache(maxsize=1024)
def _rates(price: Price) -> _Rates:
    """A float in a configuration stands for the decimal that was written there, which is its shortest text."""
    given = (price.input, price.cached_input, price.cache_write, price.output, price.reasoning)
    whole, cached, written, output, reasoning = (
        None if one is None else Decimal(repr(one)) / 1_000_000 for one in given
    )
    assert whole is not None
    assert output is not None
    return _Rates(
        whole,
        whole if cached is None else cached,
        whole if written is None else written,
        output,
        output if reasoning is None else reasoning,
    )
