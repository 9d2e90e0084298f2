"""Making, rotating and revoking managed keys: what the command line and the platform API have in common.

A secret is `sk-strom-<id>-<secret>`: the id finds the key in lists and logs, the second part is 190 bits from the system's
random source. It is given out once, here, and kept nowhere.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import time
from collections.abc import Callable, Collection

import msgspec

from strom.core.errors import BadRequest, NotFound
from strom.stores.keys import KeyPage, KeyScopes, KeySecret, KeyStore, ManagedKey

PREFIX = "sk-strom-"
SECRET_LENGTH = 32
"""Of 62 letters each: 190 bits."""
_ID_LENGTH = 10
_LETTERS = string.ascii_letters + string.digits
_LONGEST_NAME = 100
LONGEST_OVERLAP_S = 90 * 86_400.0


class Made(msgspec.Struct, frozen=True):
    """`secret` is shown once, to whoever asked for the key."""

    key: ManagedKey
    secret: str


class KeyMaker:
    """Blocks, as the store does. `taken`: names of keys in the configuration; `policies`: ids a key may name (None: any)."""

    def __init__(
        self,
        store: KeyStore,
        *,
        taken: Collection[str] = (),
        policies: Collection[str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._taken = taken
        self._policies = policies
        self._wall = wall

    def create(self, name: str, scopes: KeyScopes, expires_at: float | None = None) -> Made:
        """Raises BadRequest."""
        now = self._wall()
        self._check(name, scopes)
        if expires_at is not None and expires_at <= now:
            raise BadRequest("expires_at: this instant is past", param="expires_at")
        identity = _random(_ID_LENGTH, string.ascii_lowercase + string.digits)
        key = ManagedKey(identity, name, PREFIX + identity, now, scopes, expires_at)
        secret = _new_secret(key)
        self._store.create(key, KeySecret(_hash(secret), key.id, now))
        return Made(key, secret)

    def rotate(self, wanted: str, overlap_s: float) -> Made:
        """The new secret is valid at once, the old ones until the overlap ends. Raises BadRequest, NotFound."""
        if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
            raise BadRequest(f"overlap_s: expected a number from 0 to {LONGEST_OVERLAP_S:.0f}", param="overlap_s")
        key = self.find(wanted)
        if key.revoked_at is not None:
            raise BadRequest(f"The key {key.name!r} was revoked: create a new one.", status=409, code="key_revoked")
        now = self._wall()
        secret = _new_secret(key)
        self._store.rotate(KeySecret(_hash(secret), key.id, now), now + overlap_s)
        return Made(key, secret)

    def revoke(self, wanted: str) -> ManagedKey:
        """For good. Raises NotFound, BadRequest."""
        key = self.find(wanted)
        self._store.revoke(key.id, self._wall())
        return self.find(key.id)

    def set_disabled(self, wanted: str, *, disabled: bool) -> ManagedKey:
        """Raises NotFound, BadRequest."""
        key = self.find(wanted)
        self._store.set_disabled(key.id, disabled=disabled)
        return self.find(key.id)

    def find(self, wanted: str) -> ManagedKey:
        """By id, prefix, or name; by name the one that is not revoked, if any. A whole secret is cut to its prefix first.
        Raises NotFound."""
        found = self._store.find(prefix_of(wanted))
        if not found:
            raise NotFound(f"There is no key {prefix_of(wanted)[:_LONGEST_NAME]!r}.")
        return next((key for key in found if key.revoked_at is None), found[0])

    def list(self, limit: int, cursor: str | None = None) -> KeyPage:
        return self._store.list(limit, cursor)

    def _check(self, name: str, scopes: KeyScopes) -> None:
        if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise BadRequest(f"name: expected 1 to {_LONGEST_NAME} printable characters", param="name")
        if name.startswith(PREFIX):
            raise BadRequest(f"name: {PREFIX} begins secrets, not names", param="name")
        if name in self._taken:
            words = f"There is a key named {name!r} in the configuration."
            raise BadRequest(words, param="name", status=409, code="name_taken")
        if scopes.policy is not None and self._policies is not None and scopes.policy not in self._policies:
            known = ", ".join(sorted(self._policies)) or "none"
            raise BadRequest(f"There is no policy {scopes.policy[:100]!r}. Known: {known}.", param="policy")
        for what, patterns in (("models", scopes.models), ("routes", scopes.routes)):
            if not all(pattern and pattern.isprintable() and pattern == pattern.strip() for pattern in patterns):
                raise BadRequest(f"{what}: expected printable patterns without blanks around", param=what)


def prefix_of(wanted: str) -> str:
    """Of a secret that was pasted whole: it must not be looked up, nor repeated in an error."""
    if not wanted.startswith(PREFIX):
        return wanted
    return PREFIX + wanted.removeprefix(PREFIX).partition("-")[0]


def _new_secret(key: ManagedKey) -> str:
    return f"{key.prefix}-{_random(SECRET_LENGTH, _LETTERS)}"


def _random(length: int, letters: str) -> str:
    return "".join([secrets.choice(letters) for _ in range(length)])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
