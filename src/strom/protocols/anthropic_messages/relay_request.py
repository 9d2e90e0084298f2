"""A Messages request for a Messages upstream: the client's own bytes, changed only where policy or the upstream demands it.

The model is replaced, top-level nulls are left out, `stream` is what the gateway wants upstream. Messages stay byte for
byte, so signatures and cache prefixes hold, but for what the API refuses: tool ids with illegal characters (as other
providers give them out, and they stay in the history) are mapped, and thinking blocks without a signature, or with that of
another maker, are left out.
Source: protocol-facts.md rules 15 and 6.3; anthropic API errors "String should match pattern", "Invalid signature".
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core import ids
from strom.core.messages import Message, Request, ThinkingPart, ToolCallPart, ToolResultPart
from strom.protocols.anthropic_messages import carry, schema
from strom.protocols.anthropic_messages.encode_request import HEADERS, PATH, encode_request
from strom.protocols.anthropic_messages.reader import NAME
from strom.protocols.codec import Target, UpstreamCall
from strom.wire.splice import join, split

_LIST = msgspec.json.Decoder(list[Raw])
_ID = msgspec.json.Decoder(str)
_TYPED = msgspec.json.Decoder(schema.Typed)
_SEALS = {"thinking": "signature", "redacted_thinking": "data"}
_FOREIGN_SEAL = b'"' + carry.MARK.encode()
_ID_MEMBERS = {"tool_use": "id", "tool_result": "tool_use_id"}


def relay_request(body: bytes, request: Request, target: Target) -> UpstreamCall:
    """`request` is what `decode_request` made of `body`. Raises BadRequest, Unsupported."""
    members = {name: value for name, value in split(body).items() if value != b"null"}
    dropped: list[str] = []
    members["model"] = schema.ENCODER.encode(target.model)
    if target.stream:
        members["stream"] = b"true"
    else:
        members.pop("stream", None)
    if not target.quirks.mid_system and _has_mid_system(request.messages):
        encoded = encode_request(request, target)
        dropped.extend(encoded.dropped)
        members.update({name: value for name, value in split(encoded.body).items() if name in ("messages", "system")})
    elif any(_needs_repair(message) for message in request.messages):
        members["messages"] = _repaired(members["messages"], dropped)
    return UpstreamCall(PATH, join(members), list(HEADERS), tuple(dropped))


def _has_mid_system(messages: tuple[Message, ...]) -> bool:
    roles = [message.role for message in messages]
    return "system" in roles[1:]


def _needs_repair(message: Message) -> bool:
    for part in message.parts:
        match part:
            case ToolCallPart(call_id) | ToolResultPart(call_id):
                if ids.to_legal(call_id) != call_id:
                    return True
            case ThinkingPart():
                if part.origin != NAME or not (part.signature or part.encrypted):
                    return True
            case _:
                pass
    return False


def _repaired(messages: bytes, dropped: list[str]) -> bytes:
    kept: list[bytes] = []
    for at, raw in enumerate(_LIST.decode(messages)):
        message = bytes(raw)
        members = split(message)
        content = members.get("content", b"")
        if content.startswith(b"["):
            blocks = [bytes(block) for block in _LIST.decode(content)]
            repaired = _repair_blocks(blocks, f"messages[{at}]", dropped)
            if blocks and not repaired:
                continue  # nothing but unsigned thinking: an empty turn would be refused
            if repaired != blocks:
                members["content"] = b"[" + b",".join(repaired) + b"]"
                message = join(members)
        kept.append(message)
    return b"[" + b",".join(kept) + b"]"


def _repair_blocks(blocks: list[bytes], where: str, dropped: list[str]) -> list[bytes]:
    kept: list[bytes] = []
    for block in blocks:
        kind = _TYPED.decode(block).type
        seal = split(block).get(_SEALS[kind], b'""') if kind in _SEALS else b""
        if seal in (b'""', b"null"):
            dropped.append(f"{where} thinking (unsigned)")
        elif seal.startswith(_FOREIGN_SEAL):
            dropped.append(f"{where} thinking (another maker's)")
        else:
            kept.append(_with_legal_id(block, _ID_MEMBERS.get(kind)))
    return kept


def _with_legal_id(block: bytes, member: str | None) -> bytes:
    if member is None:
        return block
    members = split(block)
    wire_id = _ID.decode(members[member])
    if ids.is_legal(wire_id):
        return block
    members[member] = schema.ENCODER.encode(ids.to_legal(wire_id))
    return join(members)
