"""Who calls. A key may come as `Authorization: Bearer` or as `x-api-key`; one known key admits.

Where a client sends two credentials of which one is ours (Claude Code with a session token of its own), ours counts and
the other is ignored and never sent on. Two known but different keys are refused: it would be a guess whose limits bind.
Keys are found by the first bytes of their SHA-256 and compared by the whole of it, in constant time. A key that is known but
of no use any more (expired, revoked, switched off) is told so; whoever does not know the secret learns nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec

from strom.core.access import KeySettings
from strom.core.errors import AuthError, PermissionDenied

Headers = list[tuple[bytes, bytes]]
MISSING = "No API key was sent. Send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
UNKNOWN = "The API key is not known to this gateway."
TWO_KEYS = "Two different API keys were sent at once: send one of them."
_FOUND_BY = 8
"""Bytes of the digest that find the candidates."""


class Credential(msgspec.Struct, frozen=True):
    """One secret of a key. `replaced_at`: the end of the overlap, where a newer one took its place."""

    digest: bytes
    key: KeySettings
    replaced_at: float | None = None
    revoked: bool = False


Table = dict[bytes, tuple[Credential, ...]]


class ManagedTable(Protocol):
    """Keys that change while the gateway runs."""

    @property
    def table(self) -> Table: ...

    def note_use(self, key_id: str) -> None: ...


def tabulate(credentials: Iterable[Credential]) -> Table:
    table: Table = {}
    for credential in credentials:
        start = credential.digest[:_FOUND_BY]
        table[start] = (*table.get(start, ()), credential)
    return table


class KeyRing:
    """The keys of the configuration, and those that are managed. `required` False: a call without a known key is admitted
    as nobody."""

    def __init__(
        self,
        keys: tuple[KeySettings, ...],
        *,
        required: bool,
        managed: ManagedTable | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys
        self.required = required
        self._static = tabulate(Credential(bytes.fromhex(key.sha256), key) for key in keys)
        self._managed = managed
        self._wall = wall

    def authenticate(self, headers: Headers) -> KeySettings | None:
        """The caller's key, or None for nobody. Raises AuthError."""
        managed = self._managed.table if self._managed is not None else None
        if not self.required and not self._static and not managed:
            return None
        presented = credentials(headers)
        found = None
        for value in presented:
            known = self._find(value, managed)
            if known is not None:
                if found is not None and known.key is not found.key:
                    raise AuthError(TWO_KEYS)
                if found is None or found.replaced_at is not None:  # of two secrets of one key the newer counts
                    found = known
        if found is None:
            if self.required:
                raise AuthError(UNKNOWN if presented else MISSING)
            return None
        key = found.key
        if key.disabled or found.revoked or key.expires_at is not None or found.replaced_at is not None:
            refuse_unusable(found, self._wall())
        if key.id and self._managed is not None:
            self._managed.note_use(key.id)
        return key

    def _find(self, value: bytes, managed: Table | None) -> Credential | None:
        digest = hashlib.sha256(value).digest()
        start = digest[:_FOUND_BY]
        candidates = self._static.get(start)
        if candidates is None and managed is not None:
            candidates = managed.get(start)
        found = None
        if candidates is not None:
            for candidate in candidates:
                if hmac.compare_digest(candidate.digest, digest):
                    found = candidate
        return found


def refuse_unusable(credential: Credential, now: float) -> None:
    """Raises AuthError. Called for a secret that matched, so that its owner learns why it does not work."""
    key = credential.key
    if credential.revoked:
        raise _unusable(key, f"The API key {key.name!r} was revoked.", "api_key_revoked")
    if key.disabled:
        raise _unusable(key, f"The API key {key.name!r} is disabled.", "api_key_disabled")
    if key.expires_at is not None and key.expires_at <= now:
        raise _unusable(key, f"The API key {key.name!r} has expired.", "api_key_expired")
    if credential.replaced_at is not None and credential.replaced_at <= now:
        text = f"This secret of the API key {key.name!r} was replaced by a newer one."
        raise _unusable(key, text, "api_key_replaced")


def _unusable(key: KeySettings, text: str, code: str) -> AuthError:
    error = AuthError(text, code=code)
    error.key_name = key.name
    return error


def check_route(key: KeySettings, path: str) -> None:
    """Raises PermissionDenied."""
    if key.routes and not any(fnmatchcase(path, pattern) for pattern in key.routes):
        raise PermissionDenied(f"This key may not ask {path[:200]}.")


def credentials(headers: Headers) -> list[bytes]:
    """What a client presents, without the scheme. Empty values count as absent."""
    result: list[bytes] = []
    for name, value in headers:
        if name == b"x-api-key":
            token = value.strip()
        elif name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            token = token.strip() if scheme == b"Bearer" or scheme.lower() == b"bearer" else b""
        else:
            continue
        if token:
            result.append(token)
    return result
