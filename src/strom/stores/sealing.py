"""Stored content encrypted at rest: AES-256-GCM, a fresh nonce per value, the key's id beside it so that keys can be rotated.

A sealed value is bound to its place (owner, id, column): moved to another row it does not open. The first key seals, every key
opens. Needs `cryptography` (extra `encryption`), imported only when there is a key.
Source: NIST SP 800-38D (96-bit random nonces; far under 2^32 values per key).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strom.core.errors import ConfigError, GatewayError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_NONCE_BYTES = 12


class KeySet:
    """Never shows a key: not in repr, not in errors."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first one seals. Raises ConfigError without the package, or for a key of another length."""
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ConfigError(f"an encryption key has {KEY_BYTES} bytes")
        self._ciphers = {key_id(key): _cipher(key) for key in reversed(keys)}
        self.key_id = key_id(keys[0])

    def __repr__(self) -> str:
        return f"KeySet({self.key_id}, …)"

    def seal(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[self.key_id].encrypt(nonce, plain, _bound(place))

    def open(self, sealed: bytes, name: str, place: tuple[str, ...]) -> bytes:
        """Raises GatewayError: the key is not among ours, or the value was changed."""
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise GatewayError("stored content cannot be read: its encryption key is not configured", detail=name)
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(place))
        except (InvalidTag, ValueError):
            raise GatewayError("stored content cannot be read: it does not belong where it stands") from None


def key_id(key: bytes) -> str:
    """Names a key without telling it: keys are random, so that a short digest betrays nothing."""
    return hashlib.sha256(b"strom content key\0" + key).hexdigest()[:16]


def parse_key(text: str) -> bytes:
    """32 bytes as 64 hexadecimal digits or as base64. Raises ConfigError, which does not repeat the text."""
    word = text.strip()
    try:
        key = bytes.fromhex(word) if len(word) == 2 * KEY_BYTES else base64.b64decode(word, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError("expected 32 random bytes, as base64 or hexadecimal: `openssl rand -base64 32` makes them")
    return key


def _bound(place: tuple[str, ...]) -> bytes:
    return b"".join(len(part := word.encode()).to_bytes(4, "big") + part for word in place)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError("to encrypt stored content install the extra: pip install 'strom[encryption]'") from None
    return AESGCM(key)
