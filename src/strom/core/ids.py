"""Tool-call ids that a protocol refuses, mapped to legal ones and back.

Anthropic takes `[A-Za-z0-9_-]+` only, OpenAI at most 64 characters. The mapping keeps no state, so that a call and its result,
this turn and the next one, and every process agree:

- a legal id stays as it is, unless it looks exactly like an id made here (then it is mapped as well: no collisions);
- any other id becomes `PREFIX` + base64url of its UTF-8, which `from_legal` undoes;
- an id too long for that becomes `DIGEST_PREFIX` + SHA-256. It cannot be undone, but stays the same wherever it occurs.

Source: Anthropic's 400 "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; openai `call_id` maxLength 64.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

MAX_LENGTH = 64
PREFIX = "strom_"
DIGEST_PREFIX = "stromx_"
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def is_legal(call_id: str) -> bool:
    return 0 < len(call_id) <= MAX_LENGTH and _LEGAL.issuperset(call_id)


def to_legal(call_id: str) -> str:
    """A legal id for any text; different ids stay different, and `from_legal` gives the original back (digests excepted)."""
    if is_legal(call_id) and from_legal(call_id) == call_id:
        return call_id
    encoded = PREFIX + _encode(call_id)
    if len(encoded) <= MAX_LENGTH:
        return encoded
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()
    return DIGEST_PREFIX + urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def from_legal(call_id: str) -> str:
    """The id `to_legal` was given; any other id unchanged."""
    if not call_id.startswith(PREFIX) or not is_legal(call_id):
        return call_id
    payload = call_id[len(PREFIX) :]
    try:
        original = urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return call_id
    return original if to_legal(original) == call_id else call_id  # else it only looks like ours


def _encode(text: str) -> str:
    return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii").rstrip("=")
