"""One of two replicas behind nginx is killed under load: who is told what, what is recorded, what the limits let through.

Statements that hold, and are asserted by `judge`:
- streams of the other replica end with their proof; those of the killed one are cut, and none looks complete;
- calls that begin after the kill are served, and never by the dead one;
- every call the upstream saw has a record once the killed replica is back, and none still counts as running;
- one bucket over both replicas never admits more than it holds and what flows back meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from typing import NamedTuple

import httpx

from tests.e2e.crashing import all_records
from tests.e2e.processes import Upstream, ask
from tests.e2e.replicas import KEYS, Replica, Services, Stage
from tests.patience import PATIENCE_S

CLIENTS = 12
BUCKET = 30
_NUMBERS = itertools.count()


class Told(NamedTuple):
    """What one client saw. `status` 0: no answer."""

    began: float
    ended: float
    status: int
    replica: str
    is_whole: bool


class Load:
    """Streams through nginx in a thread, until `stop`; two counted calls go along with each."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/chat/completions"
        self._ended = threading.Event()
        self.free: list[Told] = []
        self.counted: list[Told] = []
        self.began = time.monotonic()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(20)

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            await asyncio.gather(*(self._ask_on(client) for _ in range(CLIENTS)))

    async def _ask_on(self, client: httpx.AsyncClient) -> None:
        while not self._ended.is_set():
            number = next(_NUMBERS)
            for _ in range(2):
                self.counted.append(await self._ask(client, "counted", "n=1", number))
            self.free.append(await self._ask(client, "free", f"n={10 + number % 20} gap=0.04", number))

    async def _ask(self, client: httpx.AsyncClient, key: str, text: str, number: int) -> Told:
        began, status, replica, body = time.monotonic(), 0, "", b""
        headers = {"x-api-key": KEYS[f"{key.upper()}_KEY"]}
        question = ask(text, model=f"{key}-{number}")
        try:
            async with client.stream("POST", self._url, json=question, headers=headers) as answer:
                status, replica = answer.status_code, answer.headers.get("x-served-by", "")
                async for piece in answer.aiter_raw():
                    body += piece
        except httpx.HTTPError:
            pass
        return Told(began, time.monotonic(), status, replica, body.rstrip().endswith(b"data: [DONE]"))


class Verdict(NamedTuple):
    calls: int
    whole: int
    cut: int
    """Streams of the killed replica that its end cut, or that nginx answered with 502 before they began."""
    survived: int
    """Streams of the other replica that were under way at the kill."""
    after: int
    """Calls that began after it, all served."""
    admitted: int
    """Counted calls let through; the others were refused."""
    refused: int
    allowed: int
    seen: int
    """Calls that the upstream saw, all recorded."""
    marked: int
    """Of those the ones marked as lost."""


SETTLING_S = 0.3
"""How long after a kill nginx may still be busy with connections that the dead replica had taken."""


def judge(load: Load, killed: str, at: float, upstream: Upstream, store_url: str) -> Verdict:
    calls = [*load.free, *load.counted]
    assert len({each for told in calls for each in told.replica.split(", ") if each}) == 2, "served by somebody else"
    under_way = [told for told in load.free if told.began < at < told.ended]
    survived = [told for told in under_way if told.status == 200 and told.replica != killed]
    assert survived
    assert all(told.is_whole for told in survived)
    faulty = [told for told in load.free if not told.is_whole]
    assert all(told.status in (0, 200, 502) and told.began < at + SETTLING_S for told in faulty), faulty
    after = [told for told in calls if told.began > at + SETTLING_S]
    assert after
    assert {told.status for told in after} <= {200, 429}, Counter(told.status for told in after)
    assert killed not in {told.replica for told in after if told.began < at + SETTLING_S + 2}
    admitted = sum(told.status == 200 for told in load.counted)
    last = max(told.ended for told in calls)
    allowed = BUCKET + int((last - load.began) * BUCKET / 60) + 1
    assert admitted <= allowed
    seen, marked = recorded(upstream, store_url)
    whole, refused = sum(told.is_whole for told in calls), sum(told.status == 429 for told in load.counted)
    return Verdict(len(calls), whole, len(faulty), len(survived), len(after), admitted, refused, allowed, seen, marked)


def recorded(upstream: Upstream, store_url: str) -> tuple[int, int]:
    """Calls that the upstream saw and calls marked as lost; asserts that all are in the records and none still runs."""
    seen = {json.loads(body)["model"] for head, body in upstream.requests if head.startswith("POST")}
    until = time.monotonic() + PATIENCE_S
    while True:
        records = {record.model_requested: record for record in all_records(store_url)}
        missing = seen - set(records)
        running = [name for name, record in records.items() if record.status == "started"]
        if not missing and not running:
            break
        assert time.monotonic() < until, (sorted(missing)[:5], running[:5])
        time.sleep(0.2)
    return len(seen), sum(r.error is not None and r.error.code == "lost" for r in records.values())


def fill_narrow_key(stage: Stage, executor: list[threading.Thread], count: int) -> Counter[str]:
    """So many long streams of a key that may have eight at once; by replica, those that began."""
    begun: Counter[str] = Counter()
    lock = threading.Lock()
    ready = threading.Barrier(count + 1)

    def hold() -> None:
        began = False
        try:
            headers = {"x-api-key": KEYS["NARROW_KEY"]}
            with httpx.stream(
                "POST",
                f"{stage.url}/v1/chat/completions",
                json=ask("n=400 gap=0.1", model="narrow"),
                headers=headers,
                timeout=60,
            ) as answer:
                pieces = answer.iter_raw()
                next(pieces)
                with lock:
                    begun[answer.headers["x-served-by"] if answer.status_code == 200 else str(answer.status_code)] += 1
                began = True
                ready.wait(PATIENCE_S)
                for _ in pieces:
                    pass
        except httpx.HTTPError:
            if not began:
                ready.wait(PATIENCE_S)

    threads = [threading.Thread(target=hold, daemon=True) for _ in range(count)]
    executor.extend(threads)
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    return begun


def narrow_status(stage: Stage) -> int:
    headers = {"x-api-key": KEYS["NARROW_KEY"]}
    answer = httpx.post(
        f"{stage.url}/v1/chat/completions", json=ask("n=1", model="narrow-one"), headers=headers, timeout=20
    )
    return answer.status_code


def place(replica: Replica) -> str:
    return f"{replica.host.address}:{replica.port}"


def services(upstream: Upstream, store_url: str, shared_url: str) -> Services:
    return Services(upstream.port, store_url, shared_url)


def round_of(stage: Stage, victim: Replica, upstream: Upstream, store_url: str, seconds: float) -> Verdict:
    """Load, a kill in its middle, a restart, and what it comes to."""
    load = Load(stage.url)
    time.sleep(seconds / 2)
    at = time.monotonic()
    victim.kill()
    time.sleep(seconds / 2)
    load.stop()
    victim.start()
    victim.wait_ready()
    return judge(load, place(victim), at, upstream, store_url)
