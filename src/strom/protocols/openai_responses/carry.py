"""Carries other protocols' signatures through a client that speaks Responses.

A client returns `encrypted_content` word for word, so a signature of another maker travels in it, marked as ours. On
the way back it is unpacked and goes to its maker alone; towards a Responses upstream whatever carries our mark is
left out.
Source: protocol-facts.md sections 2.4 and 6.6.
"""

from __future__ import annotations

from strom.protocols.openai_responses.schema import NAME

MARK = "strom."
REASONING_ID = "rs_strom_"
"""Ids of reasoning items that no upstream made."""
SIGNATURE, REDACTED = "signature", "redacted"


def pack(protocol: str, kind: str, data: str) -> str:
    """The encrypted_content for a signature or a redacted block."""
    return data if protocol == NAME else f"{MARK}{protocol}.{kind}.{data}"


def unpack(content: str) -> tuple[str, str, str]:
    """(protocol, kind, data). What carries no mark of ours is this protocol's own."""
    if not content.startswith(MARK):
        return NAME, SIGNATURE, content
    protocol, _, rest = content.removeprefix(MARK).partition(".")
    kind, _, data = rest.partition(".")
    return protocol, kind, data


def is_foreign(content: str | None, item_id: str) -> bool:
    """Whether a reasoning item was made by us for another protocol's reasoning, so that no Responses upstream knows it."""
    return (content or "").startswith(MARK) or item_id.startswith(REASONING_ID)
