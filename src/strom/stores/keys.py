"""Managed keys: what is kept of them, and what a store of them offers. No secret stands here, only its SHA-256.

A plain hash is enough, and no slow one is used: a secret is 190 bits from the system's random source, so there is nothing to
guess from a stolen table, while a slow hash would be paid by every call. A key has one secret, and a second one while it is
being rotated.

Order of lists: newest first, by `created_at`, then by id.
"""

from __future__ import annotations

import base64
import binascii
import builtins
from collections.abc import Mapping
from typing import Protocol

import msgspec

from strom.core.access import NO_LIMITS, Limits
from strom.core.errors import BadRequest

_CURSOR = msgspec.json.Decoder(tuple[float, str])


class KeyScopes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key may do: as in `KeySettings`."""

    policy: str | None = None
    models: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    admin: bool = False
    may_pin_endpoint: bool = False
    limits: Limits = NO_LIMITS


class ManagedKey(msgspec.Struct, frozen=True):
    """Times in Unix seconds. `prefix`: how every secret of the key begins. `last_used_at` is coarse: a minute or so."""

    id: str
    name: str
    prefix: str
    created_at: float
    scopes: KeyScopes = KeyScopes()
    expires_at: float | None = None
    disabled: bool = False
    revoked_at: float | None = None
    last_used_at: float | None = None


class KeySecret(msgspec.Struct, frozen=True):
    """`expires_at`: the end of the overlap, for a secret that was replaced."""

    sha256: str
    key_id: str
    created_at: float
    expires_at: float | None = None


class KeyPage(msgspec.Struct, frozen=True):
    keys: tuple[ManagedKey, ...]
    next_cursor: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that is needed to know callers by."""

    version: int
    keys: tuple[ManagedKey, ...]
    secrets: tuple[KeySecret, ...]


class KeyStore(Protocol):
    """Blocks: not for the event loop's thread. Raises StromError only. `version` rises with every change but `touch`."""

    def version(self) -> int: ...

    def snapshot(self) -> Snapshot: ...

    def list(self, limit: int, cursor: str | None = None) -> KeyPage:
        """Raises BadRequest when the cursor is none of ours."""
        ...

    def find(self, wanted: str) -> builtins.list[ManagedKey]:
        """By id, by prefix, or by name; by name also those that were revoked."""
        ...

    def create(self, key: ManagedKey, secret: KeySecret) -> None:
        """Raises BadRequest when a key that is not revoked has the name."""
        ...

    def rotate(self, secret: KeySecret, overlap_until: float) -> None:
        """Add a secret; those there are end at `overlap_until`, or earlier if that was so."""
        ...

    def revoke(self, key_id: str, at: float) -> None: ...

    def set_disabled(self, key_id: str, *, disabled: bool) -> None: ...

    def touch(self, used: Mapping[str, float]) -> None:
        """When keys were last used, by id."""
        ...

    def close(self) -> None: ...


def name_taken(name: str) -> BadRequest:
    words = f"There is a key named {name!r} already: revoke it first, or take another name."
    return BadRequest(words, param="name", status=409, code="name_taken")


def encode_key_cursor(key: ManagedKey) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((key.created_at, key.id))).decode().rstrip("=")


def decode_key_cursor(cursor: str) -> tuple[float, str]:
    """Raises BadRequest."""
    try:
        return _CURSOR.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        raise BadRequest("cursor: not a cursor of this list; take next_cursor as it came", param="cursor") from None
