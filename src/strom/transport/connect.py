"""Opening a connection to an origin: name lookup, TCP, proxy, TLS, each failure mapped once to a `TransportFailure`.

Proxies come from the environment as curl and the common Python clients read it: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and
NO_PROXY, lower case before upper; http requests go to the proxy with an absolute target, https through CONNECT.
Certificates are verified against the system's (or SSL_CERT_FILE's) unless the origin says otherwise.

Source: RFC 9110 section 9.3.6 (CONNECT), RFC 9112 section 3.2.2 (absolute form).
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import msgspec

from strom.transport.dialing import dial, is_address, resolve
from strom.transport.types import FailureKind, Origin, TransportFailure

_MAX_PROXY_HEAD_BYTES = 16_384


class ConnectError(Exception):
    """No connection; `failure` says why."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.failure = TransportFailure(kind, detail, sent=False)


class Proxy(msgspec.Struct, frozen=True):
    """An http proxy. `authorization` is a header line with its CRLF, or empty. `fault`: why it cannot be used."""

    host: str
    port: int
    authorization: bytes = b""
    fault: str = ""


class Proxies:
    """Which proxy an origin is reached through, as an environment says; loopback addresses never are."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._by_scheme = {scheme: _parse_proxy(_read(environ, f"{scheme}_proxy")) for scheme in ("http", "https")}
        fallback = _parse_proxy(_read(environ, "all_proxy"))
        for scheme, proxy in self._by_scheme.items():
            self._by_scheme[scheme] = proxy or fallback
        self._exempt = [entry.strip().lower() for entry in _read(environ, "no_proxy").split(",") if entry.strip()]

    def choose(self, origin: Origin) -> Proxy | None:
        proxy = self._by_scheme[origin.scheme]
        if proxy is None or _is_loopback(origin.host) or any(_matches(entry, origin) for entry in self._exempt):
            return None
        return proxy


def _is_loopback(host: str) -> bool:
    """A proxy elsewhere cannot reach this machine's loopback, and one here is no way to it either."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _parse_proxy(url: str) -> Proxy | None:
    if not url.strip():
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return Proxy("", 0, fault="the proxy's URL is no URL")
    if parts.scheme != "http" or not host:
        return Proxy(host, port, fault=f"only http:// proxies are supported, not {parts.scheme}://")
    authorization = b""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = b"proxy-authorization: Basic %b\r\n" % base64.b64encode(secret)
    return Proxy(host, port, authorization)


def _matches(entry: str, origin: Origin) -> bool:
    """One entry of NO_PROXY: `*`, a domain with its subdomains, an address, a network, each also with a port."""
    if entry == "*":
        return True
    host = origin.host.lower().rstrip(".")
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and ("]" in name or ":" not in name):
        if int(port) != origin.port:
            return False
        entry = name
    entry = entry.strip("[]").lstrip("*").lstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host == entry or host.endswith("." + entry)


class TlsContexts:
    """The two client contexts, made when first needed: making one reads all certificates of the system."""

    def __init__(self) -> None:
        self._verified: ssl.SSLContext | None = None
        self._unverified: ssl.SSLContext | None = None

    def choose(self, origin: Origin) -> ssl.SSLContext:
        if origin.verify_tls:
            if self._verified is None:
                self._verified = _client_context()
            return self._verified
        if self._unverified is None:
            self._unverified = _client_context()
            self._unverified.check_hostname = False
            self._unverified.verify_mode = ssl.CERT_NONE
        return self._unverified


def _client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


async def connect(
    origin: Origin, proxy: Proxy | None, tls: TlsContexts, factory: Callable[[], ProtocolT], *, timeout_s: float
) -> ProtocolT:
    """A protocol made by `factory` on an open connection. Raises ConnectError."""
    try:
        async with asyncio.timeout(timeout_s):
            if proxy is None:
                return await _direct(origin, tls, factory)
            return await _proxied(origin, proxy, tls, factory)
    except TimeoutError:
        raise ConnectError("connect_timeout", f"no connection within {timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise ConnectError("tls", str(error)) from None
    except (OSError, OverflowError, ValueError) as error:
        raise ConnectError("connect", f"{type(error).__name__}: {error}") from None


async def _direct(origin: Origin, tls: TlsContexts, factory: Callable[[], ProtocolT]) -> ProtocolT:
    loop = asyncio.get_running_loop()
    context = tls.choose(origin) if origin.scheme == "https" else None
    name = origin.host if context is not None else None
    where = await _reach(origin.host, origin.port)
    _, protocol = await loop.create_connection(factory, **where, ssl=context, server_hostname=name)
    return protocol


async def _reach(host: str, port: int) -> dict[str, Any]:
    """What `create_connection` needs for this place: an address as it is, or a socket that has won among several."""
    if is_address(host):
        return {"host": host, "port": port}
    addresses = await resolve(host, port)
    if len(addresses) == 1:
        return {"host": addresses[0].place[0], "port": port}
    return {"sock": await dial(addresses)}


async def _proxied(origin: Origin, proxy: Proxy, tls: TlsContexts, factory: Callable[[], ProtocolT]) -> ProtocolT:
    if proxy.fault:
        raise ConnectError("proxy", proxy.fault)
    loop = asyncio.get_running_loop()
    if origin.scheme == "http":
        _, plain = await _to_proxy(proxy, factory)
        return plain
    transport, tunnel = await _to_proxy(proxy, lambda: _Tunnel(origin, proxy.authorization, loop.create_future()))
    try:
        await tunnel.opened
        protocol = factory()
        wrapped = await loop.start_tls(transport, protocol, tls.choose(origin), server_hostname=origin.host)
    except BaseException:  # cancellation too: nobody else knows of this transport
        transport.abort()
        raise
    if wrapped is None:
        raise ConnectError("tls", "the proxy's connection ended during the handshake")
    protocol.connection_made(wrapped)
    return protocol


async def _to_proxy(proxy: Proxy, factory: Callable[[], ProtocolT]) -> tuple[asyncio.Transport, ProtocolT]:
    try:
        where = await _reach(proxy.host, proxy.port)
        return await asyncio.get_running_loop().create_connection(factory, **where)
    except TimeoutError:
        raise
    except OSError as error:
        raise ConnectError("proxy", f"proxy not reachable: {error}") from None


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel; `opened` is done when it stands or failed."""

    def __init__(self, origin: Origin, authorization: bytes, opened: asyncio.Future[None]) -> None:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        place = f"{host}:{origin.port}".encode("idna" if not host.isascii() else "ascii")
        self._request = b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (place, place, authorization)
        self._answer = b""
        self.opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _MAX_PROXY_HEAD_BYTES:
                self._fail("the proxy's answer is too long")
            return
        words = head.split(b"\r\n", 1)[0].split(None, 2)
        status = words[1].decode("latin-1") if len(words) > 1 else ""
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not (len(status) == 3 and status[0] == "2") or rest:
            self._fail(f"the proxy refused the tunnel: {status or 'no HTTP answer'}")
        elif not self.opened.done():
            self.opened.set_result(None)

    def eof_received(self) -> None:
        self._fail("the proxy closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the proxy closed the connection")

    def _fail(self, detail: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectError("proxy", detail))
