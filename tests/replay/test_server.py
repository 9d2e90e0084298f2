"""The replay server on a socket: recorded bytes and framing, and what every fault looks like to a client."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import time
from typing import Any

import pytest

from strom.replay import BadFault, Played, ReplayOptions, ReplayServer
from strom.replay.recording import Recording
from tests.patience import PATIENCE_S, until
from tests.replay.recordings import BODY, CHAT, FRAMES, exchange, hear_stall, request_bytes, stream, unchunk, whole
from tests.transport.loops import on_both_loops

FAST = ReplayOptions(speed=None)


def server(*recordings: Recording, **options: Any) -> ReplayServer:
    return ReplayServer(recordings or (stream(source="s"),), ReplayOptions(**{"speed": None, **options}))


def faulty(spec: str) -> bytes:
    return request_bytes(extra=f"x-strom-fault: {spec}\r\n")


@on_both_loops
async def test_a_recording_is_served_in_its_own_framing_and_the_connection_serves_again() -> None:
    async with server(stream(), whole("w", request={"q": 1})) as replay:
        got, how = await exchange(
            replay.port, request_bytes(), request_bytes(body={"q": 1}, extra="connection: close\r\n")
        )
    assert how == "eof"
    first, _, second = got.partition(b"0\r\n\r\n")
    assert unchunk(first + b"0\r\n\r\n") == (BODY, True)
    assert first.count(b"\r\n", first.index(b"\r\n\r\n") + 4) == 2 * len(FRAMES), "one chunk per read"
    assert first.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    assert b"content-length: 13\r\nconnection: close\r\n" in second
    assert second.endswith(b'\r\n\r\n{"text": "w"}')


@on_both_loops
@pytest.mark.parametrize(("how", "seen"), [("close", "eof"), ("reset", "reset"), ("half", "eof")])
async def test_cuts(how: str, seen: str) -> None:
    async with server() as replay:
        got, ended = await exchange(replay.port, faulty(f"cut@100={how}"))
        assert (unchunk(got), ended) == ((BODY[:100], False), seen)
        assert unchunk((await exchange(replay.port, request_bytes()))[0]) == (BODY, True)


async def test_half_closed_means_that_the_server_still_listens() -> None:
    async with server() as replay:
        reader, writer = await asyncio.open_connection("127.0.0.1", replay.port)
        writer.write(faulty("cut@1t=half"))
        await reader.read()
        assert replay.open_connections == 1
        writer.close()
        await writer.wait_closed()


async def test_a_stall_keeps_the_connection_and_sends_nothing() -> None:
    async with server() as replay:
        got = await hear_stall(replay.port, faulty("stall@1t"), FRAMES[1])
        assert unchunk(got) == (FRAMES[0] + FRAMES[1], False)
        got, _ = await exchange(replay.port, faulty("stall@1t=0.05"))
        assert unchunk(got) == (BODY, True)


async def test_a_trickle_comes_in_single_bytes() -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, faulty("trickle"))
    assert unchunk(got) == (BODY, True)
    assert got.count(b"\r\n1\r\n") == len(BODY)


async def test_garbage_is_the_same_in_every_run_with_one_seed() -> None:
    bodies = []
    for seed in (1, 1, 2):
        async with server(seed=seed) as replay:
            got, _ = await exchange(replay.port, faulty("garbage@20=8"))
            bodies.append(unchunk(got)[0])
    assert bodies[0] == bodies[1] != bodies[2]
    assert {len(body) for body in bodies} == {len(BODY) + 8}


async def test_gzip() -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, faulty("gzip"))
    assert b"content-encoding: gzip\r\n" in got
    assert gzip.decompress(unchunk(got)[0]) == BODY


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (CHAT, {"error": {"message": "", "type": "rate_limit_error", "param": None, "code": None}}),
        ("/v1/messages", {"type": "error", "error": {"type": "rate_limit_error", "message": ""}}),
        ("/api/chat", {"error": ""}),
    ],
)
async def test_statuses_in_the_protocol_of_the_path(path: str, error: dict[str, Any]) -> None:
    async with server() as replay:
        spec = "x-strom-fault: status=429; retry-after=3\r\n"
        got, _ = await exchange(replay.port, request_bytes(path, extra=spec))
        plain, _ = await exchange(replay.port, faulty("status=529"))
    assert got.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"\r\nretry-after: 3\r\n" in got
    shown = json.dumps(json.loads(got.partition(b"\r\n\r\n")[2])).replace("A fault on request: status 429.", "")
    assert json.loads(shown) == error
    assert plain.startswith(b"HTTP/1.1 529 Unknown\r\n")
    assert b"retry-after" not in plain


async def test_a_page_of_html() -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, faulty("html=503"))
    assert got.startswith(b"HTTP/1.1 503 ")
    assert b"content-type: text/html" in got
    assert b"<h1>503</h1>" in got


async def test_a_slow_head_and_recorded_time() -> None:
    async with server(speed=1.0) as replay:
        begun = time.monotonic()
        await exchange(replay.port, request_bytes(extra="connection: close\r\n"))
        assert 0.05 <= time.monotonic() - begun < PATIENCE_S / 2
        begun = time.monotonic()
        await exchange(replay.port, faulty("slow-head=0.1; status=500"))
        assert time.monotonic() - begun >= 0.1


@on_both_loops
async def test_a_refused_tls_handshake() -> None:
    async with server(faults="tls") as replay:
        context = ssl.create_default_context()
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            await asyncio.open_connection("127.0.0.1", replay.port, ssl=context, server_hostname="localhost")


async def test_flapping_strikes_every_kth_request() -> None:
    async with server(faults=("every=2", "status=500")) as replay:
        await exchange(replay.port, *[request_bytes()] * 4)
        assert [played.status for played in replay.played] == [200, 500, 200, 500]


async def test_a_request_s_own_faults_replace_the_server_s_and_may_stand_in_the_query() -> None:
    async with server(faults="status=500") as replay:
        got, _ = await exchange(replay.port, request_bytes(f"{CHAT}?beta=true&x-strom-fault=cut%405"))
        assert unchunk(got) == (BODY[:5], False)
        assert replay.played[0].asked.target == f"{CHAT}?beta=true"


@pytest.mark.parametrize("spec", ["frob", "tls"])
async def test_a_fault_that_cannot_be_is_a_400(spec: str) -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, faulty(spec))
    assert got.startswith(b"HTTP/1.1 400 ")
    assert spec.encode() in got


def test_a_server_is_not_made_with_a_fault_that_cannot_be() -> None:
    with pytest.raises(BadFault):
        server(faults="frob")


async def test_what_is_not_recorded_is_said() -> None:
    async with server(loop=False) as replay:
        other, _ = await exchange(replay.port, request_bytes("/v1/nope"))
        fresh = request_bytes(body={"model": "other"})
        _, second = [await exchange(replay.port, fresh) for _ in range(2)]
    assert other.startswith(b"HTTP/1.1 404 ")
    assert b"No recording of POST /v1/nope; there are: POST /v1/chat/completions." in other
    assert second[0].startswith(b"HTTP/1.1 503 ")
    assert b"without --once they are played again" in second[0]


@pytest.mark.parametrize(
    ("path", "extra", "shown"),
    [
        ("/v1/models", "", '"object": "list"'),
        ("/v1/models", "anthropic-version: 2023-06-01\r\n", '"has_more": false'),
        ("/v1/models/m", "", '"id": "m"'),
        ("/v1/models/m", "anthropic-version: 2023-06-01\r\n", '"display_name": "m"'),
        ("/v1/models/other", "", "in none of the recordings"),
        ("/api/tags", "", '"models": [{"name": "m"'),
        ("/api/version", "", '"version"'),
        ("/health", "", "ok"),
        ("/", "", "strom replay"),
    ],
)
async def test_small_questions_are_answered(path: str, extra: str, shown: str) -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, request_bytes(path, method="GET", extra=extra))
        head, _ = await exchange(replay.port, request_bytes(path, method="HEAD", extra=extra))
        assert not replay.played, "only calls are counted"
    assert shown in got.decode()
    assert head == got.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


async def test_a_recorded_list_of_models_is_preferred() -> None:
    recorded = whole("mine", path="/v1/models")
    async with server(Recording(recorded.asked.__class__("GET", "/v1/models"), *recorded_parts(recorded))) as replay:
        got, _ = await exchange(replay.port, request_bytes("/v1/models", method="GET", body={}))
    assert b'{"text": "mine"}' in got


def recorded_parts(recording: Recording) -> tuple[Any, ...]:
    return recording.head, recording.pieces, recording.ending


async def test_played_is_told_and_close_cuts_what_is_open() -> None:
    told: list[Played] = []
    replay = server(faults="stall@1t", on_played=told.append)
    await replay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", replay.port)
    writer.write(request_bytes())
    await reader.readuntil(b"Hel")
    assert [(played.number, played.source, played.status) for played in told] == [(1, "s", 200)]
    await replay.close()
    assert replay.open_connections == 0
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1000)
    writer.close()


async def test_a_client_that_leaves_ends_its_answer() -> None:
    async with server(faults="stall@1t") as replay:
        before = len(asyncio.all_tasks())
        await hear_stall(replay.port, request_bytes(), FRAMES[1])
        await until(lambda: replay.open_connections == 0 and len(asyncio.all_tasks()) == before)


async def test_a_client_that_reads_slowly_is_waited_for() -> None:
    async with server(stream(*[b": " + b"x" * 65_536 + b"\n\n"] * 60)) as replay:
        reader, writer = await asyncio.open_connection("127.0.0.1", replay.port, limit=65_536)
        writer.write(request_bytes(extra="connection: close\r\n"))
        await asyncio.sleep(0.2)
        got = await reader.read()
        assert unchunk(got)[1]
        writer.close()


@pytest.mark.parametrize("sent", [b"no http\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n"])
async def test_what_is_no_request_is_cut(sent: bytes) -> None:
    async with server() as replay:
        got, ended = await exchange(replay.port, sent)
    assert got == b""
    assert ended in ("eof", "reset")


async def test_a_client_may_wait_for_continue() -> None:
    async with server() as replay:
        got, _ = await exchange(replay.port, request_bytes(extra="expect: 100-continue\r\n"))
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
