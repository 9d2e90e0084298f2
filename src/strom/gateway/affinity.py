"""Which endpoint keeps a conversation, so that its prompt cache is of use.

A conversation is known by what the client calls it, else by what stays the same through all its turns: system text and first
user message. Of these, length, beginning and end are read, so that it costs the same for a short prompt and a long one; two
conversations that differ nowhere else share an endpoint, which is no harm. The endpoint is found by weighted rendezvous
hashing: every process finds the same one without a table, and an endpoint that comes or goes moves only its own conversations.

Source: OpenAI's API reference (`prompt_cache_key`), Anthropic's (`metadata.user_id`, in which Claude Code puts its session),
the header `x-session-affinity` of agents (clients/README.md), and protocol-facts.md, fact 5 (Claude Code's first system
block varies).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from zlib import crc32

import msgspec

from strom.core.messages import Message, Request, TextPart
from strom.gateway.health import HealthView
from strom.gateway.plan import Endpoint

HEADER = b"x-session-affinity"
EDGE = 128
"""Characters that are read from each end of a long text."""
LONG = 2 * EDGE
MAX_NAME = 512
"""Of a conversation, as the client calls it."""
VARYING = "x-anthropic-billing-header"
LOAD_FACTOR = 1.5
"""An endpoint may have so many times its share of the calls under way, before its conversations go to the next one."""
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15
_UNIT = 2.0**-64


class Homes:
    """Where conversations are at home among endpoints that are equal otherwise. Made once for the endpoints."""

    __slots__ = ("_alike", "_endpoints", "_seeds", "_weight")

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._seeds = [crc32(endpoint.id.encode()) * _SPREAD & _MASK for endpoint in endpoints]
        self._weight = sum(endpoint.weight for endpoint in endpoints)
        self._alike = len({endpoint.weight for endpoint in endpoints}) == 1

    def order(self, conversation: int, health: HealthView) -> list[Endpoint]:
        """All of them, the conversation's own first; those that have more than their share of load come last."""
        draws = [(conversation ^ seed) * _SPREAD & _MASK for seed in self._seeds]
        if self._alike:
            scores: Sequence[float] = draws
        else:  # each wins as often as its weight says (Schindelhauer and Schomaker, 2005)
            scores = [log((draw + 1) * _UNIT) / at.weight for draw, at in zip(draws, self._endpoints, strict=True)]
        ranked = [self._endpoints[at] for at in sorted(range(len(scores)), key=scores.__getitem__, reverse=True)]
        return ranked if health.in_flight(ranked[0]) == 0 else self._bounded(ranked, health)

    def _bounded(self, ranked: list[Endpoint], health: HealthView) -> list[Endpoint]:
        loads = [health.in_flight(endpoint) for endpoint in ranked]
        allowed = LOAD_FACTOR * (sum(loads) + 1) / self._weight
        full = [load + 1 > ceil(allowed * each.weight) for load, each in zip(loads, ranked, strict=True)]
        return [ranked[at] for at in sorted(range(len(ranked)), key=full.__getitem__)] if full[0] else ranked


def conversation_key(request: Request, key_name: str, session: bytes = b"") -> int:
    """64 bits. `session`: the header's value. Callers share no conversation, whatever they call it."""
    name = session[:MAX_NAME].decode("latin-1") or _named(request)[:MAX_NAME]
    known = f"{key_name}\0{name}" if name else f"{key_name}\0{request.model}\0{_opening(request)}"
    return crc32(known.encode("utf-8", "surrogatepass")) * _SPREAD & _MASK


def _named(request: Request) -> str:
    if request.protocol == "anthropic":
        return request.user
    for name, value in request.extras:
        if name == "prompt_cache_key" and value.text.startswith('"'):
            try:
                return msgspec.json.decode(value.text, type=str)
            except msgspec.DecodeError:
                return ""
    return ""


def _opening(request: Request) -> str:
    """What no later turn changes."""
    system = ""
    for message in request.messages:
        if message.role == "user":
            return f"{system}\0{_edges(message)}"
        if not system:
            system = _edges(message)
    return system


def _edges(message: Message) -> str:
    for part in message.parts:
        if type(part) is TextPart:
            text = part.text
            if not text.startswith(VARYING):
                return text if len(text) <= LONG else f"{len(text)}{text[:EDGE]}{text[-EDGE:]}"
    return ""
