"""Open connections of plain HTTP that a waiting thread reads itself, and the pool of those that are idle.

HTTP itself is the transport's `UpstreamConnection`; a `Line` gives it a socket in place of a loop. Invariants: one thread
uses a line at a time: the reader that holds it, or whoever holds the pool's lock; `wake` alone may come from elsewhere. A line
whose message is about to end may wait in the pool for that end, for `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable
from typing import Final, cast

from strom.client.mailbox import LINGER_S, Clock
from strom.transport.connect import Proxies, Proxy
from strom.transport.connection import NativeUpstreamExchange, UpstreamConnection
from strom.transport.heads import RequestRoute
from strom.transport.pool import IDLE_S
from strom.transport.types import Origin, ResponseReceiver

READ_BYTES: Final = 65_536
_AT_ONCE: Final = socket.MSG_DONTWAIT
_IN: Final = select.POLLIN
_BOTH: Final = select.POLLIN | select.POLLOUT


class Line:
    """One connection: transport and owner of its `UpstreamConnection`.

    `idle`: no message is under way. `again`: it was a reused one that had ended; its request goes over another.
    """

    __slots__ = (
        "_connection", "_limit_s", "_pending", "_poll", "_socket", "_tied", "again", "closed", "idle", "idle_since", "origin",
    )  # fmt: skip

    def __init__(self, origin: Origin, opened: socket.socket) -> None:
        self.origin = origin
        self._socket = opened
        self._poll = select.poll()
        self._poll.register(opened, _IN)
        self._pending = memoryview(b"")
        self._limit_s = 0.0
        self.closed = self.again = False
        self.idle = self._tied = True
        self.idle_since = 0.0
        self._connection = UpstreamConnection(self, origin, {})
        self._connection.connection_made(cast(asyncio.BaseTransport, self))

    def begin(self, call: NativeUpstreamExchange, receiver: ResponseReceiver, *, reused: bool) -> None:
        self.idle = False
        self._connection.begin(call, receiver, reused=reused)

    def read(self, seconds: float) -> None:
        """Waits for bytes, at most so long, and gives them to the connection."""
        if self._poll.poll(seconds * 1000.0):
            if self._pending:
                self._send_pending()
            self._take(_AT_ONCE)

    def read_on(self, seconds: float) -> None:
        """The same in one system call, for one read after the other with the same limit and nothing left to send."""
        if seconds != self._limit_s:
            self._limit_s = seconds
            microseconds = max(1, int(seconds % 1.0 * 1e6))  # zero would be no limit
            limit = struct.pack("ll", int(seconds), microseconds)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        if self._pending:
            self.read(seconds)
        else:
            self._take(0)

    def settle(self) -> bool:
        """Reads what is there already; whether a request may go out on it."""
        while not self.closed and self._poll.poll(0) and self._take(_AT_ONCE):
            pass
        return self.idle and not self.closed

    def wake(self) -> None:
        """From another thread: `read` returns at once; the connection is of no more use."""
        with contextlib.suppress(OSError):  # it may be closed already
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent. No receiver is told."""
        self._connection.drop()
        self._untie()

    def _take(self, flags: int) -> bool:
        """One read. False: nothing is left to be read."""
        ended: OSError | None = None
        try:
            data = self._socket.recv(READ_BYTES, flags)
        except BlockingIOError:
            return False
        except OSError as error:
            data, ended = b"", error
        if data:
            self._connection.data_received(data)
        elif ended is None:
            self._connection.eof_received()
            self.abort()
        if self.closed or ended is not None:
            self._untie(ended)
        return not self.closed

    def _untie(self, ended: OSError | None = None) -> None:
        """The end of the connection, which until then holds its parser, as that holds it."""
        if self._tied:
            self._tied = False
            self._connection.connection_lost(ended)
            self.abort()

    # -- the connection's transport

    def write(self, data: bytes) -> None:
        self._pending = memoryview(b"".join((self._pending, data)))
        self._send_pending()

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        return len(self._pending)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing is read unless somebody waits for it."""

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._pending = memoryview(b"")
            self._socket.close()

    def _send_pending(self) -> None:
        """As much as the socket takes now: an upstream may answer before it has read the whole request."""
        try:
            while self._pending:
                sent = self._socket.send(self._pending, _AT_ONCE)
                self._pending = self._pending[sent:]
        except BlockingIOError:
            self._poll.modify(self._socket, _BOTH)
            return
        except OSError:
            self._pending = memoryview(b"")  # the next read finds the connection ended, and says how
        self._poll.modify(self._socket, _IN)

    # -- the connection's owner

    def release(self, _: UpstreamConnection) -> bool:
        self.idle = True
        return True

    def send_again(self, _call: NativeUpstreamExchange, _origin: Origin) -> None:
        self.again = True


class Lines:
    """What a process knows of plain origins: how they are reached, and the lines to them that are idle."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._idle: dict[Origin, list[Line]] = {}
        self._routes: dict[Origin, tuple[Proxy | None, RequestRoute]] = {}
        self._proxies = Proxies(os.environ)
        self._armed = False

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def route(self, origin: Origin) -> tuple[Proxy | None, RequestRoute]:
        found = self._routes.get(origin)
        if found is None:
            proxy = self._proxies.choose(origin)
            lines = None if proxy is None else proxy.authorization
            found = self._routes[origin] = (proxy, RequestRoute.to(origin, proxy_lines=lines))
        return found

    def take(self, origin: Origin) -> Line | None:
        """The line that became idle last."""
        with self._lock:
            waiting = self._idle.get(origin, [])
            for at in reversed(range(len(waiting))):
                if waiting[at].settle() and waiting[at].idle_since > self._clock() - IDLE_S:
                    return waiting.pop(at)
        return None

    def put(self, line: Line, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` closes it when nobody takes it in time."""
        with self._lock:
            line.idle_since = self._clock()
            self._idle.setdefault(line.origin, []).append(line)
            armed, self._armed = self._armed, True
        if not armed and not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, LINGER_S, self._expire, loop)

    def clear(self) -> None:
        with self._lock:
            lines = [line for waiting in self._idle.values() for line in waiting]
            self._idle.clear()
        for line in lines:
            line.close()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes what is too old, what ended, and what was not whole in time."""
        with self._lock:
            gone: list[Line] = []
            for origin, waiting in list(self._idle.items()):
                stale = [line for line in waiting if not self._is_fresh(line)]
                self._idle[origin] = [line for line in waiting if line not in stale]
                gone += stale
            self._armed = len(self) > 0
        for line in gone:
            line.close()
        if self._armed:
            loop.call_later(LINGER_S, self._expire, loop)

    def _is_fresh(self, line: Line) -> bool:
        whole = line.settle()
        return not line.closed and line.idle_since > self._clock() - (IDLE_S if whole else LINGER_S)
