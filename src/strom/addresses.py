"""Addresses that several processes serve: held by their parent, and listened on once for each worker.

An address is held by a bound socket that does not listen, so that nobody else gets it while no worker lives. Each worker gets
sockets of its own (SO_REUSEPORT: the kernel spreads connections over them), which the parent opens and keeps: what waits in the
queue of a worker that ends is taken by its successor, so that no connection is refused or reset when workers are exchanged.

Source: socket(7), SO_REUSEPORT; Linux 6.1, a listening socket that is closed resets what waits in its queue (seen in tests).
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

BACKLOG = 4096


class HeldAddress:
    """`port`: the one that was found, where 0 was asked for."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError when somebody has the address."""
        self.host = host
        self._held = _reserve(host, port)
        self.port = int(self._held.getsockname()[1])

    def listen(self) -> list[socket.socket]:
        """One more listener: a socket for each address that the host's name stands for. Raises OSError."""
        found = dict.fromkeys((entry[0], entry[4]) for entry in _look_up(self.host, self.port))
        with ExitStack() as undo:
            sockets: list[socket.socket] = []
            for family, address in found:
                try:
                    sockets.append(undo.enter_context(_bind(family, address, shared=True)))
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL or address == next(iter(found))[1]:
                        raise  # a second address that this machine does not have is no fault
            for each in sockets:
                each.listen(BACKLOG)
            undo.pop_all()
        return sockets

    def close(self) -> None:
        self._held.close()


def _reserve(host: str, port: int) -> socket.socket:
    """With SO_REUSEPORT alone, a second gateway of the same user would silently get half of the first one's clients."""
    family, _, _, _, address = _look_up(host, port)[0]
    _bind(family, address, shared=False).close()
    return _bind(family, address, shared=True)


def _look_up(
    host: str, port: int
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))  # type: ignore[arg-type]


def _bind(family: socket.AddressFamily, address: tuple[str | int, ...], *, shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
