"""Several worker processes on one port (SO_REUSEPORT), and one parent that keeps them running.

A worker that dies is started again, after a pause that grows while it keeps dying. SIGTERM and SIGINT go to every worker, which
drain; SIGHUP goes to every worker, which reload. The parent serves nothing itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

import click

Work = Callable[[bool], int]
"""Runs one worker until it is told to stop; the flag says whether it announces the start."""
QUICK_DEATH_S = 5.0
LONGEST_PAUSE_S = 10.0


class Supervisor:
    def __init__(self, workers: int, work: Work) -> None:
        self._workers = workers
        self._work = work
        self._started: dict[int, float] = {}
        self._stopping = False
        self._pause_s = 0.1

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forward)
        for index in range(self._workers):
            self._start(announces=index == 0)
        worst = 0
        while self._started:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                break
            began = self._started.pop(pid, None)
            if began is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            if self._stopping:
                worst = max(worst, abs(code))
            else:
                self._restart(code, time.monotonic() - began)
        return 1 if worst else 0

    def _start(self, *, announces: bool) -> None:
        pid = os.fork()
        if pid:
            self._started[pid] = time.monotonic()
            return
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            code = self._work(announces)
        except BaseException:  # noqa: BLE001 - a forked child must never run on into its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _restart(self, code: int, lived_s: float) -> None:
        click.echo(f"A worker ended with code {code}; starting another.", err=True)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S) if lived_s < QUICK_DEATH_S else 0.1
        time.sleep(self._pause_s if lived_s < QUICK_DEATH_S else 0)
        if not self._stopping:
            self._start(announces=False)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            self._stopping = True
        for pid in list(self._started):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def supervise(workers: int, work: Work) -> int:
    """Returns when every worker has ended after a stop signal: 0 when all ended well."""
    return Supervisor(workers, work).run()
