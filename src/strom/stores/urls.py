"""Store URLs: which kind of store, and where.

    sqlite:///strom.db          relative to the working directory (three slashes)
    sqlite:////var/lib/strom.db absolute (four)
    postgresql://user@host/db   the password in the URL, in PGPASSWORD or in .pgpass
    memory://                   forgotten when the process ends

Source: product.md section 4, `[store]`; connection URIs: PostgreSQL 15 manual section 34.1.1.2. Nothing here opens anything.
"""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

import msgspec

from strom.core.errors import ConfigError

KNOWN = ("sqlite", "memory", "postgresql")
_SAME = {"postgres": "postgresql"}


class StoreUrl(msgspec.Struct, frozen=True):
    scheme: str
    path: str = ""
    """Of the file, for sqlite."""
    target: str = ""
    """The whole connection URI, for postgresql: it may hold a password, and no message repeats it."""

    def __repr__(self) -> str:
        return f"StoreUrl({self.shown})"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        if self.scheme == "sqlite":
            return f"sqlite:///{self.path}"
        return f"{self.scheme}://" if self.scheme == "memory" else without_password(self.target)

    @property
    def digest(self) -> str:
        """Names the store in a file name."""
        return hashlib.sha256(self.shown.encode()).hexdigest()[:16]


def parse_store_url(text: str) -> StoreUrl:
    """Raises ConfigError. Does not repeat the URL, which may carry a password."""
    given, found, rest = text.partition("://")
    scheme = _SAME.get(given, given)
    if not found or scheme not in KNOWN:
        raise ConfigError(_refusal(given if found else ""))
    if scheme == "memory":
        if rest:
            raise ConfigError("memory:// takes nothing after the slashes")
        return StoreUrl("memory")
    return _postgres(f"{scheme}://{rest}") if scheme == "postgresql" else _sqlite(rest)


def without_password(target: str) -> str:
    """A connection URI as messages may show it: no password, no query, which may hold one too."""
    parts = urlsplit(target)
    user, at, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{place}{parts.path}"


def _sqlite(rest: str) -> StoreUrl:
    if not rest.startswith("/") or rest in ("/", "//"):
        raise ConfigError("expected sqlite:///file.db (relative) or sqlite:////folder/file.db (absolute)")
    if rest == "/:memory:":
        raise ConfigError("for a store that is not kept use memory://")
    return StoreUrl("sqlite", rest[1:])


def _postgres(target: str) -> StoreUrl:
    try:
        parts = urlsplit(target)
        database, places = parts.path.strip("/"), parts.netloc
    except ValueError:
        database = places = ""
    if places.count("@") > 1:  # libpq takes what follows the first for the host, and its errors tell the host
        raise ConfigError("in a user or a password of the store's URL, @ is written %40")
    if not database or "/" in database or "@" in database:  # with a slash too many, a password
        raise ConfigError("expected postgresql://user@host/database")
    return StoreUrl("postgresql", target=target)


def _refusal(scheme: str) -> str:
    named = f" {scheme}://" if scheme.isalnum() else ""
    return f"unknown kind of store{named}; known are sqlite:///, postgresql:// and memory://"
