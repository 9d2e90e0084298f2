"""Carries other protocols' sealed reasoning through a client that speaks Messages.

A client returns `signature` and the `data` of a redacted block word for word, so what another maker sealed travels in them,
marked as ours, with the id of the item it belongs to. On the way back it is unpacked and goes to its maker alone; towards an
Anthropic upstream, whose own seals carry no mark, it is left out.
Source: streams.md section 5; protocol-facts.md section 6.6.
"""

from __future__ import annotations

from strom.protocols.anthropic_messages.reader import NAME

MARK = "strom."


def pack(protocol: str, item_id: str, data: str) -> str:
    if protocol == NAME:
        return data
    return f"{MARK}{protocol}.{'' if '.' in item_id else item_id}.{data}"


def unpack(data: str) -> tuple[str, str, str]:
    """(protocol, item id, data). What carries no mark of ours is Anthropic's own."""
    if not data.startswith(MARK):
        return NAME, "", data
    protocol, _, rest = data.removeprefix(MARK).partition(".")
    item_id, _, data = rest.partition(".")
    return protocol, item_id, data
