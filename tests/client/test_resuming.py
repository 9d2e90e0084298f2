"""Streams that go on after their connection broke: nothing lost, nothing doubled, and the metadata say so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strom.client import resuming
from strom.client.async_model import AsyncModel
from strom.client.events import StreamCompleted, StreamContent, StreamError, StreamEvent
from strom.client.resuming import NOT_KEPT
from strom.transport.memory import MemoryClient, MemoryUpstream
from strom.transport.types import Headers, Origin, OutgoingRequest, TransportFailure
from tests.client.rig import DONE, NDJSON, SSE, content, finish
from tests.patience import PATIENCE_S, until

CUT = TransportFailure("cut", "reset", sent=True)
STREAM = "strm_c00000000_AAAAAAAAAAAAAAAAAAAAAA"
KEPT = [*SSE, (b"x-strom-stream-id", STREAM.encode())]
FRAMES = [content("one "), content("two "), content("three"), finish("stop"), DONE]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE_S", 0.0)


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"id: %d\n%b" % (number, FRAMES[number - 1]) for number in range(first, last + 1))


class Rig:
    """A stream that a task reads, and its upstreams. `events`: what was read."""

    def __init__(self, **options: Any) -> None:
        self.client = MemoryClient()
        self.model = AsyncModel("m", base_url="http://gateway:1/prefix", transport=self.client, environ={}, api_key="k")
        self.events: list[StreamEvent] = []
        self.stream = self.model.stream("hi", **{"resume": True, **options})
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.stream:
            self.events.append(event)

    async def sent(self, count: int) -> MemoryUpstream:
        """The request of that number, once it went out."""
        await until(lambda: len(self.client.sent) >= count)
        return self.client.sent[count - 1]

    async def begin(self, data: bytes) -> MemoryUpstream:
        upstream = await self.sent(1)
        upstream.response(200, KEPT)
        upstream.read(data)
        return upstream

    async def end(self) -> StreamCompleted | StreamError:
        await asyncio.wait_for(self.task, PATIENCE_S)
        last = self.events[-1]
        assert isinstance(last, StreamCompleted | StreamError)
        return last

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, StreamContent))


def header(upstream: MemoryUpstream, name: bytes) -> bytes | None:
    return dict(upstream.request.headers).get(name)


@pytest.mark.parametrize("at", [0, 3, 7, 40, len(numbered(1, 2)) - 1, len(numbered(1, 2)), len(numbered(1, 5)) - 1])
async def test_a_cut_anywhere_is_resumed(at: int) -> None:
    rig = Rig()
    upstream = await rig.begin(numbered(1, 5)[:at])
    assert header(upstream, b"x-strom-resumable") == b"1"
    upstream.fail(CUT)
    again = await rig.sent(2)
    request = again.request
    assert (request.method, request.target, request.body) == ("GET", f"/prefix/v1/streams/{STREAM}", b"")
    assert header(again, b"authorization") == header(upstream, b"authorization")
    last = int(header(again, b"last-event-id") or b"")
    assert last == numbered(1, 5)[:at].count(b"\n\n")
    again.response(200, KEPT)
    again.end(numbered(last + 1, 5))
    end = await rig.end()
    assert isinstance(end, StreamCompleted)
    assert (rig.text, end.metadata.resumed, end.metadata.dropped) == ("one two three", 1, ())


async def test_many_cuts_and_a_gateway_that_is_away_for_a_while() -> None:
    rig = Rig()
    (await rig.begin(numbered(1, 1))).fail(CUT)
    (await rig.sent(2)).fail(TransportFailure("connect", "refused", sent=False))
    busy = await rig.sent(3)
    busy.response(503, [(b"content-type", b"application/json")])
    busy.end(b"{}")
    third = await rig.sent(4)
    third.response(200, KEPT)
    third.read(numbered(2, 3) + b"id: 4\nda")
    third.fail(CUT)
    fourth = await rig.sent(5)
    assert header(fourth, b"last-event-id") == b"3"
    fourth.response(200, KEPT)
    fourth.end(numbered(3, 5))  # one of them once more
    end = await rig.end()
    assert (rig.text, end.metadata.resumed) == ("one two three", 2)


async def test_without_a_cut_nothing_is_different() -> None:
    rig = Rig()
    (await rig.begin(b": hello\n\n" + numbered(1, 5))).end()
    end = await rig.end()
    assert (rig.text, end.metadata.resumed, len(rig.client.sent)) == ("one two three", 0, 1)


async def test_a_backend_that_keeps_no_streams() -> None:
    rig = Rig()
    upstream = await rig.sent(1)
    upstream.response(200, SSE)
    upstream.end(b"".join(FRAMES))
    end = await rig.end()
    assert (rig.text, end.metadata.resumed, end.metadata.dropped) == ("one two three", None, (NOT_KEPT,))


async def test_a_cut_at_such_a_backend_is_told_as_ever() -> None:
    rig = Rig()
    upstream = await rig.sent(1)
    upstream.response(200, SSE)
    upstream.read(FRAMES[0])
    upstream.fail(CUT)
    end = await rig.end()
    assert isinstance(end, StreamError)
    assert (end.reason, end.metadata.text, len(rig.client.sent)) == ("incomplete_stream", "one ", 1)


async def test_who_did_not_ask_is_not_resumed() -> None:
    rig = Rig(resume=False)
    upstream = await rig.begin(FRAMES[0])
    assert header(upstream, b"x-strom-resumable") is None
    upstream.fail(CUT)
    end = await rig.end()
    assert (type(end), end.metadata.resumed) == (StreamError, None)


@pytest.mark.parametrize("status", [404, 400, 401])
async def test_a_stream_that_is_gone_is_an_incomplete_one(status: int) -> None:
    rig = Rig()
    (await rig.begin(numbered(1, 2))).fail(CUT)
    again = await rig.sent(2)
    again.response(status, [(b"content-type", b"application/json")])
    again.end(b'{"error": {"message": "no"}}')
    end = await rig.end()
    assert isinstance(end, StreamError)
    assert (end.reason, end.metadata.text, end.metadata.resumed) == ("incomplete_stream", "one two ", 0)
    assert end.error is not None
    assert f"resuming was refused with HTTP {status}" in (end.error.detail or "")


async def test_attempts_that_bring_nothing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "MAX_ATTEMPTS", 3)
    rig = Rig()
    (await rig.begin(numbered(1, 1))).fail(CUT)
    for count in (2, 3, 4):
        (await rig.sent(count)).fail(TransportFailure("connect", "refused", sent=False))
    assert isinstance(await rig.end(), StreamError)
    assert len(rig.client.sent) == 4


async def test_a_gap_is_an_error_and_never_passed_over() -> None:
    rig = Rig()
    (await rig.begin(numbered(1, 1))).fail(CUT)
    again = await rig.sent(2)
    again.response(200, KEPT)
    again.read(numbered(3, 5))
    assert isinstance(await rig.end(), StreamError)
    assert rig.text == "one "
    assert again.aborted


async def test_who_leaves_early_cancels_at_the_gateway() -> None:
    rig = Rig()
    upstream = await rig.begin(numbered(1, 1))
    await until(lambda: rig.text)
    rig.stream.cancel()
    assert isinstance(await rig.end(), StreamError)
    assert upstream.aborted
    gone = await rig.sent(2)
    assert (gone.request.method, gone.request.target) == ("DELETE", f"/prefix/v1/streams/{STREAM}")
    gone.response(204, [])
    gone.end()


async def test_who_leaves_between_two_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "FIRST_PAUSE_S", 30.0)
    rig = Rig()
    (await rig.begin(numbered(1, 1))).fail(CUT)
    await until(lambda: rig.text)
    rig.stream.cancel()
    await rig.end()
    assert [each.request.method for each in rig.client.sent] == ["POST", "DELETE"]


async def test_lines_are_counted() -> None:
    client = MemoryClient()
    model = AsyncModel("m", base_url="http://gateway:1", protocol="ollama", transport=client, environ={})
    reading = asyncio.create_task(_whole(model))
    await until(lambda: client.sent)
    lines = [b'{"message":{"role":"assistant","content":"%b"},"done":false}\n' % text for text in (b"a", b"b", b"c")]
    last = b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'
    client.sent[0].response(200, [*NDJSON, (b"x-strom-stream-id", STREAM.encode())])
    client.sent[0].read(lines[0] + lines[1][:20])
    client.sent[0].fail(CUT)
    await until(lambda: len(client.sent) == 2)
    assert header(client.sent[1], b"last-event-id") == b"1"
    client.sent[1].response(200, NDJSON)
    client.sent[1].end(lines[1] + lines[2] + last)
    assert await asyncio.wait_for(reading, PATIENCE_S) == ("abc", 1)


async def _whole(model: AsyncModel) -> tuple[str, int | None]:
    reply = await model.complete("hi", resume=True)
    return reply.text, reply.metadata.resumed


async def test_an_end_by_close_proves_nothing() -> None:
    rig = Rig()
    (await rig.begin(numbered(1, 2))).end(delimited_by_close=True)
    again = await rig.sent(2)
    again.response(200, KEPT)
    again.end(numbered(3, 5))
    assert ((await rig.end()).metadata.resumed, rig.text) == (1, "one two three")


async def test_the_last_line_may_lack_its_end() -> None:
    rig = Rig()
    (await rig.begin(numbered(1, 5)[:-2])).end()
    assert isinstance(await rig.end(), StreamCompleted)


async def test_a_slow_reader_is_slow_after_a_break_too() -> None:
    client, state = MemoryClient(), resuming.Resuming()
    receiver = Receiver()
    request = OutgoingRequest("POST", "/v1/chat/completions?x=1", [(b"content-type", b"application/json")], b"{}")
    exchange = state.over(client).send(Origin("http", "h", 1), request, receiver, connect_timeout_s=1)
    client.sent[0].response(200, KEPT)
    client.sent[0].read(numbered(1, 1))
    exchange.pause_reading()
    client.sent[0].fail(CUT)
    await until(lambda: len(client.sent) == 2)
    again = client.sent[1]
    assert (again.paused, again.request.target, again.request.headers) == (
        True,
        f"/v1/streams/{STREAM}",
        [(b"last-event-id", b"1")],
    )
    exchange.resume_reading()
    assert not again.paused
    again.response(200, KEPT)
    again.end(numbered(2, 5))
    assert receiver.told == ["200", *FRAMES[:1], b"".join(FRAMES[1:]), "end"]


class Receiver:
    def __init__(self) -> None:
        self.told: list[str | bytes] = []

    def on_response(self, status: int, headers: Headers) -> None:
        self.told.append(str(status))

    def on_body(self, data: bytes) -> None:
        self.told.append(data)

    def on_read_end(self) -> None: ...

    def on_end(self, *, delimited_by_close: bool) -> None:
        self.told.append("end")

    def on_failure(self, failure: TransportFailure) -> None:
        self.told.append("failure")
