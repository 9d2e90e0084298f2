"""Copies of streams in Redis, from which every replica can read them.

    home   ──frames, end──▶  a Redis stream and a hash for each stream  ──XREAD──▶  replica with the client
    home   ◀──────────────  a Redis stream of what is asked of a home  ◀──────────  "read" from time to time, "cancel"

An entry's id is the number of its last frame: reading on needs no index, and writing an entry twice changes nothing. What
a home has to write is gathered while a write is under way: one pipeline carries all of it. When Redis is away the frames wait;
a copy that would wait for too much is given up, and says so by not being there. Keys of a running stream live `RUNNING_S`
unless they are renewed, those of an ended one for its retention: what a dead process leaves vanishes by itself.
Invariant: a reader gets every frame once and in order, or is told that the stream is lost.
Source: Redis documentation, XADD (ids have to rise), XREAD.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from strom.core.errors import ConfigError, GatewayError
from strom.shared.streams import StreamInfo, StreamLost, beyond_error, home_of, not_found

if TYPE_CHECKING:
    from redis.asyncio import Redis

LOG = logging.getLogger("strom.streams")
RUNNING_S = 30.0
RENEW_S = 10.0
GONE_S = 10.0
"""How long those who read a cancelled stream have for its last words."""
BLOCK_MS = 4000
LOOKS_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
"""Pauses before each look at a home that is alive: a copy may just be on its way."""
CONFIRM_S = 5.0
TOUCH_S = 5.0
RETRY_S = 0.5
MAX_WAITING_BYTES = 67_108_864
MAX_READERS = 500
"""Clients of other homes' streams at once: each holds a connection to Redis."""
Task = Literal["read", "cancel"]


def info_key(stream_id: str) -> str:
    return f"strom:stream:{{{stream_id}}}:info"


def frames_key(stream_id: str) -> str:
    return f"strom:stream:{{{stream_id}}}:frames"


def asked_key(home: str) -> str:
    return f"strom:streams:{home}:asked"


def alive_key(home: str) -> str:
    return f"strom:streams:{home}:alive"


def connect(url: str) -> Redis:
    """Raises ConfigError when the package is missing."""
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError("shared.url: Redis needs the package redis: pip install 'strom[redis]'") from None
    client: Redis = Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),  # what is worth another try is tried again here
        max_connections=MAX_READERS + 20,
        socket_timeout=BLOCK_MS / 1000 + 2,
        socket_connect_timeout=2.0,
        decode_responses=False,
    )
    return client


def failures() -> tuple[type[Exception], ...]:
    """What a Redis that is away raises."""
    from redis.exceptions import RedisError

    return (RedisError, OSError, TimeoutError)


class _Due(msgspec.Struct):
    """What has to be written of one stream. `first`: the number of the first frame."""

    info: StreamInfo | None = None
    first: int = 0
    frames: list[bytes] = []
    count: int | None = None
    broken: bool = False
    gone: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.frames))


