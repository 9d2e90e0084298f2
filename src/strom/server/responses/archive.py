"""The response store, seen from the event loop: its work is done on one thread, in the order in which it is given.

So a read sees every write that was posted before it, and nothing blocks the loop. What waits to be written is bounded:
beyond that a response is not kept, which the log says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from strom.core.errors import NotFound, StromError
from strom.stores.responses import ResponseStore

LOG = logging.getLogger("strom.responses")
MAX_WAITING_BYTES = 67_108_864
SWEEP_S = 30.0
SECOND_LOOK_S = 0.1
Result = TypeVar("Result")


class Archive:
    """Made inside a running loop. `shared`: other processes use the same store."""

    def __init__(self, store: ResponseStore, *, shared: bool = False) -> None:
        self.shared = shared
        self._store = store
        self._executor = ThreadPoolExecutor(1, "strom-responses")
        self._waiting_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def run(self, work: Callable[[ResponseStore], Result]) -> Result:
        """What `work` gives. Raises what it raises."""
        return await self._loop.run_in_executor(self._executor, work, self._store)

    async def find(self, work: Callable[[ResponseStore], Result | None]) -> Result | None:
        """As `run`; what is not there may just be on its way from another process, so it is looked for twice."""
        try:
            found = await self.run(work)
        except NotFound:
            if not self.shared:
                raise
            found = None
        if found is not None or not self.shared:
            return found
        await asyncio.sleep(SECOND_LOOK_S)
        return await self.run(work)

    def post(self, work: Callable[[ResponseStore], object], size_bytes: int = 0) -> None:
        """Have it done; nobody waits for it. `size_bytes`: what it holds in memory meanwhile."""
        if self._waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            LOG.warning("a response of %d bytes is not kept: the store is too slow", size_bytes)
            return
        self._waiting_bytes += size_bytes
        future = self._executor.submit(work, self._store)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._posted, size_bytes, done))

    def _posted(self, size_bytes: int, done: Future[object]) -> None:
        self._waiting_bytes -= size_bytes
        error = done.exception()
        if isinstance(error, StromError):
            LOG.warning("a response is not kept: %s (%s)", error.message, error.detail)
        elif error is not None:
            LOG.error("a response is not kept: a defect", exc_info=error)
        elif done.result() is False:
            LOG.warning("a response is not kept: it is larger than [store] max_response_bytes")

    def _sweep(self) -> None:
        self.post(lambda store: store.sweep())
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def close(self) -> None:
        """Everything posted is done when this returns."""
        self._sweeper.cancel()
        await asyncio.to_thread(self._executor.shutdown)
        self._store.close()
