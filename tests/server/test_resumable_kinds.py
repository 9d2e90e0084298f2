"""Numbers in each kind of stream, whatever the pieces; who may read; what leaves memory."""

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.access import KeySettings
from strom.core.errors import InvalidStreamEvent
from strom.server.resumable import StreamLimits
from strom.server.resumable.numbering import numbering
from strom.server.resumable.peers import make_ear
from strom.shared.streams import home_of, new_home, new_id, protocol_of
from strom.transport.memory import MemoryExchange
from strom.upstreams.settings import ProviderSettings
from tests.server.resumable_rig import END, NDJSON, RESUMABLE, SSE, ResumableRig, chunk, numbered, stream_path
from tests.server.rig import provider

EVENTS = b": hello\n\nevent: x\ndata: 1\n\ndata: 2\r\n\r\nid: theirs\ndata: 3\n\ndata: 4\nid\n\ndata: [DONE]"
NUMBERED = [b"id: 1\nevent: x\ndata: 1\n\n", b"id: 2\ndata: 2\r\n\r\n", b"id: 3\ndata: 3\n\n", b"id: 4\ndata: 4\n\n"]
LINES = b'{"a":1}\n{"b":2}\n{"c":3}'


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({cut % len(data) for cut in cuts}), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


@given(st.lists(st.integers(0, 200), max_size=12))
def test_events_are_numbered_in_any_pieces(cuts: list[int]) -> None:
    kept, remarks = [], b""
    numbers = numbering(b"text/event-stream", 1000)
    for piece in pieces(EVENTS, cuts):
        frames, others = numbers.feed(piece)
        kept += frames
        remarks += others
    assert kept == NUMBERED
    assert remarks == b": hello\n\n"
    assert numbers.finish() == [b"id: 5\ndata: [DONE]"]


@given(st.lists(st.integers(0, 200), max_size=12))
def test_lines_are_counted_and_left_alone(cuts: list[int]) -> None:
    numbers = numbering(b"application/x-ndjson", 1000)
    kept = [line for piece in pieces(LINES, cuts) for line in numbers.feed(piece)[0]]
    assert kept + numbers.finish() == [b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}']
    assert b"".join(kept) == LINES[:16]


def test_a_word_that_begins_like_an_id_is_data() -> None:
    numbers = numbering(b"text/event-stream", 1000)
    assert numbers.feed(b"identity: x\ndata: id: 7\ndata: \\nid\n\n")[0] == [
        b"id: 1\nidentity: x\ndata: id: 7\ndata: \\nid\n\n"
    ]


def test_a_frame_without_end_is_an_error() -> None:
    with pytest.raises(InvalidStreamEvent):
        numbering(b"text/event-stream", 100).feed(b"data: " + b"x" * 200)


def test_ids_tell_their_protocol_and_home_and_nothing_else() -> None:
    home = new_home()
    first, second = (new_id("anthropic", home) for _ in range(2))
    assert first != second
    assert (home_of(first), protocol_of(first)) == (home, "anthropic")
    assert len(first.rpartition("_")[2]) >= 22 or "_" in first[14:]  # 128 random bits
    for bad in ("", "strm_c", first[:-1], first + "x", first.replace(home, "../../xx")):
        assert home_of(bad) is None


async def test_ollama_lines_are_counted() -> None:
    rig = ResumableRig(behind=provider("p1", protocol="ollama"))
    exchange = rig.send(path="/api/chat")
    rig.upstream.response(200, NDJSON)
    lines = [
        b'{"model":"m","created_at":"t","message":{"role":"assistant","content":"%b"},"done":false}\n' % text
        for text in (b"a", b"b", b"c")
    ]
    rig.upstream.read(lines[0] + lines[1])
    exchange.disconnect()
    rig.upstream.read(lines[2])
    again = await rig.resume(stream_path(exchange), 1)
    assert again.header_out(b"content-type") == b"application/x-ndjson"
    assert again.body_out == lines[1] + lines[2]


async def test_comments_reach_those_who_listen_and_are_not_kept() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a")
    late = await rig.resume(path, 1)
    late.pause()
    rig.upstream.read(b": still here\n\n" + chunk("b"))
    assert exchange.body_out.count(b"still here") == 1
    late.resume()
    assert late.body_out == numbered(chunk("b"), first=2)


KEYS = tuple(KeySettings(name, hashlib.sha256(name.encode()).hexdigest()) for name in ("one", "two"))


def bearer(name: str) -> tuple[bytes, bytes]:
    return (b"authorization", b"Bearer " + name.encode())


