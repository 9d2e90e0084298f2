"""Store URLs: which kind of store, and where.

    sqlite:///strom.db          relative to the working directory (three slashes)
    sqlite:////var/lib/strom.db absolute (four)
    memory://                   forgotten when the process ends

Source: product.md section 4, `[store]`. Nothing here opens anything.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import ConfigError

KNOWN = ("sqlite", "memory")
_PLANNED = ("postgresql", "postgres")


class StoreUrl(msgspec.Struct, frozen=True):
    scheme: str
    path: str = ""
    """Of the file, for sqlite."""


def parse_store_url(text: str) -> StoreUrl:
    """Raises ConfigError. Does not repeat the URL, which may carry a password."""
    scheme, found, rest = text.partition("://")
    if not found or scheme not in KNOWN:
        raise ConfigError(_refusal(scheme if found else ""))
    if scheme == "memory":
        if rest:
            raise ConfigError("memory:// takes nothing after the slashes")
        return StoreUrl("memory")
    if not rest.startswith("/") or rest in ("/", "//"):
        raise ConfigError("expected sqlite:///file.db (relative) or sqlite:////folder/file.db (absolute)")
    if rest == "/:memory:":
        raise ConfigError("for a store that is not kept use memory://")
    return StoreUrl("sqlite", rest[1:])


def _refusal(scheme: str) -> str:
    if scheme in _PLANNED:
        return f"{scheme}:// stores are not available in this version; use sqlite:///strom.db"
    return f"unknown kind of store{f' {scheme}://' if scheme.isalnum() else ''}; known are sqlite:/// and memory://"
