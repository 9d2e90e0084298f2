"""Who calls. A key may come as `Authorization: Bearer` or as `x-api-key`; one known key admits.

Where a client sends two credentials of which one is ours (Claude Code with a session token of its own), ours counts and
the other is ignored and never sent on. Two known but different keys are refused: it would be a guess whose limits bind.
Keys are compared by their SHA-256, in constant time.
"""

from __future__ import annotations

import hashlib
import hmac

from strom.core.access import KeySettings
from strom.core.errors import AuthError

Headers = list[tuple[bytes, bytes]]
MISSING = "No API key was sent. Send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
UNKNOWN = "The API key is not known to this gateway."
TWO_KEYS = "Two different API keys were sent at once: send one of them."


class KeyRing:
    """The keys of the configuration. `required` False: a call without a known key is admitted as nobody."""

    def __init__(self, keys: tuple[KeySettings, ...], *, required: bool) -> None:
        self._keys = {bytes.fromhex(key.sha256): key for key in keys}
        self.required = required

    def authenticate(self, headers: Headers) -> KeySettings | None:
        """The caller's key, or None for nobody. Raises AuthError."""
        if not self._keys and not self.required:
            return None
        presented = credentials(headers)
        found = [key for key in map(self._find, presented) if key is not None]
        if len({key.sha256 for key in found}) > 1:
            raise AuthError(TWO_KEYS)
        if found:
            return found[0]
        if self.required:
            raise AuthError(UNKNOWN if presented else MISSING)
        return None

    def _find(self, credential: bytes) -> KeySettings | None:
        digest = hashlib.sha256(credential).digest()
        found: KeySettings | None = None
        for known, key in self._keys.items():
            if hmac.compare_digest(known, digest):
                found = key
        return found


def credentials(headers: Headers) -> list[bytes]:
    """What a client presents, without the scheme. Empty values count as absent."""
    result = []
    for name, value in headers:
        if name == b"x-api-key":
            result.append(value.strip())
        elif name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                result.append(token.strip())
    return [value for value in result if value]