async def test_only_the_key_that_made_it_reads_and_cancels_it() -> None:
    rig = ResumableRig(keys=KEYS)
    exchange, path = rig.begin("a", headers=(bearer("one"),))
    for method in ("GET", "DELETE"):
        assert (await rig.open(path, bearer("two"), method=method)).status == 404
        assert (await rig.open(path, method=method)).status == 401
    assert exchange.state == "started"
    assert (await rig.open(path, bearer("one"))).status == 200
    assert (await rig.open(path, bearer("one"), method="DELETE")).status == 204


class Mirror:
    def __init__(self) -> None:
        self.told: list[str] = []

    def announce(self, info: object) -> None:
        self.told.append("announce")

    def append(self, stream_id: str, first: int, frames: list[bytes]) -> None:
        self.told.append(f"append {first} {len(frames)}")

    def end(self, stream_id: str, count: int, *, broken: bool) -> None:
        self.told.append(f"end {count} {broken}")

    def forget(self, stream_id: str) -> None:
        self.told.append("forget")


async def test_replicas_are_given_a_copy() -> None:
    rig = ResumableRig()
    rig.streams.mirror = mirror = Mirror()
    exchange, path = rig.begin("a", "b")
    rig.upstream.end(END)
    assert exchange.header_out(b"x-strom-resume-scope") == b"replicas"
    assert mirror.told == ["announce", "append 1 1", "append 2 1", "append 3 2", "end 4 False"]
    await rig.ask("DELETE", path)
    assert mirror.told[-1] == "forget"


@pytest.mark.parametrize("retention", ["none", "None "])
async def test_what_a_provider_may_not_keep_stays_in_memory(retention: str) -> None:
    rig = ResumableRig(behind=ProviderSettings("p1", "generic", "openai-chat", "http://h:9/v1", retention=retention))
    rig.streams.mirror = mirror = Mirror()
    exchange, path = rig.begin("a")
    assert exchange.header_out(b"x-strom-resume-scope") == b"gateway"
    assert mirror.told == []
    assert (await rig.open(path)).body_out == numbered(chunk("a"))


async def test_a_defect_in_the_call_is_not_the_end_of_the_stream() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a")
    stream = next(iter(rig.streams._streams.values()))
    stream.cut()
    assert exchange.state == "aborted"
    late: MemoryExchange = await rig.resume(path, 0)
    assert (late.state, late.body_out) == ("aborted", numbered(chunk("a")))


async def test_the_process_ends() -> None:
    rig = ResumableRig()
    exchange, _ = rig.begin("a")
    for call in list(rig.gateway.services.running):
        call.stop()
    assert b"shut down" in exchange.body_out
    await rig.resumption.close()
    assert (rig.streams.count, rig.streams.size_bytes, rig.clock.armed) == (0, 0, 0)


async def test_a_call_may_take_the_way_to_write_once() -> None:
    """Calls do so, before the head."""
    rig = ResumableRig()
    exchange = MemoryExchange("POST", "/v1/chat/completions", headers=[RESUMABLE], body=b"{}")
    wrapped = rig.resumption.wrap(exchange)
    write = wrapped.write
    wrapped.start(200, SSE)
    write(b"data: 1\n\n")
    assert exchange.body_out == b"data: 1\n\n"  # without a call there is nothing to keep
    kept, path = rig.begin(*"abcdefgh")
    assert kept.body_out == (await rig.open(path)).body_out == numbered(*map(chunk, "abcdefgh"))


async def test_a_reader_at_another_replica_keeps_it_alive() -> None:
    rig = ResumableRig(limits=StreamLimits(grace_s=60))
    exchange, path = rig.begin("a")
    hear = make_ear(rig.streams)
    stream_id = path.rpartition("/")[2]
    exchange.disconnect()
    for _ in range(4):
        rig.clock.advance(50)
        hear("read", stream_id)
    assert not rig.upstream.aborted
    rig.clock.advance(61)
    assert rig.upstream.aborted
    hear("read", "unknown")


async def test_another_replica_cancels() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a")
    hear = make_ear(rig.streams)
    hear("nonsense", path.rpartition("/")[2])
    assert not rig.upstream.aborted
    hear("cancel", path.rpartition("/")[2])
    assert rig.upstream.aborted
    assert b"cancelled the stream" in exchange.body_out
    assert (await rig.open(path)).status == 404


async def test_a_frame_that_never_ends_ends_the_stream() -> None:
    rig = ResumableRig()
    exchange, _ = rig.begin("a")
    stream = next(iter(rig.streams._streams.values()))
    stream._number = numbering(b"text/event-stream", 100).feed
    stream.take(b"data: " + b"x" * 300)
    assert rig.upstream.aborted
    assert exchange.state == "finished"
    assert rig.record.status == "failed"
