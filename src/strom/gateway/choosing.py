"""In which order the endpoints of one call are tried.

By rising `order`; within one order by the model's strategy, or by its affinity where a conversation is known. Endpoints that
are known to be too small for the prompt are left out while another may do. Last come those whose circuit is open and those that
asked to be left alone, the one that is ready first before the others: with nothing else to go to, trying the least bad one is
better than to refuse. Pure functions, except for what `draw` gives and `health` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from strom.gateway.affinity import Homes, conversation_key
from strom.gateway.destination import Destination
from strom.gateway.health import HealthView
from strom.gateway.plan import Endpoint
from strom.upstreams.settings import Affinity, Strategy

LEAST_MS = 1.0
"""An endpoint of which nothing is known counts as this fast, so that it gets known without getting every call at once."""


class Group(msgspec.Struct, frozen=True):
    """Endpoints among which nothing decides but strategy and affinity."""

    endpoints: tuple[Endpoint, ...]
    strategy: Strategy = "weighted"
    homes: Homes | None = None
    """None: conversations are at home nowhere."""


def make_group(endpoints: tuple[Endpoint, ...], strategy: Strategy, affinity: Affinity) -> Group:
    return Group(endpoints, strategy, Homes(endpoints) if affinity == "conversation" and len(endpoints) > 1 else None)


class Chooser(msgspec.Struct, frozen=True):
    """`draw` gives a number in [0, 1)."""

    health: HealthView
    draw: Callable[[], float]

    def arrange(self, groups: Sequence[Group], destination: Destination, key_name: str) -> tuple[Endpoint, ...]:
        """Every endpoint that may do, in the order in which they are tried."""
        ordered: list[Endpoint] = []
        for group in fitting(groups, destination.tokens):
            if len(group.endpoints) == 1:
                ordered += group.endpoints
            elif group.homes is not None and destination.request is not None:
                conversation = conversation_key(destination.request, key_name, destination.session)
                ordered += group.homes.order(conversation, self.health)
            else:
                ordered += self._by_strategy(group)
        return tuple(self._healthy_first(ordered))

    def _by_strategy(self, group: Group) -> list[Endpoint]:
        health, draw = self.health, self.draw
        match group.strategy:
            case "weighted":
                # Sampling without replacement (Efraimidis and Spirakis, 2006): the largest draw^(1/weight) comes first.
                keyed = [(-(draw() ** (1 / endpoint.weight)), 0.0, endpoint) for endpoint in group.endpoints]
            case "least-busy":
                keyed = [(health.in_flight(each) / each.weight, draw(), each) for each in group.endpoints]
            case "fastest":  # times those under way: or all calls of a moment would go to one
                keyed = [
                    (max(health.first_token_ms(each), LEAST_MS) * (health.in_flight(each) + 1), draw(), each)
                    for each in group.endpoints
                ]
        keyed.sort(key=lambda item: item[:2])
        return [endpoint for *_, endpoint in keyed]

    def _healthy_first(self, ordered: list[Endpoint]) -> list[Endpoint]:
        waits = [self.health.ready_at(endpoint) for endpoint in ordered]
        if waits.count(None) == len(waits):
            return ordered
        keyed = [(wait is not None, wait or 0.0) for wait in waits]
        return [ordered[at] for at in sorted(range(len(ordered)), key=keyed.__getitem__)]


def fitting(groups: Sequence[Group], tokens: int) -> Sequence[Group]:
    """Without the endpoints whose context window is too small. Where that leaves none, all: the estimate may be wrong."""
    for group in groups:
        for endpoint in group.endpoints:
            if not fits(endpoint, tokens):
                return [left for left in (_fitting(group, tokens) for group in groups) if left.endpoints] or groups
    return groups


def _fitting(group: Group, tokens: int) -> Group:
    endpoints = tuple(each for each in group.endpoints if fits(each, tokens))
    return make_group(endpoints, group.strategy, "off" if group.homes is None else "conversation")


def fits(endpoint: Endpoint, tokens: int) -> bool:
    return endpoint.context_window is None or tokens <= endpoint.context_window
