"""The ports of one process: the gateway's, and the operators' where they have one of their own; with TLS if configured.

Invariant: what cannot listen or cannot be read fails the start; at a reload it is refused and what is in use stays.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Sequence

import msgspec

from strom.config.settings import Settings
from strom.core.errors import ConfigError
from strom.server.browsers import BrowserRules
from strom.server.front import Front
from strom.transport.listener import Listener
from strom.transport.tls import ServerTls, TlsFault, TlsFiles
from strom.transport.types import ServerLimits

ADMIN_HOST = "127.0.0.1"
_OTHER_DESCRIPTORS = 256
"""Files, pools, the loop's own: what a process opens besides one descriptor for a client and one for its upstream."""

_WORTH_A_WORD = 0.9
"""Below this part of the connections that were asked for."""


def server_limits(settings: Settings) -> ServerLimits:
    server = settings.server
    return ServerLimits(
        max_body_bytes=server.max_body_bytes,
        max_head_bytes=server.max_head_bytes,
        head_timeout_s=server.head_timeout_s,
        body_timeout_s=server.body_timeout_s,
        min_body_bytes_per_s=server.min_body_bytes_per_s,
        keep_alive_s=server.keep_alive_s,
        slow_reader_s=server.slow_reader_s,
        max_connections=server.max_connections,
        max_connections_per_address=server.max_connections_per_address,
        max_receiving_bytes=server.max_receiving_bytes,
    )


def browser_rules(settings: Settings) -> BrowserRules:
    open_to_all = not settings.auth_required
    hosts = [settings.server.host, *settings.server.allowed_hosts] if open_to_all and settings.on_loopback else None
    return BrowserRules(settings.server.allowed_origins, open_to_all=open_to_all, hosts=hosts)


def make_room(max_connections: int) -> int:
    """Lets this process open as many descriptors as it may need; returns how many connections fit, if fewer."""
    wanted = 2 * max_connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max_connections
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    return min(max_connections, max(1, (possible - _OTHER_DESCRIPTORS) // 2))


def _tls_files(settings: Settings) -> TlsFiles | None:
    tls = settings.server.tls
    if tls.cert_file is None or tls.key_file is None:
        return None
    return TlsFiles(tls.cert_file, tls.key_file)


class Ports:
    """`warnings`: what the operator should know."""

    def __init__(self, settings: Settings, front: Front, admits: Callable[[], bool]) -> None:
        """Raises ConfigError when certificate and key cannot be used."""
        server = settings.server
        files = _tls_files(settings)
        self._tls = _make_tls(files) if files is not None else None
        limits = server_limits(settings)
        fitting = make_room(limits.max_connections)
        self.warnings: list[str] = []
        if fitting < limits.max_connections:
            limits = msgspec.structs.replace(limits, max_connections=fitting)
        if fitting < _WORTH_A_WORD * server.max_connections:
            self.warnings.append(f"the limit on open files leaves room for {fitting} connections (ulimit -n)")
        self._server = server
        self._listener = Listener(front.handle, limits, admits)
        self._admin: Listener | None = None
        if server.admin_port is not None:
            self._admin = Listener(front.handle_admin, limits, admits)

    @property
    def scheme(self) -> str:
        return "http" if self._tls is None else "https"

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def admin_place(self) -> tuple[str, int] | None:
        """Host and port of the operators' listener."""
        return None if self._admin is None else (self._server.admin_host or ADMIN_HOST, self._admin.port)

    async def start(self, sockets: Sequence[Sequence[socket.socket]] | None = None) -> None:
        """`sockets`: for each address those to listen on, where the parent has opened them. Raises CannotListen."""
        server, context = self._server, None if self._tls is None else self._tls.context
        places = [(self._listener, server.host, server.port)]
        if self._admin is not None:
            places.append((self._admin, server.admin_host or ADMIN_HOST, server.admin_port or 0))
        for number, (listener, host, port) in enumerate(places):
            try:
                await listener.start(host, port, ssl_context=context, sockets=sockets[number] if sockets else ())
            except OSError as error:
                await self.close()
                raise CannotListen(host, port, error) from error

    def reload(self, settings: Settings) -> None:
        """The certificate and its key are read again. Raises ConfigError; then those in use stay."""
        files = _tls_files(settings)
        if (files is None) != (self._tls is None):
            raise ConfigError("server.tls: TLS is switched on or off by a restart, not by a reload")
        if files is not None and self._tls is not None:
            try:
                self._tls.reload(files)
            except TlsFault as fault:
                raise ConfigError(f"server.tls: {fault}") from None

    @property
    def open_exchanges(self) -> int:
        return sum(listener.open_exchanges for listener in self._listeners())

    @property
    def open_connections(self) -> int:
        return sum(listener.open_connections for listener in self._listeners())

    async def drain(self, grace_s: float) -> None:
        await asyncio.gather(*(listener.drain(grace_s) for listener in self._listeners()))

    async def close(self) -> None:
        await asyncio.gather(*(listener.close() for listener in self._listeners()))

    def _listeners(self) -> list[Listener]:
        return [self._listener] if self._admin is None else [self._listener, self._admin]


class CannotListen(OSError):
    """`host` and `port`: where; `cause`: why not."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        super().__init__(str(cause))
        self.host, self.port, self.cause = host, port, cause


def _make_tls(files: TlsFiles) -> ServerTls:
    try:
        return ServerTls(files)
    except TlsFault as fault:
        raise ConfigError(f"server.tls: {fault}") from None
