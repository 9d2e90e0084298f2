"""Where the library's I/O runs: the running loop for async callers, one background loop in a daemon thread for sync ones.

There is one pool of connections per event loop, shared by all models, and one for sync streams over plain HTTP, which read
their sockets themselves. The background loop starts with its first use; a child process gets a fresh one after a fork and
leaves its parent's sockets alone. Sync calls made on the background thread itself would wait for themselves: they are refused.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import uvloop

from strom.client.failures import StreamMisuse
from strom.client.lines import Lines
from strom.transport.client import NativeClient

ResultT = TypeVar("ResultT")


class _Background:
    """The thread and its loop; nothing until `loop` is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._thread is threading.current_thread():
            raise StreamMisuse("A sync stream cannot be used inside an async tool: use AsyncModel there.")
        with self._lock:
            if self._loop is None:
                self._start()
            assert self._loop is not None
            return self._loop

    def running(self) -> asyncio.AbstractEventLoop | None:
        with self._lock:
            return self._loop

    def stop(self) -> None:
        """At exit: the loop ends before the interpreter takes its parts away."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(1.0)

    def _start(self) -> None:
        self._loop = loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="strom", daemon=True)
        self._thread.start()


_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, NativeClient] = WeakKeyDictionary()
_LIFETIMES: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = WeakKeyDictionary()
_LOCK = threading.Lock()
_BACKGROUND = _Background()
_PLAIN = [Lines()]
_PARENTS: list[object] = []
"""What a forked child inherited. It is kept, untouched: to destroy it would close what the parent still uses."""


def client_for(loop: asyncio.AbstractEventLoop) -> NativeClient:
    """The pool of a loop."""
    with _LOCK:
        client = _CLIENTS.get(loop)
        if client is not None:
            return client
        client = _CLIENTS[loop] = NativeClient()
    if asyncio._get_running_loop() is loop:
        _end_lifetimes(closed_only=True)
        _LIFETIMES[loop] = _close_with(loop)
    return client


def _close_with(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    """`asyncio.run` ends the asynchronous generators of its loop before it closes it; the one begun here closes the pool."""
    lifetime = _lifetime(weakref.ref(loop))
    with contextlib.suppress(StopIteration):
        lifetime.asend(None).send(None)
    return lifetime


async def _lifetime(loop: weakref.ref[asyncio.AbstractEventLoop]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        ending = loop()
        if ending is not None:
            close_idle(ending)


def _end_lifetimes(*, closed_only: bool = False) -> None:
    """Of loops nobody ended properly: a generator that is merely dropped would ask its loop for a task nobody runs."""
    for loop, lifetime in list(_LIFETIMES.items()):
        if loop.is_closed() or not closed_only:
            del _LIFETIMES[loop]
            with contextlib.suppress(StopIteration, RuntimeError):  # it is being ended already, or its loop is closed
                lifetime.aclose().send(None)


def close_idle(loop: asyncio.AbstractEventLoop) -> None:
    """Closes the idle connections of a loop, from inside it; the next call opens new ones."""
    with _LOCK:
        client = _CLIENTS.pop(loop, None)
    if client is not None:
        client.close()


def close_plain() -> None:
    """Closes the idle connections of sync streams; the next call opens new ones."""
    _PLAIN[0].clear()
    loop = _BACKGROUND.running()
    if loop is not None:
        loop.call_soon_threadsafe(close_idle, loop)


def background_loop() -> asyncio.AbstractEventLoop:
    return _BACKGROUND.loop()


def plain_lines() -> Lines:
    """The connections of sync streams over plain HTTP."""
    return _PLAIN[0]


def wait_for(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Runs a coroutine on the background loop; the calling thread waits, and its interruption cancels the work."""
    try:
        loop = background_loop()
    except StreamMisuse:
        work.close()
        raise
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    finally:
        future.cancel()


def _after_fork() -> None:
    global _CLIENTS, _LIFETIMES, _LOCK, _BACKGROUND
    _PARENTS.extend((_CLIENTS, list(_CLIENTS.items()), _LIFETIMES, list(_LIFETIMES.items()), _BACKGROUND, _PLAIN[0]))
    _CLIENTS, _LIFETIMES, _LOCK, _BACKGROUND = WeakKeyDictionary(), WeakKeyDictionary(), threading.Lock(), _Background()
    _PLAIN[0] = Lines()


os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    _PLAIN[0].clear()
    _end_lifetimes()
    _BACKGROUND.stop()


atexit.register(_at_exit)
