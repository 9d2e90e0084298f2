"""What an answer cost, by a price table that the caller owns. Unknown is None, never 0.

The rule is the gateway's (upstreams/pricing.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from fnmatch import fnmatchcase

import msgspec

from strom.core.errors import BadRequest
from strom.core.record import Cost
from strom.core.usage import Usage
from strom.upstreams.pricing import Billed, amounts, holds
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
        if any(fnmatchcase(name, pattern) for name in names) and holds(price, today)
    )
    price = next(found, None)
    if price is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    cached = min(usage.cached_tokens or 0, usage.input_tokens)
    written = min(usage.cache_write_tokens or 0, usage.input_tokens - cached)
    reasoning = min(usage.reasoning_tokens or 0, usage.output_tokens)
    plain = usage.input_tokens - cached - written
    billed = Billed(plain, cached, written, usage.output_tokens - reasoning, reasoning)
    paid_in, paid_out, unit = amounts(price, billed)
    return Cost((paid_in + paid_out) / unit, price.currency, paid_in / unit, paid_out / unit)
