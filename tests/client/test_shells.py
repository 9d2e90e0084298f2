"""The sync and the async stream over real sockets: reading, leaving, misuse, and many at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import strom
from strom.client import network
from strom.client.events import StreamContent, StreamEvent, StreamToolResult
from strom.client.retry import Retry
from tests.client.loopback import Loopback
from tests.patience import PATIENCE_S, until, wait_until


def f(a: int) -> int:
    return a + 1


async def g(a: int) -> int:
    await asyncio.sleep(0)
    return a + 1


def sync_model(backend: Loopback, **options: Any) -> strom.Model:
    return strom.Model("m", base_url=backend.url, **options)


def async_model(backend: Loopback, **options: Any) -> strom.AsyncModel:
    return strom.AsyncModel("m", base_url=backend.url, **options)


def names(events: list[StreamEvent]) -> list[str]:
    return [event.type for event in events]


# --- the same program in both colours ------------------------------------------------------------------


def test_sync_events_text_chunks_reply(backend: Loopback) -> None:
    model = sync_model(backend)
    assert names(list(model.stream("a b"))) == ["content", "content", "completed"]
    assert "".join(model.stream("a b").text()) == "a b "
    *pieces, done = model.stream("a b").chunks()
    assert [piece.text for piece in pieces if isinstance(piece, strom.StreamChunk)] == ["a ", "b "]
    assert isinstance(done, strom.StreamDone)
    assert (done.finish_reason, done.metadata.usage) == ("stop", strom.Usage(5, 7))
    assert model.stream("a b").reply().text == model.complete("a b").text == "a b "
    assert str(model.complete("a b")) == "a b "


async def test_async_events_text_chunks_reply(backend: Loopback) -> None:
    model = async_model(backend)
    assert names([event async for event in model.stream("a b")]) == ["content", "content", "completed"]
    assert "".join([text async for text in model.stream("a b").text()]) == "a b "
    *pieces, done = [piece async for piece in model.stream("a b").chunks()]
    assert [piece.text for piece in pieces if isinstance(piece, strom.StreamChunk)] == ["a ", "b "]
    assert isinstance(done, strom.StreamDone)
    assert (await model.stream("a b").reply()).text == (await model.complete("a b")).text == "a b "
    await model.aclose()


@pytest.mark.parametrize("tool", [f, g])
def test_sync_tools(backend: Loopback, tool: Any) -> None:
    named = strom.tool(name="f")(tool)
    events = list(sync_model(backend).stream("go", tools=[named]))
    assert [event.result for event in events if isinstance(event, StreamToolResult)] == [2]


@pytest.mark.parametrize("tool", [f, g])
async def test_async_tools(backend: Loopback, tool: Any) -> None:
    named = strom.tool(name="f")(tool)
    events = [event async for event in async_model(backend).stream("go", tools=[named], parallel_tools=0)]
    assert [event.result for event in events if isinstance(event, StreamToolResult)] == [2]


def test_sync_session(backend: Loopback) -> None:
    session = sync_model(backend).session(system="s")
    assert session.send("one").text == "one "
    assert "".join(session.stream("two").text()) == "two "
    assert [message.text for message in session.messages] == ["s", "one", "one ", "two", "two "]
    assert session.last_stream_metrics.first_token_kind == "content"


async def test_async_session(backend: Loopback) -> None:
    session = async_model(backend).session()
    assert (await session.send("one")).text == "one "
    async with session.stream("two") as stream:
        await anext(stream)
    assert [message.text for message in session.messages] == ["one", "one "]


# --- failures -----------------------------------------------------------------------------------------


def test_failures_are_raised_with_their_type(backend: Loopback) -> None:
    model = sync_model(backend)
    with pytest.raises(strom.ProviderError) as caught:
        model.complete("refuse")
    assert isinstance(caught.value, strom.StreamFailed)
    assert caught.value.stream_metrics.request_duration_ms is not None
    with pytest.raises(strom.StreamFailed):
        list(model.stream("refuse").text())
    with pytest.raises(strom.StreamFailed):
        list(model.stream("refuse").chunks())


async def test_async_failures(backend: Loopback) -> None:
    model = async_model(backend)
    with pytest.raises(strom.StreamFailed):
        await model.complete("refuse")
    with pytest.raises(strom.StreamFailed):
        [text async for text in model.stream("refuse").text()]


def test_retries_and_admission_over_sockets(backend: Loopback) -> None:
    async def later(_: strom.AdmissionRequest) -> bool:
        await asyncio.sleep(0)
        return True

    for admission in (None, lambda _: True, later):
        retry = Retry(attempts=2, base_delay_s=0.01, admission=admission)
        with pytest.raises(strom.StreamFailed) as caught:
            sync_model(backend).complete("refuse", retry=retry)
        assert len(caught.value.metadata.attempts) == 2


async def test_async_retries_and_admission(backend: Loopback) -> None:
    async def later(_: strom.AdmissionRequest) -> bool:
        await asyncio.sleep(0)
        return True

    for admission in (None, lambda _: True, later):
        retry = Retry(attempts=2, base_delay_s=0.01, admission=admission)
        with pytest.raises(strom.StreamFailed) as caught:
            await async_model(backend).complete("refuse", retry=retry)
        assert len(caught.value.metadata.attempts) == 2


def test_a_header_that_is_none_fails_this_request_only(backend: Loopback) -> None:
    with pytest.raises(strom.StreamFailed):
        sync_model(backend, api_key="bad\r\nkey").complete("a")


def test_timeouts(backend: Loopback) -> None:
    model = sync_model(backend, timeouts=strom.Timeouts(first_token_s=0.05, idle_s=0.05))
    with pytest.raises(strom.TimedOut, match="no token"):
        model.complete("late")
    with pytest.raises(strom.TimedOut, match="silent") as caught:
        model.complete("hang")
    assert caught.value.metadata.text == "first"  # type: ignore[attr-defined]  # it is a StreamFailed as well
    wait_until(lambda: backend.open == 0)


async def test_async_timeouts(backend: Loopback) -> None:
    model = async_model(backend, timeouts=strom.Timeouts(first_token_s=0.2, idle_s=0.05))
    with pytest.raises(strom.TimedOut, match="silent"):
        await model.complete("hang")


# --- leaving ------------------------------------------------------------------------------------------


def test_sync_close_at_once_also_in_silence(backend: Loopback) -> None:
    with sync_model(backend).stream("hang") as stream:
        assert next(stream) == StreamContent("first")
        wait_until(lambda: backend.open == 1)
    wait_until(lambda: backend.open == 0)
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.last_stream_metrics.first_token_kind == "content"
    with pytest.raises(strom.StreamMisuse, match="closed"):
        stream.reply()


async def test_async_close(backend: Loopback) -> None:
    async with async_model(backend).stream("hang") as stream:
        assert await anext(stream) == StreamContent("first")
    await until(lambda: backend.open == 0)
    assert stream.ended
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    with pytest.raises(strom.StreamMisuse):
        await stream.reply()


def test_sync_cancel_from_another_thread(backend: Loopback) -> None:
    stream = sync_model(backend).stream("late")
    threading.Timer(0.05, stream.cancel).start()
    events = list(stream)
    assert names(events) == ["error"]
    assert isinstance(events[0], strom.StreamError)
    assert events[0].reason == "cancelled"
    assert events[0].metadata.request_duration_ms is not None
    wait_until(lambda: backend.open == 0)


def test_sync_close_from_another_thread(backend: Loopback) -> None:
    stream = sync_model(backend).stream("late")
    threading.Timer(0.05, stream.close).start()
    assert list(stream) == []


async def test_async_cancel_from_another_task(backend: Loopback) -> None:
    stream = async_model(backend).stream("hang")
    events = []
    async for event in stream:
        events.append(event)
        asyncio.get_running_loop().call_later(0.05, stream.cancel)
    assert names(events) == ["content", "error"]
    assert stream.failure is events[1]


async def test_b03_cancelling_the_task_closes_the_exchange(backend: Loopback) -> None:
    stream = async_model(backend).stream("late")
    task = asyncio.create_task(stream.reply())
    await until(lambda: backend.requests)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.ended
    assert stream.failure is None
    await until(lambda: backend.open == 0)


def test_cancel_in_a_pause_between_retries(backend: Loopback) -> None:
    stream = sync_model(backend).stream("refuse", retry=Retry(base_delay_s=600, jitter=lambda: 1.0))
    threading.Timer(0.1, stream.cancel).start()
    started = time.monotonic()
    assert names(list(stream)) == ["error"]
    assert time.monotonic() - started < PATIENCE_S


async def test_async_cancel_in_a_pause(backend: Loopback) -> None:
    stream = async_model(backend).stream("refuse", retry=Retry(base_delay_s=600, jitter=lambda: 1.0))
    asyncio.get_running_loop().call_later(0.1, stream.cancel)
    assert names([event async for event in stream]) == ["error"]


def test_a_text_iterator_that_is_left_closes_its_stream(backend: Loopback) -> None:
    for _ in sync_model(backend).stream("hang").text():
        break
    wait_until(lambda: backend.open == 0)


def test_an_interrupted_reader_closes_its_stream(backend: Loopback) -> None:
    def interrupt(a: int) -> int:
        raise KeyboardInterrupt

    stream = sync_model(backend).stream("go", tools=[strom.tool(name="f")(interrupt)])
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.ended
    assert stream.failure is None


# --- misuse -------------------------------------------------------------------------------------------


def test_a_stream_is_iterated_once(backend: Loopback) -> None:
    stream = sync_model(backend).stream("a")
    list(stream)
    for again in (lambda: iter(stream), stream.text, stream.chunks):
        with pytest.raises(strom.StreamMisuse, match="once"):
            again()
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.reply().text == "a "
    assert [message.text for message in stream.new_messages] == ["a "]


async def test_an_async_stream_is_iterated_once(backend: Loopback) -> None:
    stream = async_model(backend).stream("a")
    _ = [event async for event in stream]
    for again in (stream.__aiter__, stream.text, stream.chunks):
        with pytest.raises(strom.StreamMisuse, match="once"):
            again()


def test_two_threads_on_one_stream(backend: Loopback) -> None:
    with sync_model(backend).stream("late") as stream, concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, stream, None)
        wait_until(lambda: backend.requests)
        with pytest.raises(strom.StreamMisuse, match="Two readers"):
            next(stream)
        stream.cancel()
        assert isinstance(waiting.result(PATIENCE_S), strom.StreamError)


async def test_two_tasks_on_one_stream(backend: Loopback) -> None:
    stream = async_model(backend).stream("late")
    waiting = asyncio.create_task(anext(stream))
    await asyncio.sleep(0.02)
    with pytest.raises(strom.StreamMisuse, match="Two readers"):
        await anext(stream)
    stream.cancel()
    assert (await waiting).type == "error"


async def test_a_sync_stream_inside_a_running_loop(backend: Loopback) -> None:
    assert sync_model(backend).complete("inside").text == "inside "


def test_a_sync_stream_on_the_background_loop_is_told(backend: Loopback) -> None:
    async def nested(a: int) -> str:
        return sync_model(backend).complete("inner").text

    events = list(sync_model(backend).stream("go", tools=[strom.tool(name="f")(nested)]))
    result = next(event for event in events if isinstance(event, StreamToolResult))
    assert "AsyncModel" in str(result.error)


# --- many ---------------------------------------------------------------------------------------------


def test_interleaved_streams_in_one_thread_and_in_many(backend: Loopback) -> None:
    model = sync_model(backend)
    streams = [model.stream(f"s{number} x y z") for number in range(8)]
    texts = [""] * 8
    for _ in range(4):
        for number, stream in enumerate(streams):
            event = next(stream)
            assert isinstance(event, StreamContent)
            texts[number] += event.text
    assert texts == [f"s{number} x y z " for number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: model.complete(f"t{number} a b").text, range(40)))
    assert found == [f"t{number} a b " for number in range(40)]


async def test_interleaved_streams_in_tasks(backend: Loopback) -> None:
    model = async_model(backend)
    replies = await asyncio.gather(*(model.complete(f"t{number} a b") for number in range(40)))
    assert [reply.text for reply in replies] == [f"t{number} a b " for number in range(40)]


def test_connections_are_used_again(backend: Loopback) -> None:
    model = sync_model(backend)
    for _ in range(8):
        model.complete("a")
    assert backend.open <= 3  # the end of a body may come after the next request has begun


def test_map_embed_models_count(backend: Loopback) -> None:
    model = sync_model(backend)
    shown: list[tuple[int, int]] = []
    results = model.map(["a", "refuse", "c"], concurrency=2, progress=lambda done, total: shown.append((done, total)))
    assert [result.ok for result in results] == [True, False, True]
    assert [result.reply.text for result in results if result.reply] == ["a ", "c "]
    assert isinstance(results[1].error, strom.ProviderError)
    assert shown[-1] == (3, 3)
    assert model.models() == ["m1", "m2"]
    assert model.embed(["abc", "de"]).vectors == ((3.0, 1.0), (2.0, 1.0))
    assert model.count_tokens("x" * 400).source == "estimated"
    assert model.map([]) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_has_a_loop_of_its_own(backend: Loopback) -> None:
    model = sync_model(backend)
    assert model.complete("parent").text == "parent "
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if model.complete("child").text == "child " else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert model.complete("again").text == "again "


def test_no_deadlock_when_the_loop_ends() -> None:
    background = network._Background()
    assert background.loop() is background.loop()
    background.stop()
    background.stop()


def test_slow_readers_stop_the_socket(backend: Loopback) -> None:
    big = "x" * 700_000
    stream = sync_model(backend).stream(big + " end")
    first: Iterator[StreamEvent] = iter(stream)
    next(first)
    time.sleep(0.1)
    assert "".join(event.text for event in first if isinstance(event, StreamContent)).endswith("end ")


async def test_slow_async_readers(backend: Loopback) -> None:
    stream = async_model(backend).stream(" ".join(["y" * 100_000] * 12))
    first: AsyncIterator[StreamEvent] = aiter(stream)
    await anext(first)
    await asyncio.sleep(0.1)
    assert len([event async for event in first]) == 12


def test_progress_bar(backend: Loopback, capsys: pytest.CaptureFixture[str]) -> None:
    sync_model(backend).map(["a", "b"], progress=True)
    assert "2/2" in capsys.readouterr().err
    assert sys.stderr is not None


async def test_async_cancel_ends_running_tools(backend: Loopback) -> None:
    async def slow(a: int) -> None:
        asyncio.get_running_loop().call_later(0.02, stream.cancel)
        await asyncio.sleep(2 * PATIENCE_S)

    stream = async_model(backend).stream("go", tools=[strom.tool(name="f")(slow)])
    assert names([event async for event in stream]) == ["tool_call", "error"]


async def test_cancelling_the_reader_ends_running_tools(backend: Loopback) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(a: int) -> None:
        began.set()
        try:
            await asyncio.sleep(2 * PATIENCE_S)
        finally:
            ended.set()

    stream = async_model(backend).stream("go", tools=[strom.tool(name="f")(slow)])
    task = asyncio.create_task(stream.reply())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
    assert stream.failure is None


def test_asyncio_run_leaves_no_socket_open(backend: Loopback) -> None:
    program = (
        "import asyncio, strom\n"
        "async def main():\n"
        f"    print((await strom.AsyncModel('m', base_url={backend.url!r}).complete('a')).text)\n"
        "asyncio.run(main())\nasyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "a \na \n"
    assert "ResourceWarning" not in done.stderr
