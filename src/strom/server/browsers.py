"""Requests that a web page made: which pages may, and how a browser is told so (CORS).

Without `allowed_origins` no page may read an answer, for no answer says that it may. Where no key is asked for, a page could
still do harm unread, so there its requests are refused: by their Origin when they come from another site, and, on loopback,
by their Host when a page had its own name point here (DNS rebinding). Programs send no Origin and are not touched. Pages of
this machine itself (http://localhost:3000) are no other site: they get no CORS headers, but are not refused.

Source: Fetch standard, sections 3.2 (Origin) and 3.3 (CORS protocol); RFC 6454.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from strom.core.errors import PermissionDenied
from strom.server.exchanges import Forwarding
from strom.transport.types import Exchange, Headers

_FIELD_NAMES = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z, ]{1,1000}")
_METHODS = b"GET, HEAD, POST, DELETE"
_MAX_AGE = b"600"
_MAX_REMEMBERED = 64


class BrowserRules:
    """`open_to_all`: no key is asked for. `hosts`: names this gateway goes by; None: the Host of a request is not looked at."""

    def __init__(self, origins: Iterable[str], *, open_to_all: bool, hosts: Iterable[str] | None) -> None:
        self._origins = frozenset(origin.lower().rstrip("/").encode() for origin in origins)
        self._open = open_to_all
        self._hosts = None if hosts is None else frozenset(map(str.lower, hosts))
        self._good_hosts: set[bytes] = set()

    def admit(self, exchange: Exchange) -> Exchange | None:
        """The exchange to answer, or None when it was answered here. Raises PermissionDenied."""
        head = exchange.head
        host = head.fields.get(b"host")
        if self._hosts is not None and host is not None and host not in self._good_hosts:
            self._check_host(host)
        if b"origin" not in head.fields:
            return exchange
        return self._admit_page(exchange, head.header_all(b"origin"), host or b"")

    def _check_host(self, value: bytes) -> None:
        assert self._hosts is not None
        name = _host_name(value)
        if not (_is_here(name) or _is_address(name) or _is_private(name) or name in self._hosts):
            raise PermissionDenied(
                f"This gateway does not go by the name {name[:200]!r}. If it should, add the name to [server] allowed_hosts."
            )
        if len(self._good_hosts) < _MAX_REMEMBERED:
            self._good_hosts.add(value)

    def _admit_page(self, exchange: Exchange, origins: list[bytes], host: bytes) -> Exchange | None:
        origin = origins[0]
        if len(origins) == 1 and (origin.lower() in self._origins or b"*" in self._origins):
            return _allow(exchange, origin)
        if self._open and not all(_is_own(one, host) for one in origins):
            shown = origin[:200].decode("latin-1")
            raise PermissionDenied(
                f"Pages of {shown!r} may not use this gateway. If they should, add that origin to [server] allowed_origins."
            )
        return exchange


def _is_own(origin: bytes, host: bytes) -> bool:
    """A page of this gateway or of this machine."""
    scheme, found, place = origin.lower().partition(b"://")
    if not found or scheme not in (b"http", b"https"):
        return False
    return place == host.lower() or _is_here(_host_name(place))


def _host_name(place: bytes) -> str:
    """Without the port and the brackets of IPv6; "" for what is no host."""
    try:
        return (urlsplit(f"//{place.decode('ascii')}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_here(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_private(name: str) -> bool:
    """A name that no public site can have: of one label (a container's, a machine's), or below a reserved suffix.

    Source: RFC 6762 section 3 (local); the ICANN Board's resolution of 2024-07-29 (internal).
    """
    return bool(name) and ("." not in name or name.endswith((".local", ".internal")))


def _is_address(name: str) -> bool:
    """An address cannot be made to point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _allow(exchange: Exchange, origin: bytes) -> Exchange | None:
    told: Headers = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
    head = exchange.head
    if head.method != "OPTIONS" or head.header(b"access-control-request-method") is None:
        return PageExchange(exchange, [*told, (b"access-control-expose-headers", b"*")])
    told += [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _MAX_AGE)]
    names = head.header(b"access-control-request-headers")
    if names is not None and _FIELD_NAMES.fullmatch(names):
        told.append((b"access-control-allow-headers", names))
    if head.header(b"access-control-request-private-network") is not None:
        told.append((b"access-control-allow-private-network", b"true"))
    exchange.respond(204, told, b"")
    return None


class PageExchange(Forwarding):
    """An exchange whose response says besides that a page may read it."""

    __slots__ = ("_told", "write")

    def __init__(self, inner: Exchange, told: Headers) -> None:
        super().__init__(inner)
        self.write = inner.write
        self._told = told

    def start(self, status: int, headers: Headers, *, length: int | None = None) -> None:
        super().start(status, [*headers, *self._told], length=length)

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        super().respond(status, [*headers, *self._told], body)
