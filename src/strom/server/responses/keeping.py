"""Whether an answer may be kept at all: where an endpoint that may serve the call retains nothing, we retain nothing either.

`retention = "none"` at a provider says that nobody keeps the content; a policy with `retentions = ["none"]` lets only such
endpoints through. One of them among those that may serve is enough. Then the request goes on with `store: false`, which is what
the response object says too; a request that insists on `store: true`, or needs it (background), is refused.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import StromError, Unsupported
from strom.gateway.gateway import Gateway
from strom.protocols.openai_responses.stored import StoreWish
from strom.transport.types import Exchange
from strom.wire.splice import join, split

NOTHING = "none"
REFUSAL = "Nothing of this call may be stored (retention: none at {endpoint}): send store=false, and no background."


def permitted(gateway: Gateway, exchange: Exchange, wish: StoreWish) -> StoreWish:
    """The wish as far as it may be granted; the request's body says the same. Raises Unsupported."""
    upstreams = gateway.state.router.upstreams.values()
    if not wish.store or all(upstream.retention != NOTHING for upstream in upstreams):
        return wish
    try:
        plan = gateway.plan_for(exchange, gateway.identify(exchange), wish.model)
    except StromError:
        return wish  # the gateway will say the same, and why
    strict = next((endpoint.id for endpoint in plan.endpoints if endpoint.upstream.retention == NOTHING), None)
    if strict is None:
        return wish
    if wish.demands_store or wish.background:
        raise Unsupported(REFUSAL.format(endpoint=strict), param="background" if wish.background else "store")
    exchange.body = join({**split(exchange.body), "store": b"false"})
    return msgspec.structs.replace(wish, store=False)
