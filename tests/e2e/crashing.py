"""A gateway killed under load, and what its store knows afterwards of the calls that its upstream saw.

Every call asks for a model of its own name, which the upstream writes down: so calls and records are matched one to one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import msgspec

from strom.core.record import CallRecord
from strom.stores.options import StoreOptions
from strom.stores.records import RecordFilter
from strom.stores.table import open_reader, open_store
from tests.e2e.processes import Gateway, Upstream, ask, gateway, upstream
from tests.patience import PATIENCE_S, wait_until

CLIENTS = 16
_NUMBERS = itertools.count()


class Outcome(msgspec.Struct, frozen=True):
    seen: int
    """Calls that the upstream saw."""
    missing: list[str]
    """Of those, the ones that no record tells of."""
    statuses: dict[str, int]
    unsettled: int


class Load:
    """Clients in a thread, until `stop`; errors of a gateway that dies are expected."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(2 * PATIENCE_S)

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            await asyncio.gather(*(self._ask_on(client) for _ in range(CLIENTS)))

    async def _ask_on(self, client: httpx.AsyncClient) -> None:
        while not self._ended.is_set():
            number = next(_NUMBERS)
            body = ask(f"n={number % 5} gap=0.00{number % 9}", model=f"call-{os.getpid()}-{number}")
            try:
                await client.post(f"{self._url}/v1/chat/completions", json=body)
            except httpx.HTTPError:
                await asyncio.sleep(0.02)


def kill_gateway(folder: Path, after_s: float, store_url: str | None = None) -> Outcome:
    """One process, killed so long after its first calls; its store is opened by the next one."""
    url = store_url or f"sqlite:///{folder / 'strom.db'}"
    with upstream() as backend, gateway(folder, "--backend", _address(backend), STROM_STORE_URL=url) as running:
        load = Load(running.url)
        _wait_for_calls(backend)
        time.sleep(after_s)
        running.process.kill()
        running.wait()
        load.stop()
        seen = asked_models(backend)
    open_store(url, StoreOptions()).close()
    return outcome(url, seen)


def kill_worker(folder: Path, after_s: float) -> Outcome:
    """One of two workers, killed; the supervisor starts another, and the gateway goes on."""
    url = f"sqlite:///{folder / 'strom.db'}"
    arguments = ("--workers", "2", "--backend")
    with upstream() as backend, gateway(folder, *arguments, _address(backend), STROM_STORE_URL=url) as running:
        load = Load(running.url)
        _wait_for_calls(backend)
        time.sleep(after_s)
        worker = workers(running)[0]
        os.kill(worker, signal.SIGKILL)
        _wait_for_another(running, worker)
        load.stop()
        running.signal(signal.SIGTERM)
        running.wait()
        seen = asked_models(backend)
    return outcome(url, seen)


def outcome(url: str, seen: set[str]) -> Outcome:
    records = all_records(url)
    known = Counter(record.model_requested for record in records)
    statuses = Counter(record.status for record in records)
    return Outcome(
        len(seen),
        sorted(seen - set(known)),
        {str(name): count for name, count in statuses.items()},
        statuses["started"],
    )


def all_records(url: str) -> list[CallRecord]:
    reader = open_reader(url)
    found: list[CallRecord] = []
    page = reader.list(RecordFilter(), 1000)
    found += page.records
    while page.next_cursor is not None:
        page = reader.list(RecordFilter(), 1000, page.next_cursor)
        found += page.records
    reader.close()
    return found


def asked_models(backend: Upstream) -> set[str]:
    return {json.loads(body)["model"] for head, body in backend.requests if head.startswith("POST")}


def workers(running: Gateway) -> list[int]:
    """The processes that serve."""
    own = running.process.pid
    return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]


def _wait_for_calls(backend: Upstream) -> None:
    """However slow the machine is, there is something to lose."""
    wait_until(lambda: len(backend.requests) >= CLIENTS)


def _wait_for_another(running: Gateway, dead: int) -> None:
    wait_until(lambda: len(workers(running)) == 2 and dead not in workers(running), told=running.log.read_text)


def _address(backend: Upstream) -> str:
    return f"http://127.0.0.1:{backend.port}"