class RedisMirror:
    """A Mirror, and the ear for what replicas ask of this home. `serve(task, id)` does it."""

    def __init__(self, client: Redis, home: str, retention_s: float, serve: Callable[[str, str], None]) -> None:
        self._client = client
        self._home = home
        self._retention_s = retention_s
        self._serve = serve
        self._due: dict[str, _Due] = {}
        self._waiting_bytes = 0
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def open(self) -> None:
        """Says that this home is alive, if Redis takes it; else the writing does, when it can."""
        with contextlib.suppress(*failures()):
            await self._client.set(alive_key(self._home), 1, px=int(RUNNING_S * 1000))
        self._start()

    async def close(self) -> None:
        """What is due is written, if Redis takes it soon."""
        self._closing = True
        self._wake.set()
        if self._tasks:
            self._tasks[1].cancel()
            await asyncio.wait(self._tasks[:1], timeout=CONFIRM_S)
            self._tasks[0].cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    # -- Mirror --

    def announce(self, info: StreamInfo) -> None:
        self._start()
        self._running.add(info.id)
        self._due[info.id] = _Due(info)
        self._wake.set()

    def append(self, stream_id: str, first: int, frames: list[bytes]) -> None:
        if stream_id not in self._running:
            return
        due = self._due.get(stream_id)
        if due is None:
            due = self._due[stream_id] = _Due()
        if not due.frames:
            due.first, due.frames = first, []
        due.frames += frames
        self._waiting_bytes += sum(map(len, frames))
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._give_up(stream_id)
        self._wake.set()

    def end(self, stream_id: str, count: int, *, broken: bool) -> None:
        if stream_id in self._running:
            self._running.discard(stream_id)
            due = self._due.setdefault(stream_id, _Due())
            due.count, due.broken = count, broken
            self._wake.set()

    def forget(self, stream_id: str) -> None:
        self._running.discard(stream_id)
        self._due.setdefault(stream_id, _Due()).gone = True
        self._wake.set()

    # -- writing --

    def _start(self) -> None:
        """At the latest with the first stream."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._write_on()), loop.create_task(self._listen())]
            self._wake.set()  # to say that this home is alive

    def _give_up(self, stream_id: str) -> None:
        LOG.warning("a stream has no copy in Redis any more: Redis does not keep up")
        self._running.discard(stream_id)
        self._waiting_bytes -= self._due[stream_id].size_bytes
        self._due[stream_id] = _Due(gone=True)

    async def _write_on(self) -> None:
        away = failures()
        waits = False
        renewed_at = float("-inf")
        while not (self._closing and not self._due):
            await self._woken()
            due, self._due = self._due, {}
            renews = self._now() - renewed_at >= RENEW_S
            try:
                await self._write(due, renews=renews)
            except away as error:
                if not waits:
                    LOG.warning("copies of streams wait for Redis: %s", type(error).__name__)
                waits = True
                self._put_back(due)
                await asyncio.sleep(RETRY_S)
                self._wake.set()
                continue
            if waits:
                LOG.warning("copies of streams go to Redis again")
                waits = False
            self._waiting_bytes -= sum(each.size_bytes for each in due.values())
            if renews:
                renewed_at = self._now()

    async def _woken(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RENEW_S):
                await self._wake.wait()
        self._wake.clear()

    async def _write(self, due: dict[str, _Due], *, renews: bool) -> None:
        pipeline = self._client.pipeline(transaction=False)
        if renews:
            pipeline.set(alive_key(self._home), 1, px=int(RUNNING_S * 1000))
        for stream_id, each in due.items():
            _describe(pipeline, stream_id, each, self._ttl_ms(each))
        for stream_id in self._running if renews else ():
            _expire(pipeline, stream_id, int(RUNNING_S * 1000))
        if len(pipeline):
            await pipeline.execute(
                raise_on_error=False
            )  # an entry that is there already is an error, and as it should be

    def _ttl_ms(self, due: _Due) -> int:
        if due.gone:
            return int(GONE_S * 1000)
        return int((RUNNING_S if due.count is None else self._retention_s) * 1000)

    def _put_back(self, due: dict[str, _Due]) -> None:
        """In front of what has come meanwhile."""
        fresh, self._due = self._due, due
        for stream_id, later in fresh.items():
            earlier = due.get(stream_id)
            if earlier is None or later.info is not None:
                due[stream_id] = later
                continue
            if not earlier.frames:
                earlier.first = later.first
            earlier.frames = earlier.frames + later.frames
            earlier.count = later.count if later.count is not None else earlier.count
            earlier.broken, earlier.gone = earlier.broken or later.broken, earlier.gone or later.gone

    # -- listening --

    async def _listen(self) -> None:
        away, key, last = failures(), asked_key(self._home), b"0-0"
        soon = asyncio.get_running_loop().call_soon  # a defect in what is done does not end the listening
        while True:
            try:
                for entry, fields in await _entries(self._client, key, last):
                    last = entry
                    soon(self._serve, fields.get(b"task", b"").decode(), fields.get(b"id", b"").decode())
            except away:
                await asyncio.sleep(RETRY_S)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _describe(pipeline: Any, stream_id: str, due: _Due, ttl_ms: int) -> None:
    frames = frames_key(stream_id)
    if due.info is not None:
        pipeline.hset(info_key(stream_id), "info", msgspec.json.encode(due.info))
    if due.frames:
        last = due.first + len(due.frames) - 1
        pipeline.xadd(frames, {"f": msgspec.msgpack.encode(due.frames)}, id=f"{last}-0")
    if due.count is not None:
        pipeline.hset(info_key(stream_id), "count", due.count)
        pipeline.xadd(frames, {"end": b"broken" if due.broken else b"whole"}, id=f"{due.count + 1}-0")
    if due.gone:
        pipeline.hset(info_key(stream_id), "gone", 1)
    _expire(pipeline, stream_id, ttl_ms)


def _expire(pipeline: Any, stream_id: str, ttl_ms: int) -> None:
    pipeline.pexpire(info_key(stream_id), ttl_ms)
    pipeline.pexpire(frames_key(stream_id), ttl_ms)


async def _entries(client: Redis, key: str, after: bytes | str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Those after an entry, when there are any; none after `BLOCK_MS`."""
    found: Any = await client.xread({key: after}, count=64, block=BLOCK_MS)
    if isinstance(found, dict):  # RESP3
        return [entry for batches in found.values() for batch in batches for entry in batch]
    return [entry for _, entries in found for entry in entries]


class _Known(msgspec.Struct, frozen=True):
    info: StreamInfo
    count: int | None


