"""What tokens cost, by a price: the one rule of the gateway and the library. Counted in whole numbers of a small
part of the currency, so that sums are exact.

What is not priced apart costs as the whole it is part of: cached and written input as input, reasoning as output.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import msgspec

from strom.upstreams.settings import Price

TRILLION = 10**12


class Billed(NamedTuple):
    """Tokens of one call, each counted once."""

    plain: int
    cached: int
    written: int
    output: int
    reasoning: int


class _Rates(msgspec.Struct, frozen=True):
    """A price per token, exactly: in parts of which `unit` make one of the currency."""

    unit: int
    input: int
    cached: int
    written: int
    output: int
    reasoning: int


def amounts(price: Price, billed: Billed) -> tuple[int, int, int]:
    """For the input and for the output, in parts of the currency; and how many of these make one of it, at least `TRILLION`."""
    rates = _rates(price)
    plain, cached, written, output, reasoning = billed
    paid_in = plain * rates.input
    if cached or written:
        paid_in += cached * rates.cached + written * rates.written
    return paid_in, output * rates.output + reasoning * rates.reasoning, rates.unit


def holds(price: Price, day: date) -> bool:
    begun = price.valid_from is None or price.valid_from <= day
    return begun and (price.valid_until is None or day <= price.valid_until)


@lru_cache(maxsize=1024)
def _rates(price: Price) -> _Rates:
    """A float in a configuration stands for the decimal that was written there, which is its shortest text."""
    given = (
        price.input,
        price.input if price.cached_input is None else price.cached_input,
        price.input if price.cache_write is None else price.cache_write,
        price.output,
        price.output if price.reasoning is None else price.reasoning,
    )
    per_token = [Fraction(repr(one)) / 1_000_000 for one in given]
    unit = lcm(TRILLION, *(rate.denominator for rate in per_token))
    return _Rates(unit, *(int(rate * unit) for rate in per_token))
