"""Looks at the processes of a gateway under load, kills workers, asks for metrics."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import httpx
import msgspec

from tests.e2e.crashing import workers
from tests.e2e.processes import Gateway
from tools.soak_clients import Crowd

KILL_EVERY_S = 30.0
SAMPLE_EVERY_S = 5.0


class Sample(msgspec.Struct, frozen=True):
    at_s: float
    role: str
    """supervisor, old (the worker that lives on) or young."""
    pid: int
    rss_mb: float
    files: int
    sockets: int
    other_files: int
    active: int
    """Clients that wait for an answer, of all workers."""


def look(pid: int, role: str, at_s: float, active: int) -> Sample | None:
    """None: it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return None
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    if found is None:
        return None
    sockets = sum(link.startswith("socket:") for link in links)
    return Sample(round(at_s, 1), role, pid, int(found[1]) / 1024, len(links), sockets, len(links) - sockets, active)


def zombies(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if " Z " in Path(f"/proc/{pid}/stat").read_text().partition(")")[2][:4]]


class Watch:
    """Looks at the processes, kills the younger worker, asks for metrics."""

    def __init__(self, running: Gateway, crowd: Crowd, admin_key: str) -> None:
        self.samples: list[Sample] = []
        self.faults: list[str] = []
        self.old = workers(running)[0]
        self.ended = False
        self._running = running
        self._admin_key = admin_key
        self._crowd = crowd
        self._began = time.monotonic()

    def look(self) -> None:
        at_s = time.monotonic() - self._began
        parent = self._running.process.pid
        alive = workers(self._running)
        if self.old not in alive:
            self.faults.append(f"the old worker is gone after {at_s:.0f} s")
        roles = [(parent, "supervisor"), *((pid, "old" if pid == self.old else "young") for pid in alive)]
        for pid, role in roles:
            sample = look(pid, role, at_s, self._crowd.active)
            if sample is not None:
                self.samples.append(sample)

    async def watch(self) -> None:
        dead: list[int] = []
        while not self.ended:
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.look()
            still = zombies(self._running.process.pid)
            self.faults += [f"process {pid} stays a zombie" for pid in still if pid in dead]
            dead = still

    async def kill(self) -> None:
        while not self.ended:
            await asyncio.sleep(KILL_EVERY_S)
            young = [pid for pid in workers(self._running) if pid != self.old]
            if young and not self.ended:
                self._crowd.kills.append(time.monotonic())
                os.kill(young[-1], signal.SIGKILL)

    async def scrape(self) -> None:
        async with httpx.AsyncClient(headers={"x-api-key": self._admin_key}, timeout=20) as client:
            while not self.ended:
                await asyncio.sleep(10)
                try:
                    answer = await client.get(f"{self._running.url}/metrics")
                    if answer.status_code != 200:
                        self.faults.append(f"/metrics answers {answer.status_code}")
                except httpx.HTTPError:
                    self._crowd.counts["metrics not answered"] += 1
