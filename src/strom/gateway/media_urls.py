"""Which addresses of media may be fetched: http and https, on hosts that are public, however they are written.

A name is looked up once, all its addresses are judged, and the connection goes to one of those that were judged: an answer that
changes afterwards changes nothing. A host that looks like a number is only taken in the usual form of an IP address, since
resolvers also read decimal, octal and hexadecimal forms.
Source: RFC 6890 (special-purpose addresses), RFC 4291 section 2.4 (global unicast), WHATWG URL, "ends in a number checker".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from strom.core.errors import BadRequest
from strom.transport.types import Origin

_UNFIT = re.compile(r"[\x00-\x20\x7f\\]")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+", re.IGNORECASE)
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_SCHEMES: dict[str, Literal["http", "https"]] = {"http": "http", "https": "https"}
_KEPT = "%/:=&?~+!$,;'@()*[]-._"


class Place(msgspec.Struct, frozen=True):
    """Where something is fetched from. `target`: path and query."""

    origin: Origin
    target: str


def parse_place(url: str, where: str) -> Place:
    """Raises BadRequest for an address that is none, or none that may be fetched."""
    problem = BadRequest(f"{where}: its address is no http or https URL that can be fetched.", param="messages")
    if _UNFIT.search(url):
        raise problem
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise problem from None
    scheme = _SCHEMES.get(parts.scheme.lower())
    if scheme is None or not _HOST.fullmatch(host) or port == 0:
        raise problem
    if parts.username is not None or parts.password is not None:
        raise BadRequest(f"{where}: an address with a user or password in it is not fetched.", param="messages")
    if _is_disguised(host):
        raise _not_public(where)
    target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    return Place(Origin(scheme, host, port or (443 if scheme == "https" else 80)), target)


def choose_address(addresses: Sequence[str], where: str) -> str:
    """The first of a host's addresses. Raises BadRequest unless all of them are public."""
    if not addresses:
        raise BadRequest(f"{where}: the host of its address cannot be found.", param="messages")
    if not all(is_public(address) for address in addresses):
        raise _not_public(where)
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether anybody on the internet could reach it. What carries an IPv4 address inside of an IPv6 one never is."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found not in _GLOBAL_UNICAST or found.sixtofour is not None or found.teredo is not None:
            return False
    elif found.is_multicast or found.is_reserved:
        return False
    return found.is_global


def _is_disguised(host: str) -> bool:
    """127.1, 2130706433, 0177.0.0.1, 0x7f.0.0.1: read as numbers by resolvers, and no IP address in its usual form."""
    if ":" in host or not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def _not_public(where: str) -> BadRequest:
    return BadRequest(f"{where}: its address does not lead to a public host, so it is not fetched.", param="messages")
