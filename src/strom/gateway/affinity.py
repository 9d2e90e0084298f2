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

import math
from collections.abc import Sequence
from hashlib import blake2b
from zlib import crc32

import msgspec

from strom.core.messages import Request, TextPart
from strom.gateway.health import HealthView
from strom.gateway.plan import Endpoint

HEADER = b"x-session-affinity"
EDGE = 256
"""Characters that are read from each end of a text."""
MAX_NAME = 512
"""Of a conversation, as the client calls it."""
VARYING = "x-anthropic-billing-header"
LOAD_FACTOR = 1.5
"""An endpoint may have so many times its share of the calls under way, before its conversations go to the next one."""
_MASK = (1 << 64) - 1


def conversation_key(request: Request, key_name: str, session: bytes = b"") -> int:
    """64 bits. `session`: the header's value. Callers never share a conversation, whatever they call it."""
    name = session[:MAX_NAME] or _named(request)[:MAX_NAME].encode("utf-8", "surrogatepass")
    if name:
        known = b"%b\0%b" % (key_name.encode(), name)
    else:
        known = f"{key_name}\0{request.model}\0{_opening(request)}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(known, digest_size=8).digest(), "little")


def by_affinity(endpoints: Sequence[Endpoint], conversation: int, health: HealthView) -> list[Endpoint]:
    """All of them, the conversation's own first; those that have more than their share of load come last."""
    ranked = sorted(endpoints, key=lambda endpoint: _score(conversation, endpoint))
    loads = [health.in_flight(endpoint) for endpoint in ranked]
    total, weights = sum(loads) + 1, sum(endpoint.weight for endpoint in ranked)
    full = [
        load + 1 > math.ceil(LOAD_FACTOR * total * endpoint.weight / weights)
        for endpoint, load in zip(ranked, loads, strict=True)
    ]
    if full[0]:
        order = sorted(range(len(ranked)), key=full.__getitem__)
        ranked = [ranked[at] for at in order]
    return ranked


def _score(conversation: int, endpoint: Endpoint) -> float:
    """The smallest wins; each wins as often as its weight says (Schindelhauer and Schomaker, 2005)."""
    mixed = (conversation ^ crc32(endpoint.id.encode()) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK  # the finalizer of SplitMix64
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    return -math.log((mixed + 1) / (_MASK + 2)) / endpoint.weight


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
    system, user = "", ""
    for message in request.messages:
        text = next((p.text for p in message.parts if type(p) is TextPart and not p.text.startswith(VARYING)), "")
        if message.role == "user":
            user = text
            break
        if not system:
            system = text
    return f"{len(system)}\0{system[:EDGE]}{system[-EDGE:]}\0{len(user)}\0{user[:EDGE]}{user[-EDGE:]}"
