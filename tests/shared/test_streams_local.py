"""Streams of the other workers of a gateway, over real sockets in a folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from strom.core.errors import BadRequest, NotFound
from strom.server.resumable.peers import make_peers
from strom.server.resumable.streams import KeptStream, StreamLimits, Streams
from strom.shared.streams import StreamInfo, StreamLost, new_id
from strom.shared.streams_local import Peers
from strom.transport.timers import LoopClock
from tests.patience import until


class Call:
    def __init__(self) -> None:
        self.stopped: list[str] = []

    def stop(self, error: Any = None) -> None:
        self.stopped.append(error.code)


class Worker:
    def __init__(self, folder: Path) -> None:
        self.streams = Streams(LoopClock(asyncio.get_running_loop()), StreamLimits())
        self.peers: Peers = make_peers(self.streams, folder)
        self.call: Any = Call()

    def begin(self, *frames: bytes) -> KeptStream:
        stream_id = new_id("openai-chat", self.streams.home)
        info = StreamInfo(stream_id, "key", "openai-chat", "text/event-stream", "trace")
        stream = self.streams._streams[stream_id] = KeptStream(self.streams, info, self.call, None)
        for frame in frames:
            stream.take(frame)
        return stream


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[tuple[Worker, Worker]]:
    both = Worker(tmp_path), Worker(tmp_path)
    for worker in both:
        await worker.peers.open()
    yield both
    for worker in both:
        worker.streams.close()
        await worker.peers.close()
    assert os.listdir(tmp_path) == []


async def read(worker: Worker, stream: KeptStream, after: int = 0) -> bytes:
    remote = await worker.peers.read(stream.info.id, "key", after)
    assert remote is not None
    assert remote.info == stream.info
    return b"".join([piece async for piece in remote.chunks()])


async def test_a_stream_is_read_from_any_frame_as_it_comes(workers: tuple[Worker, Worker]) -> None:
    home, other = workers
    stream = home.begin(b"data: 1\n\n", b"data: 2\n\n")
    reading = [asyncio.create_task(read(other, stream, after)) for after in range(3)]
    await until(lambda: len(stream._readers) == 3)
    stream.take(b"data: 3\n\n")
    stream.end(b"")
    whole = [b"id: %d\ndata: %d\n\n" % (number, number) for number in (1, 2, 3)]
    assert await asyncio.gather(*reading) == [b"".join(whole[after:]) for after in range(3)]
    assert await read(other, stream, 2) == whole[2]
    with pytest.raises(BadRequest):
        await other.peers.read(stream.info.id, "key", 4)


async def test_a_client_that_leaves_is_a_reader_less(workers: tuple[Worker, Worker]) -> None:
    home, other = workers
    stream = home.begin(b"data: 1\n\n")
    remote = await other.peers.read(stream.info.id, "key", 0)
    assert remote is not None
    chunks = remote.chunks()
    assert await anext(chunks) == b"id: 1\ndata: 1\n\n"
    assert stream.read_here
    await chunks.aclose()
    await until(lambda: not stream.read_here)


async def test_much_is_read_by_a_slow_client(workers: tuple[Worker, Worker]) -> None:
    home, other = workers
    stream = home.begin()
    remote = await other.peers.read(stream.info.id, "key", 0)
    assert remote is not None
    frames = [b"data: " + b"%06d" % number * 2000 + b"\n\n" for number in range(200)]
    for frame in frames:
        stream.take(frame)
    stream.end(b"")
    got = b""
    async for piece in remote.chunks():
        got += piece
        await asyncio.sleep(0)
    assert got == b"".join(b"id: %d\n%b" % (number, frame) for number, frame in enumerate(frames, 1))


async def test_only_its_owner_finds_and_cancels_it(workers: tuple[Worker, Worker]) -> None:
    home, other = workers
    stream = home.begin(b"data: 1\n\n")
    for work in (other.peers.read(stream.info.id, "other", 0), other.peers.cancel(stream.info.id, "other")):
        with pytest.raises(NotFound):
            await work
    assert await other.peers.cancel(stream.info.id, "key")
    assert home.call.stopped == ["cancelled"]
    with pytest.raises(NotFound):
        await other.peers.read(stream.info.id, "key", 0)


async def test_a_home_that_nobody_knows(workers: tuple[Worker, Worker]) -> None:
    stranger = new_id("ollama", "0" * 8)
    assert await workers[0].peers.read(stranger, "key", 0) is None
    assert not await workers[0].peers.cancel(stranger, "key")


async def test_a_home_that_hangs_up_may_answer_the_next_time(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    """Unlike a home that is not there."""
    home = "0" * 8
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), str(tmp_path / f"{home}.sock"))
    peers, stream_id = workers[0].peers, new_id("ollama", home)
    for ask in (peers.read, lambda *named: peers.cancel(*named[:2])):
        with pytest.raises(StreamLost) as raised:
            await ask(stream_id, "key", 0)
        assert (raised.value.status, raised.value.code, raised.value.retryable) == (502, "stream_lost", True)
    server.close()
    assert await peers.read(stream_id, "key", 0) is None
    (tmp_path / f"{home}.sock").unlink()


async def test_a_stream_that_is_cut_is_lost(workers: tuple[Worker, Worker]) -> None:
    home, other = workers
    stream = home.begin(b"data: 1\n\n")
    reading = asyncio.create_task(read(other, stream))
    await until(lambda: stream.read_here)
    stream.cut()
    with pytest.raises(StreamLost):
        await reading


@pytest.mark.parametrize("asked", [b"x\n", b"\xff\n", b"x" * 5000])
async def test_garbage_is_hung_up_on(workers: tuple[Worker, Worker], tmp_path: Path, asked: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / f"{workers[0].streams.home}.sock"))
    writer.write(asked)
    assert await reader.read() == b""
    writer.close()


async def test_a_path_that_is_too_long_is_told_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(tmp_path / ("x" * 150))
    await worker.peers.open()
    assert "cannot reach" in caplog.text
    await worker.peers.close()
