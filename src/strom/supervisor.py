"""Several worker processes on one port, and one parent that keeps them running.

A worker that dies is started again, after a pause that grows while workers keep dying. One that cannot start ends everything,
with its message, if no worker has ever been ready: another try would not help. Later it is tried again, since the others serve.
SIGTERM and SIGINT go to every worker, which drain: the first one for so long as they may, a second one cuts; who has not ended
soon after is killed. SIGHUP asks the `Fleet` for new settings: they are refused, or taken by the workers as they run, or need
new processes. These come one by one, each before its predecessor retires, which still finishes what it has begun.

Invariants: no signal falls between a fork and its being noted; a worker is in a process group of its own, so that a Ctrl-C of
the terminal reaches it once, through the parent; a worker whose parent is gone drains and ends; the sockets of a worker outlive
it (addresses.py); there are never more than twice as many processes as workers.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import NamedTuple, Protocol

import click

from strom.addresses import HeldAddress
from strom.core.errors import StromError
from strom.notifying import READY, STOPPING, notify, notify_reloading

QUICK_DEATH_S = 5.0
LONGEST_PAUSE_S = 10.0
KEPT_PAUSE_S = 1.0
"""A worker that is away for longer leaves its sockets: the others get its connections."""
START_S = 60.0
"""How long a worker that is to replace another may take to be ready."""
LATE_S = 5.0
"""How long after its time a worker may still run before it is killed."""
CANNOT_START = 3
"""Exit code of a worker that another try would not help."""
RETIRE = signal.SIGUSR1
"""To a worker: take no more, finish what runs, without the haste of SIGTERM."""
_STOP = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOP, signal.SIGHUP, signal.SIGCHLD)
Sockets = list[list[socket.socket]]
"""For each address its listening sockets."""


class Duty(NamedTuple):
    """What a worker is given. `ready` is to be called when it serves."""

    announces: bool
    sockets: Sockets
    ready: Callable[[], None]


class Change(Enum):
    """What becomes of settings that were read again."""

    REFUSED = 0
    IN_PLACE = 1
    NEW_PROCESSES = 2


class Fleet(Protocol):
    """What the workers do."""

    @property
    def grace_s(self) -> float:
        """How long they may drain."""
        ...

    def work(self, duty: Duty) -> int: ...

    def reload(self) -> Change: ...

    def restore(self) -> None:
        """The settings before the last `reload` hold again: no worker could start with the new ones."""


class Worker:
    def __init__(self, pid: int, slot: int, news: int) -> None:
        self.pid, self.slot = pid, slot
        self.news = news
        """Where it says that it is ready; -1: it has, or is gone."""
        self.began = time.monotonic()
        self.ready = False
        self.is_behind = False
        """Settings changed while it started; it is told when it can hear it."""

    def close(self) -> None:
        if self.news >= 0:
            os.close(self.news)
            self.news = -1


class Supervisor:
    def __init__(self, workers: int, fleet: Fleet, addresses: Sequence[HeldAddress]) -> None:
        self._fleet = fleet
        self._addresses = addresses
        self._sockets: dict[int, Sockets] = {}
        self._serving: dict[int, Worker | None] = dict.fromkeys(range(workers))
        """By slot; None: it is started again later, see `_due`."""
        self._due: dict[int, float] = {}
        self._retired: list[Worker] = []
        self._coming: Worker | None = None
        """Takes the place of the one that serves in its slot, when it is ready."""
        self._to_replace: list[int] = []
        self._was_ready = False
        """Whether any worker ever was."""
        self._told_ready = False
        self._announced = False
        self._signals_to_stop = 0
        self._killed_at = float("inf")
        self._worst = 0
        self._pause_s = 0.1
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._alive = os.pipe()
        """Nobody writes to it: its end of file tells the workers that the parent is gone."""

    def run(self) -> int:
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # the wake-up descriptor tells
        before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            for slot in self._serving:
                self._fill(slot)
            while self._all() or self._due:
                self._turn()
        finally:
            signal.set_wakeup_fd(before)
        return 1 if self._worst else 0

    # -- One turn: what has happened, then what is due

    def _turn(self) -> None:
        heard = {worker.news: worker for worker in self._all() if worker.news >= 0}
        readable, _, _ = select.select([self._woken, *heard], [], [], self._patience_s())
        for source in readable:
            if source == self._woken:
                self._take_signals(os.read(self._woken, 512))
            else:
                self._hear(heard[source])
        self._reap()
        self._do_what_is_due(time.monotonic())

    def _patience_s(self) -> float:
        deadlines = [*self._due.values(), self._killed_at]
        if self._coming is not None:
            deadlines.append(self._coming.began + START_S)
        return max(0.0, min(5.0, min(deadlines) - time.monotonic()))

    def _take_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOP:
                self._stop(number)
            elif number == signal.SIGHUP and not self._signals_to_stop:
                self._reload()

    def _hear(self, worker: Worker) -> None:
        said = os.read(worker.news, 1)
        worker.close()
        if not said:
            return
        worker.ready = True
        if worker.is_behind:
            _send(worker, signal.SIGHUP)
        if worker is self._coming:
            self._exchange(worker)
        self._was_ready = True
        if not self._told_ready and all(each is not None and each.ready for each in self._serving.values()):
            self._told_ready = True
            notify(READY)

    def _reap(self) -> None:
        by_pid = {worker.pid: worker for worker in self._all()}
        while by_pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (worker := by_pid.pop(pid, None)) is not None:
                if worker.news >= 0 and select.select([worker.news], [], [], 0)[0]:
                    self._hear(worker)  # its last word may have come with its end
                worker.close()
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _do_what_is_due(self, now: float) -> None:
        for slot, when in list(self._due.items()):
            if now >= when:
                del self._due[slot]
                self._fill(slot)
        if self._coming is not None and now - self._coming.began > START_S:
            _send(self._coming, signal.SIGKILL)
        if now >= self._killed_at:
            self._killed_at = float("inf")
            click.echo(f"{len(self._all())} workers did not end in time and are killed.", err=True)
            for worker in self._all():
                _send(worker, signal.SIGKILL)
        self._replace_next()

    def _all(self) -> list[Worker]:
        coming = [] if self._coming is None else [self._coming]
        return [*(worker for worker in self._serving.values() if worker is not None), *coming, *self._retired]

    # -- Ends and restarts

    def _ended(self, worker: Worker, code: int) -> None:
        if worker in self._retired:
            self._retired.remove(worker)
        elif worker is self._coming:
            self._coming = None
            self._give_up_replacing()
        else:
            self._serving[worker.slot] = None
            if not self._signals_to_stop:
                self._restart(worker, code)
        if self._signals_to_stop:
            self._worst = max(self._worst, abs(code))

    def _restart(self, worker: Worker, code: int) -> None:
        if code > 0 and not self._was_ready:
            self._stop(signal.SIGTERM)  # it has said why
            self._worst = code
            return
        click.echo(f"A worker ended with code {code}; starting another.", err=True)
        now = time.monotonic()
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S) if now - worker.began < QUICK_DEATH_S else 0.1
        if self._pause_s > KEPT_PAUSE_S:
            self._leave_sockets(worker.slot)
        self._due[worker.slot] = now + self._pause_s

    def _stop(self, number: int) -> None:
        self._signals_to_stop += 1
        if self._signals_to_stop == 1:
            notify(STOPPING)
        self._due.clear()
        self._to_replace.clear()
        for slot in list(self._sockets):
            self._leave_sockets(slot)
        for worker in self._all():
            _send(worker, number)
        grace_s = self._fleet.grace_s if self._signals_to_stop == 1 else 0.0
        self._killed_at = min(self._killed_at, time.monotonic() + grace_s + LATE_S)

    # -- New settings

    def _reload(self) -> None:
        if self._to_replace or self._coming is not None:
            click.echo("Workers are being replaced: the configuration is read again after that.", err=True)
            self._to_replace.append(-1)
            return
        notify_reloading()
        match self._fleet.reload():
            case Change.REFUSED:
                notify(READY)
            case Change.IN_PLACE:
                for worker in filter(None, self._serving.values()):
                    worker.is_behind = not worker.ready
                    _send(worker, signal.SIGHUP)
                notify(READY)
            case Change.NEW_PROCESSES:
                self._to_replace = list(self._serving)

    def _replace_next(self) -> None:
        if self._coming is not None or not self._to_replace or len(self._all()) >= 2 * len(self._serving):
            return
        slot = self._to_replace.pop(0)
        if slot < 0:
            self._to_replace.clear()
            self._reload()
        elif self._serving[slot] is None:
            self._replaced()  # whoever comes there has the new settings
        else:
            self._coming = self._start(slot)

    def _exchange(self, worker: Worker) -> None:
        self._coming = None
        before = self._serving[worker.slot]
        self._serving[worker.slot] = worker
        self._due.pop(worker.slot, None)
        if before is not None:
            self._retired.append(before)
            _send(before, RETIRE)
        self._replaced()

    def _replaced(self) -> None:
        if not any(slot >= 0 for slot in self._to_replace):
            click.echo("Every worker was replaced by one with the new configuration.", err=True)
            notify(READY)

    def _give_up_replacing(self) -> None:
        if self._signals_to_stop:
            return
        self._to_replace = [slot for slot in self._to_replace if slot < 0]
        self._fleet.restore()
        click.echo(
            "A worker could not start with the changed configuration: it was refused, the old one stays.", err=True
        )
        notify(READY)

    # -- Starting

    def _fill(self, slot: int) -> None:
        """A worker for an empty place."""
        if not self._signals_to_stop:
            self._serving[slot] = self._start(slot)

    def _start(self, slot: int) -> Worker:
        if slot not in self._sockets:
            self._sockets[slot] = [address.listen() for address in self._addresses]
        news, tell = os.pipe()
        announces = slot == 0 and self._serving[slot] is None and not self._announced
        self._announced = self._announced or announces
        with _signals_blocked():
            pid = os.fork()
            if not pid:
                self._prepare_child(slot)
        if not pid:
            os.close(news)
            self._run_child(Duty(announces, self._sockets[slot], _teller(tell)))
        os.close(tell)
        return Worker(pid, slot, news)

    def _leave_sockets(self, slot: int) -> None:
        for sockets in self._sockets.pop(slot, []):
            for each in sockets:
                each.close()

    def _prepare_child(self, slot: int) -> None:
        """Until the worker has handlers of its own: nothing has begun, so being stopped is a good end."""
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (*_STOP, RETIRE):
            signal.signal(number, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in [each for each in self._sockets if each != slot]:
            self._leave_sockets(other)
        for worker in self._all():
            worker.close()
        for descriptor in (self._alive[1], self._woken, self._waker):
            os.close(descriptor)
        threading.Thread(target=_stop_with_parent, args=(self._alive[0],), daemon=True).start()

    def _run_child(self, duty: Duty) -> None:
        code = 1
        try:
            code = self._fleet.work(duty)
        except StromError as error:
            click.echo(f"strom: {error.message}", err=True)
            code = CANNOT_START
        except BaseException:  # noqa: BLE001 - a forked child must never run on into its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(worker: Worker, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker.pid, number)


def _teller(descriptor: int) -> Callable[[], None]:
    def tell() -> None:
        with suppress(OSError):  # the parent is gone, which is told otherwise
            os.write(descriptor, b"1")
        os.close(descriptor)

    return tell


def _stop_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def supervise(workers: int, fleet: Fleet, addresses: Sequence[HeldAddress]) -> int:
    """Returns when every worker has ended after a stop signal: 0 when all ended well."""
    return Supervisor(workers, fleet, addresses).run()
