"""Looks at endpoints that real traffic tells nothing of: `[providers.health] probe_s`, off unless it is set.

Only an endpoint whose circuit is not closed, or to which nothing was sent for so long, is looked at, and only by a request for
the provider's list of models: it costs no tokens. A good look invites a trial, a bad one counts like a failed call (board.py).
Every process looks for itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from strom.core.errors import ProviderAuthError, ProviderError, StromError
from strom.gateway.board import Board
from strom.gateway.fetch import fetch, models_path
from strom.gateway.plan import Endpoint
from strom.transport.types import UpstreamClient
from strom.upstreams.upstream import Upstream

LOOK_S = 5.0
"""How long an answer is waited for."""
SPREAD = 0.2
"""Looks come within this share around their time, so that processes and providers do not look in step."""


class Prober:
    """`endpoints` gives those of the configuration in force. `start` again after a reload."""

    def __init__(self, client: UpstreamClient, board: Board, endpoints: Callable[[], list[Endpoint]]) -> None:
        self._client = client
        self._board = board
        self._endpoints = endpoints
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Inside a running loop."""
        self.stop()
        upstreams = {endpoint.upstream.name: endpoint.upstream for endpoint in self._endpoints()}
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(each)) for each in upstreams.values() if each.health.probe_s]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def look(self, upstream: Upstream) -> None:
        """One look, if any of its endpoints needs one."""
        every_s = upstream.health.probe_s or 0.0
        wanting = [
            endpoint
            for endpoint in self._endpoints()
            if endpoint.upstream is upstream
            and (self._board.condition(endpoint).circuit != "closed" or self._board.idle_s(endpoint) >= every_s)
        ]
        if not wanting:
            return
        error = await self._ask(upstream)
        for endpoint in wanting:
            self._board.looked(endpoint, error)

    async def _watch(self, upstream: Upstream) -> None:
        every_s = upstream.health.probe_s or 0.0
        while True:
            await asyncio.sleep(every_s * random.uniform(1 - SPREAD, 1 + SPREAD))  # noqa: S311 - no secret
            await self.look(upstream)

    async def _ask(self, upstream: Upstream) -> StromError | None:
        """None: it answers. What it says of the request itself is of no interest."""
        headers = [(b"anthropic-version", b"2023-06-01")] if upstream.protocol == "anthropic" else None
        try:
            async with asyncio.timeout(LOOK_S):
                answer = await fetch(self._client, upstream, models_path(upstream), headers=headers)
        except TimeoutError:
            return ProviderError(f"The backend {upstream.name!r} did not answer a look within {LOOK_S:g} s.")
        except StromError as error:
            return error
        if answer.status in (401, 403):
            return ProviderAuthError(f"The backend {upstream.name!r} refuses this gateway's key.")
        if answer.status >= 500:
            return ProviderError(f"The backend {upstream.name!r} answers with status {answer.status}.")
        return None
