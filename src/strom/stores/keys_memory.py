"""Managed keys in memory: forgotten when the process ends."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping

import msgspec

from strom.stores.keys import (
    KeyPage,
    KeySecret,
    ManagedKey,
    Snapshot,
    decode_key_cursor,
    encode_key_cursor,
    name_taken,
)


class MemoryKeys:
    """A KeyStore."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._keys: dict[str, ManagedKey] = {}
        self._secrets: dict[str, KeySecret] = {}

    def version(self) -> int:
        return self._version

    def snapshot(self) -> Snapshot:
        with self._lock:
            return Snapshot(self._version, tuple(self._keys.values()), tuple(self._secrets.values()))

    def list(self, limit: int, cursor: str | None = None) -> KeyPage:
        before = decode_key_cursor(cursor) if cursor else None
        with self._lock:
            known = list(self._keys.values())
        found = [key for key in known if before is None or (key.created_at, key.id) < before]
        found.sort(key=_age, reverse=True)
        return KeyPage(tuple(found[:limit]), encode_key_cursor(found[limit - 1]) if len(found) > limit else None)

    def find(self, wanted: str) -> builtins.list[ManagedKey]:
        with self._lock:
            found = [key for key in self._keys.values() if wanted in (key.id, key.prefix, key.name)]
        return sorted(found, key=_age, reverse=True)

    def create(self, key: ManagedKey, secret: KeySecret) -> None:
        with self._lock:
            if any(other.name == key.name and other.revoked_at is None for other in self._keys.values()):
                raise name_taken(key.name)
            self._keys[key.id] = key
            self._secrets[secret.sha256] = secret
            self._version += 1

    def rotate(self, secret: KeySecret, overlap_until: float) -> None:
        with self._lock:
            for digest, old in self._secrets.items():
                if old.key_id == secret.key_id and (old.expires_at is None or old.expires_at > overlap_until):
                    self._secrets[digest] = msgspec.structs.replace(old, expires_at=overlap_until)
            self._secrets[secret.sha256] = secret
            self._version += 1

    def revoke(self, key_id: str, at: float) -> None:
        with self._lock:
            key = self._keys.get(key_id)
            if key is not None and key.revoked_at is None:
                self._keys[key_id] = msgspec.structs.replace(key, revoked_at=at)
                self._version += 1

    def set_disabled(self, key_id: str, *, disabled: bool) -> None:
        with self._lock:
            if key_id in self._keys:
                self._keys[key_id] = msgspec.structs.replace(self._keys[key_id], disabled=disabled)
                self._version += 1

    def touch(self, used: Mapping[str, float]) -> None:
        with self._lock:
            for key_id, at in used.items():
                if key_id in self._keys:
                    self._keys[key_id] = msgspec.structs.replace(self._keys[key_id], last_used_at=at)

    def close(self) -> None:
        pass


def _age(key: ManagedKey) -> tuple[float, str]:
    return key.created_at, key.id
