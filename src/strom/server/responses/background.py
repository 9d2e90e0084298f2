"""Responses that run without a client.

Job         one of them: a sink for its call, the stream that is kept of it, and the clients that read along
Jobs        all of this process: bounded in number and in bytes together; each renews its lease in the store

A lost client changes nothing. A job ends with its call, by a cancellation, by breaking its bound, or with the process, and
is put into the store once more. One whose lease is not renewed was lost with its process: whoever finds it says so.
With several processes each writes the events of its jobs into the store as they come and asks it for cancellations.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from strom.core.errors import GatewayError, RateLimited, StromError
from strom.core.messages import Request
from strom.gateway.services import Services
from strom.protocols.codec import ReplyContext
from strom.protocols.openai_responses.background import BackgroundStream
from strom.server.exchanges import DetachedExchange
from strom.server.following import Reader
from strom.server.responses.archive import Archive
from strom.server.responses.history import keep
from strom.server.responses.replay import stopped_error
from strom.stores.responses import Events, Place, StoredResponse
from strom.transport.timers import Handle
from strom.transport.types import Headers, RequestHead

LEASE_S = 30.0
RENEW_S = 10.0
SHARED_TICK_S = 0.25
"""How often a process of several shows its events and asks for cancellations."""
MAX_STREAM_BYTES = 67_108_864
MAX_STREAMS_BYTES = 268_435_456


class _ErrorBody(msgspec.Struct, frozen=True):
    message: str = ""
    code: str | None = None


class _Error(msgspec.Struct, frozen=True):
    error: _ErrorBody = _ErrorBody()


class Job:
    """`stream` is there from the admission of the call on. `refused`: the whole answer that came instead of a stream."""

    def __init__(self, jobs: Jobs, owner: str, head: RequestHead, body: bytes) -> None:
        self._jobs = jobs
        self._owner = owner
        self.body = body
        """The request: the call lets go of its exchange's own once tokens flow."""
        self.exchange = DetachedExchange(head, body, self)
        self.stream: BackgroundStream | None = None
        self.refused: tuple[int, Headers, bytes] | None = None
        self.begun = False
        self.unwanted = False
        self.flushed = 0
        """Events that are in the store."""
        self._readers: list[Reader] = []

    @property
    def place(self) -> Place:
        return Place(self._owner, self.kept.identity)

    @property
    def kept(self) -> BackgroundStream:
        assert self.stream is not None, "the call was not admitted"
        return self.stream

    def admit(self, request: Request, context: ReplyContext) -> bytes | None:
        """The gateway's hook: the call is about to start."""
        self.stream = BackgroundStream(context)
        return None

    # -- Followed --

    @property
    def frames(self) -> list[bytes]:
        return self.kept.frames

    @property
    def ended(self) -> bool:
        return self.kept.ended

    broken = False
    """Its stream always says how it ended."""

    def joined(self, reader: Reader) -> None:
        self._readers.append(reader)

    def left(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)

    # -- Sink --

    def take(self, data: bytes) -> None:
        try:
            self.kept.feed(data)
        except StromError as error:
            self.stop(error)
            return
        if self._jobs.overflows(self):
            self.stop(GatewayError("This response is longer than a background response may be.", code="too_long"))
        self._show()

    def end(self, data: bytes = b"") -> None:
        try:
            self.kept.feed(data)
        except StromError as error:
            self.kept.fail(error)
        if not self.kept.ended:
            self.kept.fail(GatewayError("The gateway failed while it handled this call."))
        self._settle()

    def cut(self) -> None:
        self.end()

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        if not self.begun:
            self.refused = (status, headers, body)
            return
        self.kept.fail(_error_of(status, body))
        self._settle()

    # -- ends that are not the call's own --

    def stop(self, error: StromError) -> None:
        self.exchange.leave()
        self.kept.fail(error)
        self._settle()

    def cancel(self) -> None:
        self.exchange.leave()
        self.kept.cancel()
        self._settle()

    def discard(self) -> None:
        """Cancel it and keep nothing of it."""
        self.unwanted = True
        self.cancel()

    def _show(self) -> None:
        for reader in list(self._readers):
            reader.pump()

    def _settle(self) -> None:
        self._jobs.settle(self)
        self._show()


def _error_of(status: int, body: bytes) -> StromError:
    try:
        told = msgspec.json.decode(body, type=_Error).error
    except msgspec.DecodeError:
        told = _ErrorBody()
    return StromError(told.message or "The call failed.", code=told.code or "server_error", status=status)


class Jobs:
    def __init__(self, services: Services, archive: Archive, max_count: int) -> None:
        self._services = services
        self._archive = archive
        self._max_count = max_count
        self._running: dict[Place, Job] = {}
        self._timer: Handle | None = None
        self._renewed_at = 0.0
        self._check: asyncio.Task[None] | None = None

    def find(self, place: Place) -> Job | None:
        return self._running.get(place)

    def check_room(self) -> None:
        """Raises RateLimited."""
        if len(self._running) >= self._max_count:
            raise RateLimited(
                f"{self._max_count} background responses run already ([store] max_background).", retry_after_s=5.0
            )

    def begin(self, job: Job) -> None:
        """Its call is under way."""
        job.begun = True
        self._running[job.place] = job
        self._put(job, self._services.wall() + LEASE_S)
        self._arm()

    def overflows(self, job: Job) -> bool:
        total = sum(other.kept.size_bytes for other in self._running.values())
        return job.kept.size_bytes > MAX_STREAM_BYTES or total > MAX_STREAMS_BYTES

    def settle(self, job: Job) -> None:
        """Once per job; its last state and its stream go to the store."""
        if self._running.pop(job.place, None) is None or job.unwanted:
            return
        self._flush(job)
        self._put(job, None)

    def close(self) -> None:
        """The process ends: so do they."""
        for job in list(self._running.values()):
            job.stop(stopped_error())
        if self._timer is not None:
            self._timer.cancel()
        if self._check is not None:
            self._check.cancel()

    def _put(self, job: Job, running_until: float | None) -> None:
        now, response, body = self._services.wall(), job.kept.response, job.body
        state = StoredResponse(job.place, response, created_at=now, background=True, running_until=running_until)
        self._archive.post(partial(keep, state, body), len(response) + len(body))

    def _flush(self, job: Job) -> None:
        frames = job.kept.frames[job.flushed :]
        if frames:
            events = Events(job.flushed, b"".join(frames))
            job.flushed += len(frames)
            place = job.place
            self._archive.post(lambda store: store.append_events(place, events), len(events.frames))

    # -- the timer, while jobs run --

    def _arm(self) -> None:
        if self._timer is None and self._running:
            clock = self._services.clock
            tick_s = SHARED_TICK_S if self._archive.shared else RENEW_S
            self._timer = clock.call_at(clock.time() + tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now, places = self._services.clock.time(), list(self._running)
        if places and now - self._renewed_at >= RENEW_S:
            self._renewed_at = now
            until = self._services.wall() + LEASE_S
            self._archive.post(lambda store: store.renew(places, until))
        if places and self._archive.shared:
            for job in self._running.values():
                self._flush(job)
            if self._check is None or self._check.done():
                self._check = asyncio.get_running_loop().create_task(self._stop_unwanted(places))
        self._arm()

    async def _stop_unwanted(self, places: list[Place]) -> None:
        for place in await self._archive.run(lambda store: store.unwanted(places)):
            job = self._running.get(place)
            if job is not None:
                job.cancel()
