"""Streams that other processes run: their clients here see one stream, cut short where it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from strom.core.errors import NotFound
from strom.protocols.table import CODECS
from strom.server.responses.exchanges import StoringExchange
from strom.shared.streams import RemoteStream, StreamInfo, StreamLost, new_id
from strom.transport.memory import MemoryExchange
from tests.server.resumable_rig import RESUMABLE, SSE, ResumableRig

HOME = "0123abcd"
LOST = b"lost"


class Remote:
    """Gives what a test puts into it; `LOST` loses it, None ends it."""

    def __init__(self, stream_id: str, content_type: str = "text/event-stream") -> None:
        protocol = "ollama" if "ndjson" in content_type else "openai-chat"
        self.info = StreamInfo(stream_id, "", protocol, content_type, "trace")
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.left = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while (piece := await self.pieces.get()) is not None:
                if piece == LOST:
                    raise StreamLost("gone")
                yield piece
        finally:
            self.left = True


class Place:
    """`knows` False: it knows that there is none; None: it knows nothing."""

    def __init__(self, remote: Remote | None = None, *, knows: bool | None = None) -> None:
        self.remote = remote
        self.knows = knows
        self.asked: list[tuple[str, int]] = []

    async def read(self, stream_id: str, owner: str, after: int) -> RemoteStream | None:
        self.asked.append(("read", after))
        if self.knows is False:
            raise NotFound("gone")
        return self.remote

    async def cancel(self, stream_id: str, owner: str) -> bool:
        self.asked.append(("cancel", 0))
        if self.knows is False:
            raise NotFound("gone")
        return self.remote is not None


STREAM = new_id("openai-chat", HOME)
PATH = f"/v1/streams/{STREAM}"


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def opened(remote: Remote, path: str = PATH) -> MemoryExchange:
    return await ResumableRig(replicas=Place(remote)).resume(path, 3)


async def test_it_is_read_as_it_comes_to_its_end() -> None:
    remote = Remote(STREAM)
    rig = ResumableRig(peers=(peers := Place()), replicas=(replicas := Place(remote)))
    exchange = await rig.resume(PATH, 3)
    assert (peers.asked, replicas.asked) == ([("read", 3)], [("read", 3)])
    assert (exchange.status, exchange.header_out(b"x-strom-trace-id")) == (200, b"trace")
    assert exchange.header_out(b"x-strom-resume-scope") == b"replicas"
    for piece in (b"id: 4\ndata: x\n\n", b"id: 5\ndata: y\n\n", None):
        remote.pieces.put_nowait(piece)
    await rig.until(lambda: exchange.state == "finished")
    assert exchange.body_out == b"id: 4\ndata: x\n\nid: 5\ndata: y\n\n"


async def test_silence_is_filled_where_the_protocol_has_a_way() -> None:
    for content, sign in (("text/event-stream", b": keep-alive\n\n"), ("application/x-ndjson", b"")):
        remote = Remote(STREAM, content)
        exchange = await opened(remote)
        remote.pieces.put_nowait(b"")
        remote.pieces.put_nowait(None)
        await turns()
        assert (exchange.state, exchange.body_out) == ("finished", sign)


async def test_a_lost_stream_is_cut_short() -> None:
    remote = Remote(STREAM)
    exchange = await opened(remote)
    remote.pieces.put_nowait(b"id: 4\ndata: x\n\n")
    remote.pieces.put_nowait(LOST)
    await turns()
    assert (exchange.state, exchange.body_out) == ("aborted", b"id: 4\ndata: x\n\n")


async def test_a_slow_client_slows_down_its_source() -> None:
    remote = Remote(STREAM)
    exchange = await opened(remote)
    exchange.pause()
    for _ in range(3):
        remote.pieces.put_nowait(b"data: x\n\n")
    await turns()
    assert exchange.body_out == b"data: x\n\n"
    exchange.resume()
    await turns()
    assert exchange.body_out == b"data: x\n\n" * 3


async def test_a_client_that_leaves_is_gone_there_too() -> None:
    remote = Remote(STREAM)
    exchange = await opened(remote)
    await turns()
    exchange.disconnect()
    await turns()
    assert remote.left


async def test_what_the_home_says_is_final() -> None:
    for method in ("GET", "DELETE"):
        rig = ResumableRig(peers=Place(knows=False), replicas=(replicas := Place(Remote(STREAM))))
        assert (await rig.ask(method, PATH)).status == 404
        assert replicas.asked == []


async def test_a_cancellation_goes_where_the_stream_is() -> None:
    rig = ResumableRig(peers=(peers := Place()), replicas=(replicas := Place(Remote(STREAM))))
    assert (await rig.ask("DELETE", PATH)).status == 204
    assert (peers.asked, replicas.asked) == ([("cancel", 0)], [("cancel", 0)])
    assert (await ResumableRig(replicas=Place()).ask("DELETE", PATH)).status == 404


async def test_nobody_else_is_asked_for_a_stream_of_this_home() -> None:
    rig = ResumableRig(replicas=(replicas := Place(Remote(STREAM))))
    assert (await rig.ask("GET", f"/v1/streams/{new_id('openai-chat', rig.streams.home)}")).status == 404
    assert replicas.asked == []


async def test_a_stream_is_kept_and_its_response_stored_at_once() -> None:
    rig = ResumableRig()
    body = b'{"model":"m","input":"x","stream":true}'
    exchange = MemoryExchange("POST", "/v1/responses", headers=[RESUMABLE], body=body)
    stored: list[bytes] = []
    storing = StoringExchange(rig.resumption.wrap(exchange), stored.append)
    rig.gateway.handle_call(storing, CODECS["openai-responses"])
    rig.upstream.response(200, SSE)
    choice = '"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]'
    rig.upstream.end(b'data: {"id":"c","model":"m",' + choice.encode() + b"}\n\ndata: [DONE]\n\n")
    assert exchange.state == "finished"
    path = f"/v1/streams/{(exchange.header_out(b'x-strom-stream-id') or b'').decode()}"
    assert (await rig.open(path)).body_out == exchange.body_out
    assert exchange.body_out.startswith(b"id: 1\nevent: response.created\n")
    assert len(stored) == 1
