"""Where a call goes after a failure. Pure; rules: streams.md section 9.

Before the first token: the next endpoint of the plan, if the failure is one that another endpoint may not have. Where there is
no other, the same one again after a while, as often as the model allows; `Retry-After` is a floor of the while, and a call
never rests beyond the time it gives a backend for its first token. A prompt that is too long goes on only to an endpoint that
is known to be larger: otherwise the refusal is the client's to see, for clients make their prompts shorter when they see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from strom.core.errors import ContextOverflow, StromError
from strom.gateway.plan import Endpoint, Plan

BASE_DELAY_S = 0.5
MAX_DELAY_S = 8.0


class Hop(msgspec.Struct, frozen=True):
    """`at`: index among the plan's endpoints; `retried`: how often an endpoint was asked again so far."""

    at: int = 0
    retried: int = 0
    delay_s: float = 0.0


FIRST = Hop()


def following(plan: Plan, hop: Hop) -> Hop | None:
    """The next endpoint, whatever happened at this one."""
    return Hop(hop.at + 1, hop.retried) if hop.at + 1 < len(plan.endpoints) else None


def next_hop(plan: Plan, hop: Hop, error: StromError, *, another_may_do: bool, elapsed_s: float) -> Hop | None:
    """None: the call ends with this error. `elapsed_s`: since its first dispatch."""
    if isinstance(error, ContextOverflow):
        return _larger(plan, hop, error)
    if not another_may_do:
        return None
    if hop.at + 1 < len(plan.endpoints):
        return Hop(hop.at + 1, hop.retried)
    if not error.retryable or hop.retried >= plan.retries:
        return None
    delay_s = rest_s(hop.retried, error.retry_after_s)
    if elapsed_s + delay_s >= plan.endpoints[hop.at].timeouts.first_token_s:
        return None
    return Hop(hop.at, hop.retried + 1, delay_s)


def rest_s(retried: int, floor_s: float | None, draw: Callable[[], float] = random.random) -> float:
    """Doubles with each retry; half of it is drawn, so that calls that failed together do not come back together. Nor do those
    that were told the same `Retry-After`: up to a tenth more is drawn for them."""
    half_s, drawn = min(BASE_DELAY_S * 2.0**retried, MAX_DELAY_S) / 2, draw()
    floor_s = floor_s or 0.0
    return max(half_s + half_s * drawn, floor_s + 0.1 * floor_s * drawn)


def _larger(plan: Plan, hop: Hop, error: ContextOverflow) -> Hop | None:
    limit = error.limit or plan.endpoints[hop.at].context_window
    for at in range(hop.at + 1, len(plan.endpoints)):
        if _exceeds(plan.endpoints[at], limit):
            return Hop(at, hop.retried)
    return None


def _exceeds(endpoint: Endpoint, limit: int | None) -> bool:
    return limit is not None and endpoint.context_window is not None and endpoint.context_window > limit
