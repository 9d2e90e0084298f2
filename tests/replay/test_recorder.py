"""The recording proxy on sockets: what passes, what is written, how ends are told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from strom.replay import ReplayOptions, ReplayServer, lines, load
from strom.replay.recorder import Recorder, Store, Written
from strom.replay.recording import Ending, Recording
from strom.transport.client import NativeClient
from strom.transport.listener import Listener
from strom.transport.memory import MemoryClient, MemoryExchange
from strom.transport.types import Origin, Refusal, TransportFailure
from strom.upstreams.urls import BaseUrl, parse_base_url
from tests.patience import until
from tests.replay.recordings import BODY, FRAMES, exchange, hear_stall, request_bytes, stream, unchunk, whole

KEY = "hunter2-hunter2-hunter2"


class Proxy:
    def __init__(self, port: int, written: list[Written], backend: ReplayServer) -> None:
        self.port = port
        self.written = written
        self.backend = backend

    async def one(self) -> Recording:
        """The one recording, once it is written."""
        await until(lambda: self.written)
        (written,) = self.written
        assert written.path is not None
        (recording,) = load(written.path)
        return recording


@contextlib.asynccontextmanager
async def recording(out: Path, *recordings: Recording, faults: str = "", base: str = "") -> AsyncIterator[Proxy]:
    written: list[Written] = []
    async with ReplayServer(recordings or [stream()], ReplayOptions(speed=None, faults=faults)) as backend:
        client = NativeClient(environ={})
        store = Store(out)
        store.prepare()
        listener = Listener(Recorder(client, parse_base_url(backend.url + base), store, written.append).handle)
        await listener.start("127.0.0.1", 0)
        yield Proxy(listener.port, written, backend)
        await listener.close()
        client.close()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def written_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_a_stream_passes_unchanged_and_is_written(tmp_path: Path) -> None:
    async with recording(tmp_path) as proxy:
        headers = f"authorization: Bearer {KEY}\r\nanthropic-version: 1\r\nx-secret: s\r\nconnection: close\r\n"
        body = {"model": "m", "stream": True, "note": f"my key {KEY}"}
        got, ended = await exchange(proxy.port, request_bytes("/v1/chat/completions?key=abc", body, extra=headers))
        assert (unchunk(got), ended) == ((BODY, True), "eof")
        made = await proxy.one()
        asked = proxy.backend.played[0].asked
    assert ("authorization", f"Bearer {KEY}") in asked.headers, "the backend gets what the client sent"
    assert asked.target.endswith("?key=abc")
    assert json.loads(asked.body) == body
    assert made.body == BODY
    assert made.asked.target == "/v1/chat/completions?key=***"
    assert made.asked.headers == (("authorization", "***"), ("anthropic-version", "1"))
    assert json.loads(made.asked.body)["note"] == "my key " + "*" * len(KEY)
    assert KEY.encode() not in written_in(tmp_path)
    assert made.ending.kind == "complete"
    assert made.head is not None
    assert (made.head.status, made.head.header("transfer-encoding")) == (200, "chunked")
    assert names_in(tmp_path) == ["0001-post-v1-chat-completions.jsonl"]


async def test_each_read_is_a_line_with_its_time(tmp_path: Path) -> None:
    async with recording(tmp_path, faults="stall@1t=0.6") as proxy:
        await exchange(proxy.port, request_bytes())
        made = await proxy.one()
    gaps = [after.t_ms - before.t_ms for before, after in pairwise(made.pieces)]
    assert max(gaps) >= 100
    assert made.body == BODY


@pytest.mark.parametrize(("fault", "kind"), [("cut@100", "cut"), ("cut@100=reset", "reset"), ("cut@100=half", "cut")])
async def test_an_upstream_that_breaks_off_is_passed_on_and_named(tmp_path: Path, fault: str, kind: str) -> None:
    async with recording(tmp_path, faults=fault) as proxy:
        got, _ = await exchange(proxy.port, request_bytes())
        assert unchunk(got) == (BODY[:100], False)
        made = await proxy.one()
    assert (made.body, made.ending.kind) == (BODY[:100], kind)
    assert made.ending.detail


async def test_a_read_leaves_at_once_and_a_client_that_leaves_closes_the_upstream_and_is_named(tmp_path: Path) -> None:
    async with recording(tmp_path, faults="stall@1t") as proxy:
        await hear_stall(proxy.port, request_bytes(), FRAMES[1])
        made = await proxy.one()
        assert (made.body, made.ending.kind) == (FRAMES[0] + FRAMES[1], "client_left")
        await until(lambda: proxy.backend.open_connections == 0)


async def test_whole_answers_errors_and_bodiless_ones_keep_their_length(tmp_path: Path) -> None:
    async with recording(tmp_path, whole("w", request={"q": 1})) as proxy:
        got, _ = await exchange(proxy.port, request_bytes(body={"q": 1}, extra="connection: close\r\n"))
        assert b"content-length: 13\r\n" in got
        assert got.endswith(b'\r\n\r\n{"text": "w"}')
        got, _ = await exchange(proxy.port, request_bytes("/v1/models", method="HEAD", extra="connection: close\r\n"))
        assert b"content-length: " in got
        assert got.endswith(b"\r\n\r\n")
        got, _ = await exchange(proxy.port, request_bytes("/v1/nope", extra="connection: close\r\n"))
        assert got.startswith(b"HTTP/1.1 404 ")
    assert [(w.recording.asked.method, w.recording.ending.kind) for w in proxy.written] == [
        ("POST", "complete"),
        ("HEAD", "complete"),
        ("POST", "complete"),
    ]


async def test_compressed_answers_are_written_and_passed_on_plain(tmp_path: Path) -> None:
    async with recording(tmp_path, faults="gzip") as proxy:
        extra = "accept-encoding: gzip\r\nconnection: close\r\n"
        got, _ = await exchange(proxy.port, request_bytes(extra=extra))
        assert unchunk(got) == (BODY, True)
        assert "accept-encoding" not in dict(proxy.backend.played[0].asked.headers)
        made = await proxy.one()
    assert made.head is not None
    assert made.head.header("content-encoding") is None
    assert made.body == BODY


async def test_what_was_recorded_can_be_replayed(tmp_path: Path) -> None:
    async with recording(tmp_path) as proxy:
        await exchange(proxy.port, request_bytes(extra="connection: close\r\n"))
        await proxy.one()
    async with ReplayServer(load(tmp_path), ReplayOptions(speed=None)) as again:
        got, _ = await exchange(again.port, request_bytes(extra="connection: close\r\n"))
    assert unchunk(got) == (BODY, True)


async def test_a_base_path_stands_before_the_client_s_path(tmp_path: Path) -> None:
    async with recording(tmp_path, whole("w", path="/api/openai/v1/x"), base="/api/openai/v1") as proxy:
        got, _ = await exchange(proxy.port, request_bytes("/v1/x", extra="connection: close\r\n"))
        assert got.startswith(b"HTTP/1.1 200 ")
        assert (await proxy.one()).asked.target == "/v1/x", "as the client saw it"


# -- without sockets

BASE = BaseUrl(Origin("http", "h", 1))


def tapped(tmp_path: Path, **given: object) -> tuple[MemoryExchange, MemoryClient, list[Written]]:
    client, written = MemoryClient(), []  # type: tuple[MemoryClient, list[Written]]
    it = MemoryExchange("POST", "/v1/x", **given)  # type: ignore[arg-type]
    Recorder(client, BASE, Store(tmp_path / "a.jsonl"), written.append).handle(it)
    return it, client, written


def test_no_upstream_is_a_502(tmp_path: Path) -> None:
    it, client, written = tapped(tmp_path)
    client.sent[0].fail(TransportFailure("connect", "refused", sent=False))
    assert it.status == 502
    assert b"refused" in it.body_out
    assert written[0].recording.head is None
    assert written[0].recording.ending.kind == "unreachable"
    assert load(tmp_path / "a.jsonl")[0].ending.detail == "connect: refused"


def test_a_refused_request_is_answered_and_not_recorded(tmp_path: Path) -> None:
    it, client, written = tapped(tmp_path, refusal=Refusal(413, "body_too_large", "too long"))
    assert (it.status, client.sent, written) == (413, [], [])


def test_a_slow_client_pauses_the_upstream(tmp_path: Path) -> None:
    it, client, _ = tapped(tmp_path)
    client.sent[0].response(200)
    it.pause()
    assert client.sent[0].paused
    it.resume()
    assert not client.sent[0].paused


def test_several_pieces_of_one_read_are_one_write_and_one_line(tmp_path: Path) -> None:
    it, client, written = tapped(tmp_path)
    client.sent[0].response(200)
    client.sent[0].read(b"a", b"b")
    client.sent[0].end(b"c")
    assert it.writes == [b"ab", b"c"]
    assert [piece.data for piece in written[0].recording.pieces] == [b"ab", b"c"]


def test_too_much_is_forwarded_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.replay.recorder.MAX_KEPT_BYTES", 5)
    it, client, written = tapped(tmp_path)
    client.sent[0].response(200)
    for _ in range(3):
        client.sent[0].read(b"abc")
    client.sent[0].end()
    assert it.body_out == b"abc" * 3
    made = written[0].recording
    assert (made.body, made.ending.kind) == (b"abc", "cut")
    assert "in truth: complete" in str(made.ending.detail)


def test_a_failure_to_write_never_reaches_the_client(tmp_path: Path) -> None:
    client, written = MemoryClient(), []  # type: tuple[MemoryClient, list[Written]]
    it = MemoryExchange("POST", "/v1/x")
    Recorder(client, BASE, Store(tmp_path / "missing"), written.append).handle(it)
    client.sent[0].response(200)
    client.sent[0].end(b"a")
    assert it.body_out == b"a"
    assert written[0].path is None
    assert written[0].error


def test_numbers_go_on_and_one_file_grows(tmp_path: Path) -> None:
    (tmp_path / "0041-get-x.jsonl").write_bytes(lines.encode(whole("w")))
    store = Store(tmp_path)
    store.prepare()
    assert store.write(whole("w", path="/v1/ä?b")).name == "0042-post-v1-ä.jsonl"
    assert store.write(whole("w", path="/")).name == "0043-post-root.jsonl"
    single = Store(tmp_path / "new" / "all.jsonl")
    single.prepare()
    assert single.write(whole("w")) == single.write(whole("w"))
    assert len(load(tmp_path / "new" / "all.jsonl")) == 2


def test_recordings_are_their_owner_s_alone(tmp_path: Path) -> None:
    many, single = Store(tmp_path / "many"), Store(tmp_path / "all.jsonl")
    for store in (many, single):
        store.prepare()
        assert store.write(whole("w")).stat().st_mode & 0o077 == 0


def test_an_ending_has_no_detail_when_all_is_said() -> None:
    assert b"detail" not in lines.encode(stream())
    assert Ending(1.0, "complete").detail is None