class RedisStreams:
    """An Elsewhere."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._reading = 0

    async def read(self, stream_id: str, owner: str, after: int) -> RedisStream | None:
        known = await self._look(stream_id, owner)
        if known is None:
            return None
        if known.count is not None and after > known.count:
            raise beyond_error(after, known.count)
        if self._reading >= MAX_READERS:
            raise _unavailable("Too many streams of other replicas are being read here.")
        return RedisStream(self, known.info, after, runs=known.count is None)

    async def cancel(self, stream_id: str, owner: str) -> bool:
        known = await self._look(stream_id, owner)
        if known is None:
            return False
        await self.ask("cancel", stream_id)
        deadline = asyncio.get_running_loop().time() + CONFIRM_S
        while asyncio.get_running_loop().time() < deadline:
            if await self.state(stream_id) is None:
                return True
            await asyncio.sleep(0.02)
        raise StreamLost(
            "The process that runs this stream does not answer; if it is gone, so is its call.", status=504
        )

    async def ask(self, task: Task, stream_id: str) -> None:
        """Something of the home of a stream."""
        key = asked_key(home_of(stream_id) or "")
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.xadd(key, {"task": task, "id": stream_id}, maxlen=1000)
                pipeline.expire(key, 3600)
                await pipeline.execute()
        except failures():
            raise _unavailable() from None

    async def state(self, stream_id: str) -> tuple[bytes | None, bytes | None] | None:
        """Info and count; None: gone."""
        try:
            found: Any = await self._client.hmget(info_key(stream_id), ["info", "count", "gone"])
        except failures():
            raise _unavailable() from None
        info, count, gone = found
        return None if gone is not None or info is None else (info, count)

    async def entries(self, stream_id: str, after: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
        self._reading += 1
        try:
            return await _entries(self._client, frames_key(stream_id), f"{after}-0")
        except failures():
            raise StreamLost("The copy of this stream cannot be read.") from None
        finally:
            self._reading -= 1

    async def _lives(self, home: str) -> bool:
        try:
            return bool(await self._client.exists(alive_key(home)))
        except failures():
            raise _unavailable() from None

    async def _look(self, stream_id: str, owner: str) -> _Known | None:
        """Raises NotFound when it is not this owner's."""
        for look, pause_s in enumerate(LOOKS_S):
            await asyncio.sleep(pause_s)
            if look == 1 and not await self._lives(home_of(stream_id) or ""):
                return None
            state = await self.state(stream_id)
            if state is not None and state[0] is not None:
                info = msgspec.json.decode(state[0], type=StreamInfo)
                if info.owner != owner:
                    raise not_found(stream_id)
                return _Known(info, None if state[1] is None else int(state[1]))
        return None


class RedisStream:
    """A RemoteStream."""

    def __init__(self, streams: RedisStreams, info: StreamInfo, after: int, *, runs: bool) -> None:
        self.info = info
        self._streams = streams
        self._after = after
        self._runs = runs

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        streams, stream_id, time = self._streams, self.info.id, asyncio.get_running_loop().time
        touched_at = float("-inf")
        while True:
            if self._runs and time() - touched_at >= TOUCH_S:
                touched_at = time()
                await self._tell_home()
            entries = await streams.entries(stream_id, self._after)
            if not entries:
                await self._check()
                yield b""
            for entry, fields in entries:
                if b"end" in fields:
                    if fields[b"end"] != b"whole":
                        raise StreamLost("This stream was cut short.")
                    return
                yield self._fresh(entry, fields)

    async def _tell_home(self) -> None:
        """Somebody reads it: it need not be ended for want of a client."""
        try:
            await self._streams.ask("read", self.info.id)
        except GatewayError:
            raise StreamLost("The copy of this stream cannot be read.") from None

    async def _check(self) -> None:
        """Nothing came for a while. Raises StreamLost when nothing can come any more."""
        try:
            state = await self._streams.state(self.info.id)
        except GatewayError:
            state = None
        if state is None or (state[1] is not None and self._after > int(state[1])):
            raise StreamLost("The process that ran this stream is gone.")

    def _fresh(self, entry: bytes, fields: dict[bytes, bytes]) -> bytes:
        frames = msgspec.msgpack.decode(fields[b"f"], type=list[bytes])
        last = int(entry.partition(b"-")[0])
        first = last - len(frames) + 1
        if first > self._after + 1:
            raise StreamLost("A part of the copy of this stream is missing.")
        piece = b"".join(frames[self._after + 1 - first :])
        self._after = last
        return piece


def _unavailable(message: str = "The copies of streams cannot be reached.") -> GatewayError:
    error = GatewayError(message, code="streams_unavailable", status=503, retry_after_s=1.0)
    error.retryable = True
    return error
