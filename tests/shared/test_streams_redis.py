"""Copies of streams in a real Redis: written by one home, read by other replicas, lost honestly."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest

from strom.core.errors import BadRequest, GatewayError, NotFound
from strom.shared import streams_redis
from strom.shared.streams import StreamInfo, StreamLost, new_home, new_id
from strom.shared.streams_redis import RedisMirror, RedisStreams, connect, frames_key, info_key
from tests.patience import PATIENCE_S, until
from tests.services import RedisServer


class Home:
    """A process that runs streams. `asked`: what replicas asked of it."""

    def __init__(self, url: str) -> None:
        self.name = new_home()
        self.asked: list[tuple[str, str]] = []
        self.on_ask: Callable[[str, str], None] = lambda task, stream_id: None
        self.mirror = RedisMirror(connect(url), self.name, 300.0, self._hear)

    def _hear(self, task: str, stream_id: str) -> None:
        self.asked.append((task, stream_id))
        self.on_ask(task, stream_id)

    def begin(self, owner: str = "key") -> str:
        stream_id = new_id("openai-chat", self.name)
        self.mirror.announce(StreamInfo(stream_id, owner, "openai-chat", "text/event-stream", "trace"))
        return stream_id


@pytest.fixture
async def home(redis_url: str) -> AsyncIterator[Home]:
    home = Home(redis_url)
    await home.mirror.open()
    yield home
    await home.mirror.close()


@pytest.fixture
async def replica(redis_url: str) -> AsyncIterator[RedisStreams]:
    client = connect(redis_url)
    yield RedisStreams(client)
    await client.aclose()


async def read(replica: RedisStreams, stream_id: str, after: int = 0, owner: str = "key") -> list[bytes]:
    stream = await replica.read(stream_id, owner, after)
    assert stream is not None
    return [piece async for piece in stream.chunks() if piece]


async def test_a_stream_is_read_from_any_frame(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a", b"b"])
    home.mirror.append(stream_id, 3, [b"c"])
    home.mirror.end(stream_id, 3, broken=False)
    whole = [b"a", b"b", b"c"]
    for after in range(4):
        assert b"".join(await read(replica, stream_id, after)) == b"".join(whole[after:])
    with pytest.raises(BadRequest):
        await replica.read(stream_id, "key", 4)


async def test_what_comes_later_is_read_as_it_comes(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    reading = asyncio.create_task(read(replica, stream_id, 1))
    await until(lambda: ("read", stream_id) in home.asked)  # so that its home does not count it as left
    for number, frame in enumerate((b"b", b"c", b"d"), 2):
        home.mirror.append(stream_id, number, [frame])
        await asyncio.sleep(0.01)
    home.mirror.end(stream_id, 4, broken=False)
    assert b"".join(await reading) == b"bcd"


async def test_a_client_may_be_ahead_of_the_copy(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    reading = asyncio.create_task(read(replica, stream_id, 2))
    await asyncio.sleep(0.05)
    home.mirror.append(stream_id, 2, [b"b", b"c"])
    home.mirror.end(stream_id, 3, broken=False)
    assert await reading == [b"c"]


async def test_only_its_owner_finds_it(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    await read_first(replica, stream_id)
    for work in (replica.read(stream_id, "other", 0), replica.cancel(stream_id, "other")):
        with pytest.raises(NotFound):
            await work
    assert await replica.read(new_id("ollama", home.name), "key", 0) is None
    assert await replica.read(new_id("ollama", "00000000"), "key", 0) is None


async def read_first(replica: RedisStreams, stream_id: str) -> bytes:
    stream = await replica.read(stream_id, "key", 0)
    assert stream is not None
    chunks = stream.chunks()
    first = await anext(chunks)
    await chunks.aclose()
    return first


async def test_a_cancellation_reaches_its_home_and_last_words_its_readers(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    reading = asyncio.create_task(read(replica, stream_id))
    await until(lambda: ("read", stream_id) in home.asked)

    def obey(task: str, asked_id: str) -> None:
        if task == "cancel":
            home.mirror.append(asked_id, 2, [b"error"])
            home.mirror.end(asked_id, 2, broken=False)
            home.mirror.forget(asked_id)

    home.on_ask = obey
    assert await replica.cancel(stream_id, "key")
    assert b"".join(await reading) == b"aerror"
    assert await replica.read(stream_id, "key", 0) is None
    assert not await replica.cancel(stream_id, "key")


async def test_a_home_that_does_not_answer_a_cancellation(
    home: Home, replica: RedisStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_redis, "CONFIRM_S", 0.1)
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    await read_first(replica, stream_id)
    with pytest.raises(StreamLost) as raised:
        await replica.cancel(stream_id, "key")
    assert raised.value.status == 504


async def test_a_broken_stream_and_a_gap_are_no_whole_streams(home: Home, replica: RedisStreams) -> None:
    broken, gap = home.begin(), home.begin()
    home.mirror.append(broken, 1, [b"a"])
    home.mirror.end(broken, 1, broken=True)
    home.mirror.append(gap, 3, [b"c"])
    home.mirror.end(gap, 3, broken=False)
    for stream_id in (broken, gap):
        with pytest.raises(StreamLost):
            await read(replica, stream_id)


async def test_a_stream_whose_home_is_gone_is_lost(
    home: Home, replica: RedisStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_redis, "BLOCK_MS", 50)
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    assert await read_first(replica, stream_id) == b"a"
    reading = asyncio.create_task(read(replica, stream_id))
    await asyncio.sleep(0.02)
    await replica._client.delete(info_key(stream_id), frames_key(stream_id))  # as Redis does after RUNNING_S
    with pytest.raises(StreamLost):
        await reading


async def test_keys_go_by_themselves(home: Home, replica: RedisStreams) -> None:
    stream_id = home.begin()
    home.mirror.append(stream_id, 1, [b"a"])
    await read_first(replica, stream_id)
    for key in (info_key(stream_id), frames_key(stream_id)):
        assert 0 < await replica._client.pttl(key) <= 30_000
    home.mirror.end(stream_id, 1, broken=False)
    await read(replica, stream_id)
    for key in (info_key(stream_id), frames_key(stream_id)):
        assert 200_000 < await replica._client.pttl(key) <= 300_000


async def test_redis_comes_back(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a copy lost stays lost; later streams have one again."""
    monkeypatch.setattr(streams_redis, "RETRY_S", 0.05)
    home, replica = Home(redis_server.url), RedisStreams(connect(redis_server.url))
    await home.mirror.open()
    old = home.begin()
    home.mirror.append(old, 1, [b"a"])
    assert await read_first(replica, old) == b"a"
    redis_server.stop()
    home.mirror.append(old, 2, [b"b"])
    fresh = home.begin()
    home.mirror.append(fresh, 1, [b"a"])
    home.mirror.append(fresh, 2, [b"b"])
    with pytest.raises(GatewayError) as raised:
        await replica.read(old, "key", 0)
    assert raised.value.status == 503
    redis_server.start()
    home.mirror.end(fresh, 2, broken=False)
    home.mirror.end(old, 2, broken=False)
    await until_found(replica, fresh)
    assert b"".join(await read(replica, fresh)) == b"ab"
    assert await replica.read(old, "key", 0) is None
    await home.mirror.close()
    await replica._client.aclose()


async def until_found(replica: RedisStreams, stream_id: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(GatewayError):
            if await replica.read(stream_id, "key", 0) is not None:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("no copy came")


async def test_a_copy_that_would_wait_for_too_much_is_given_up(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_redis, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(streams_redis, "RETRY_S", 0.05)
    home = Home(redis_server.url)
    redis_server.stop()
    stream_id = home.begin()
    for number in range(1, 5):
        home.mirror.append(stream_id, number, [b"x" * 400])
    assert home.mirror._waiting_bytes <= 1000
    redis_server.start()
    replica = RedisStreams(connect(redis_server.url))
    await asyncio.sleep(0.3)
    assert await replica.read(stream_id, "key", 0) is None
    await home.mirror.close()
    await replica._client.aclose()
