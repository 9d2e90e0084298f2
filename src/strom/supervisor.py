"""Several worker processes on one port (SO_REUSEPORT), and one parent that keeps them running.

A worker that dies is started again, after a pause that grows while it keeps dying; one that cannot start at all (its store, its
address) ends everything, with its message. SIGTERM and SIGINT go to every worker, which drain; SIGHUP goes to every worker,
which reload. The parent serves nothing itself, but holds the port.

Invariants: no signal falls between a fork and its being noted; a worker is in a process group of its own, so that a Ctrl-C of
the terminal reaches it once, through the parent; a worker whose parent is gone drains and ends.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

from strom.core.errors import StromError

Work = Callable[[bool], int]
"""Runs one worker until it is told to stop; the flag says whether it announces the start."""
QUICK_DEATH_S = 5.0
LONGEST_PAUSE_S = 10.0
CANNOT_START = 3
"""Exit code of a worker that another try would not help."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    def __init__(self, workers: int, work: Work) -> None:
        self._workers = workers
        self._work = work
        self._started: dict[int, float] = {}
        self._stopping = False
        self._worst = 0
        self._pause_s = 0.1
        self._alive = os.pipe()
        """Nobody writes to it: its end of file tells the workers that the parent is gone."""

    def run(self) -> int:
        for number in _SIGNALS:
            signal.signal(number, self._forward)
        for index in range(self._workers):
            self._start(announces=index == 0)
        while self._started:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                break
            began = self._started.pop(pid, None)
            if began is not None:
                self._ended(os.waitstatus_to_exitcode(status), time.monotonic() - began)
        return 1 if self._worst else 0

    def _start(self, *, announces: bool) -> None:
        with _signals_blocked():
            if self._stopping:
                return
            pid = os.fork()
            if pid:
                self._started[pid] = time.monotonic()
                return
            self._prepare_child()
        self._run_child(announces=announces)

    def _prepare_child(self) -> None:
        """Until the worker has handlers of its own: nothing has begun, so being stopped is a good end."""
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.close(self._alive[1])
        threading.Thread(target=_stop_with_parent, args=(self._alive[0],), daemon=True).start()

    def _run_child(self, *, announces: bool) -> None:
        code = 1
        try:
            code = self._work(announces)
        except StromError as error:
            click.echo(f"strom: {error.message}", err=True)
            code = CANNOT_START
        except BaseException:  # noqa: BLE001 - a forked child must never run on into its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _ended(self, code: int, lived_s: float) -> None:
        if self._stopping:
            self._worst = max(self._worst, abs(code))
        elif code == CANNOT_START:
            self._worst = code
            self._forward(signal.SIGTERM, None)
        else:
            self._restart(code, lived_s)

    def _restart(self, code: int, lived_s: float) -> None:
        click.echo(f"A worker ended with code {code}; starting another.", err=True)
        if lived_s < QUICK_DEATH_S:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            until = time.monotonic() + self._pause_s
            while not self._stopping and time.monotonic() < until:
                time.sleep(0.05)
        else:
            self._pause_s = 0.1
        self._start(announces=False)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            self._stopping = True
        for pid in list(self._started):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds the address for workers to share, without listening itself. Raises OSError when somebody has it.

    With SO_REUSEPORT alone, a second gateway of the same user would silently get half of the first one's clients.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
    held = socket.socket(family, kind, protocol)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(address)
    return held


def supervise(workers: int, work: Work) -> int:
    """Returns when every worker has ended after a stop signal: 0 when all ended well."""
    return Supervisor(workers, work).run()
