"""Background responses out of the store: those that have ended, those another process runs, those that were lost.

A running one renews its lease; one whose lease is over was lost with its process and is shown as failed, its stream ended by
that. Of one that another process runs, events are shown as they come into the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strom.core.errors import BadRequest, GatewayError, StromError
from strom.gateway.responses import stream_headers
from strom.protocols.codec import Codec
from strom.protocols.openai_responses.background import lost_frame, lost_response, split_frames
from strom.protocols.table import CODECS
from strom.server.responses.archive import Archive
from strom.server.resumable.exchange import STREAM_ID
from strom.stores.responses import Events, ResponseStore, StoredResponse
from strom.transport.types import Exchange, Headers

POLL_S = 0.1
SLICE_EVENTS = 200


def stopped_error() -> StromError:
    return GatewayError("The gateway was stopped while this response was running.", code="gateway_stopped")


def runs(stored: StoredResponse, now: float) -> bool:
    return stored.running_until is not None and stored.running_until > now


def current_response(stored: StoredResponse, now: float) -> bytes:
    """The Response object as it has to be shown now."""
    is_lost = stored.running_until is not None and not runs(stored, now)
    return lost_response(stored.response, stopped_error()) if is_lost else stored.response


def stream_head(codec: Codec, identity: str) -> Headers:
    """Of the stream of a background response, which is its own name as a resumable stream."""
    return [*stream_headers(codec, identity.removeprefix("resp_")), (STREAM_ID, identity.encode())]


class Replay:
    """One client that reads a stored stream."""

    def __init__(self, exchange: Exchange, archive: Archive, stored: StoredResponse) -> None:
        """Raises BadRequest for what has no stream."""
        if not stored.background:
            raise BadRequest("Only a background response can be streamed again.", param="stream")
        self._exchange = exchange
        self._archive = archive
        self._stored: StoredResponse | None = stored
        self._place = stored.place
        self._ready = asyncio.Event()

    async def run(self, after: int, wall: Callable[[], float]) -> None:
        """Every event with a number over `after`, once, up to the terminal one."""
        exchange = self._exchange
        exchange.on_resume = self._ready.set
        exchange.start(200, stream_head(CODECS["openai-responses"], self._place.id))
        exchange.write(b"")
        while self._stored is not None:
            stored, now = self._stored, wall()
            after = await self._send(after)
            if not runs(stored, now):  # looked up before its events: they were all
                is_lost = stored.running_until is not None
                exchange.finish(lost_frame(current_response(stored, now), after + 1) if is_lost else b"")
                return
            await asyncio.sleep(POLL_S)
            self._stored = await self._archive.run(self._look_up)
        exchange.abort()  # it was deleted meanwhile

    def _look_up(self, store: ResponseStore) -> StoredResponse | None:
        return store.get(self._place)

    async def _send(self, after: int) -> int:
        """What is there and was not sent. Returns the number of the last event."""

        def take(store: ResponseStore) -> list[Events]:
            return store.events(self._place, after)

        batches = await self._archive.run(take)
        if not batches:
            return after
        frames = [frame for batch in batches for frame in split_frames(batch.frames)]
        fresh = frames[max(0, after + 1 - batches[0].first) :]
        for start in range(0, len(fresh), SLICE_EVENTS):
            await self._taken()
            self._exchange.write(b"".join(fresh[start : start + SLICE_EVENTS]))
        return max(after, batches[0].first + len(frames) - 1)

    async def _taken(self) -> None:
        """Wait until the client has read what was written."""
        while self._exchange.paused and not self._exchange.closed:
            self._ready.clear()
            await self._ready.wait()
