"""What an answer cost, by a price table that the caller owns. Unknown is None, never 0.

The same rule as the gateway's (gateway/accounts.py): what is not priced apart costs as the whole it is part of, and sums are
counted in decimals, so that what a table says in decimals comes out so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase

import msgspec

from strom.core.errors import BadRequest
from strom.core.record import Cost
from strom.core.usage import Usage
from strom.upstreams.settings import Price

PriceTable = dict[str, Price]
"""By shell pattern of a model's name; the first that fits counts."""


def price_table(given: Mapping[str, Price | Mapping[str, object]]) -> PriceTable:
    """Raises BadRequest."""
    try:
        return {
            pattern: price if isinstance(price, Price) else msgspec.convert(price, Price)
            for pattern, price in given.items()
        }
    except msgspec.ValidationError as error:
        raise BadRequest(f"prices: {error}", param="prices") from None


def cost_of(usage: Usage, table: PriceTable, names: Iterable[str], today: date) -> Cost | None:
    """`names`: what the model is called. None when its price, or a count, is not known."""
    found = (
        price
        for pattern, price in table.items()
        if any(fnmatchcase(name, pattern) for name in names) and _holds(price, today)
    )
    price = next(found, None)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    reasoning = min(usage.reasoning_tokens or 0, usage.output_tokens)
    paid_in = (
        _paid(usage.input_tokens - cached - written, price.input)
        + _paid(cached, price.input if price.cached_input is None else price.cached_input)
        + _paid(written, price.input if price.cache_write is None else price.cache_write)
    )
    paid_out = _paid(usage.output_tokens - reasoning, price.output) + _paid(
        reasoning, price.output if price.reasoning is None else price.reasoning
    )
    return Cost(float(paid_in + paid_out), price.currency, float(paid_in), float(paid_out))


def _paid(tokens: int, per_million: float) -> Decimal:
    return tokens * Decimal(repr(per_million)) / 1_000_000


def _holds(price: Price, day: date) -> bool:
    begun = price.valid_from is None or price.valid_from <= day
    return begun and (price.valid_until is None or day <= price.valid_until)
