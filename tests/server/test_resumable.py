"""Resumable streams: they outlive their client's connection, are read on from any frame, and end in one truth."""

import json

import pytest

from strom.server.resumable import StreamLimits
from strom.transport.memory import MemoryExchange
from tests.server.resumable_rig import CHAT, END, RESUMABLE, SSE, ResumableRig, chunk, numbered, stream_path
from tests.server.rig import answer, provider


async def test_frames_bear_their_numbers_and_the_head_names_the_stream() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a", "b", "c")
    rig.upstream.end(END)
    assert exchange.state == "finished"
    assert exchange.body_out.startswith(numbered(chunk("a"), chunk("b"), chunk("c")))
    assert exchange.body_out.endswith(b"id: 5\ndata: [DONE]\n\n")
    assert path.startswith("/v1/streams/strm_c")
    assert exchange.header_out(b"x-strom-resume-scope") == b"gateway"
    assert (rig.record.status, rig.record.complete) == ("completed", True)


@pytest.mark.parametrize("value", [None, b"0", b"no"])
async def test_who_does_not_ask_gets_a_plain_stream(value: bytes | None) -> None:
    rig = ResumableRig()
    headers = [] if value is None else [(b"x-strom-resumable", value)]
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    exchange = MemoryExchange("POST", CHAT, headers=headers, body=json.dumps(body).encode())
    rig.app.handle(exchange)
    rig.upstream.response(200, SSE)
    rig.upstream.read(chunk("a"))
    assert exchange.body_out == chunk("a")
    assert exchange.header_out(b"x-strom-stream-id") is None
    exchange.disconnect()
    assert rig.upstream.aborted
    assert rig.streams.count == 0


async def test_a_whole_reply_is_not_kept() -> None:
    rig = ResumableRig()
    exchange = rig.send(stream=False)
    rig.upstream.response(200, [(b"content-type", b"application/json")])
    message = {"message": {"role": "assistant", "content": "x"}, "index": 0, "finish_reason": "stop"}
    rig.upstream.end(json.dumps({"id": "c", "object": "chat.completion", "choices": [message]}).encode())
    assert exchange.status == 200
    assert exchange.header_out(b"x-strom-stream-id") is None
    assert rig.streams.count == 0


async def test_a_refused_call_is_not_kept() -> None:
    rig = ResumableRig()
    exchange = rig.send()
    rig.upstream.response(400, [(b"content-type", b"application/json")])
    rig.upstream.end(b'{"error": {"message": "no"}}')
    assert exchange.status == 400
    assert rig.streams.count == 0


async def test_a_client_comes_back_for_the_rest() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a", "b")
    exchange.disconnect()
    assert not rig.upstream.aborted
    rig.upstream.read(chunk("c"))
    again = await rig.resume(path, 1)
    assert (again.status, again.header_out(b"content-type")) == (200, b"text/event-stream; charset=utf-8")
    assert again.header_out(b"x-strom-stream-id") == exchange.header_out(b"x-strom-stream-id")
    assert again.header_out(b"x-strom-trace-id") == exchange.header_out(b"x-strom-trace-id")
    assert again.body_out == numbered(chunk("b"), chunk("c"), first=2)
    rig.upstream.end(END)
    assert again.state == "finished"
    whole = await rig.open(path)
    assert whole.body_out == numbered(chunk("a")) + again.body_out
    assert whole.body_out.endswith(b"id: 5\ndata: [DONE]\n\n")
    assert rig.record.status == "completed"


async def test_several_read_at_once_each_at_its_pace() -> None:
    rig = ResumableRig()
    first, path = rig.begin("a")
    second = await rig.resume(path, 0)
    second.pause()
    third = await rig.resume(path, 1)
    rig.upstream.read(chunk("b"))
    assert (first.body_out, second.body_out) == (numbered(chunk("a"), chunk("b")), numbered(chunk("a")))
    rig.upstream.end(chunk("c") + END)
    assert (first.state, second.state, third.state) == ("finished", "started", "finished")
    second.resume()
    assert second.state == "finished"
    assert second.body_out == first.body_out == numbered(chunk("a")) + third.body_out


async def test_nobody_comes_back_in_time() -> None:
    rig = ResumableRig(limits=StreamLimits(grace_s=60, retention_s=300))
    exchange, path = rig.begin("a", "b")
    exchange.disconnect()
    rig.clock.advance(59)
    assert not rig.upstream.aborted
    rig.clock.advance(2)
    assert rig.upstream.aborted
    record = rig.record
    assert (record.status, record.deltas, record.complete) == ("cancelled", 2, False)
    assert record.error is not None
    assert (record.error.code, "60 s" in record.error.message) == ("client_left", True)
    late = await rig.resume(path, 2)
    assert b'"error"' in late.body_out
    assert b"[DONE]" not in late.body_out
    assert late.state == "finished"


async def test_the_grace_time_begins_anew_with_each_parting() -> None:
    rig = ResumableRig(limits=StreamLimits(grace_s=60))
    exchange, path = rig.begin("a")
    exchange.disconnect()
    rig.clock.advance(50)
    again = await rig.resume(path, 1)
    rig.clock.advance(100)
    assert not rig.upstream.aborted
    again.disconnect()
    rig.clock.advance(50)
    assert not rig.upstream.aborted
    rig.clock.advance(20)
    assert rig.upstream.aborted


async def test_a_client_that_leaves_before_the_head_leaves_for_good() -> None:
    rig = ResumableRig()
    exchange = rig.send()
    exchange.disconnect()
    assert rig.upstream.aborted
    assert rig.record.status == "cancelled"
    assert rig.record.error is not None
    assert rig.record.error.code == "cancelled"
    assert rig.streams.count == 0


async def test_a_cancellation_ends_it_at_once() -> None:
    rig = ResumableRig()
    exchange, path = rig.begin("a")
    gone = await rig.ask("DELETE", path)
    assert (gone.status, gone.body_out) == (204, b"")
    assert rig.upstream.aborted
    assert exchange.state == "finished"
    assert b'"error"' in exchange.body_out
    assert b"[DONE]" not in exchange.body_out
    record = rig.record
    assert (record.status, record.error and record.error.code) == ("cancelled", "cancelled")
    assert record.error is not None
    assert "cancelled the stream" in record.error.message
    assert (await rig.ask("GET", path)).status == 404
    assert (await rig.ask("DELETE", path)).status == 404
    assert rig.streams.size_bytes == 0


async def test_an_ended_stream_is_read_again_until_it_expires() -> None:
    rig = ResumableRig(limits=StreamLimits(retention_s=300))
    exchange, path = rig.begin("a")
    rig.upstream.end(END)
    rig.clock.advance(299)
    assert (await rig.ask("GET", path)).body_out == exchange.body_out
    rig.clock.advance(2)
    assert (await rig.ask("GET", path)).status == 404
    assert (rig.streams.count, rig.streams.size_bytes) == (0, 0)


async def test_an_ended_stream_can_be_forgotten() -> None:
    rig = ResumableRig()
    _, path = rig.begin("a")
    rig.upstream.end(END)
    assert (await rig.ask("DELETE", path)).status == 204
    assert (await rig.ask("GET", path)).status == 404
    assert rig.record.status == "completed"
    assert rig.clock.armed == 0


async def test_a_longer_stream_than_may_be_kept_is_ended() -> None:
    rig = ResumableRig(limits=StreamLimits(buffer_bytes=6000))
    exchange, path = rig.begin("a")
    exchange.disconnect()
    rig.upstream.read(chunk("x" * 3000))
    assert rig.upstream.aborted
    late = await rig.resume(path, 2)
    assert b"resume_buffer_bytes" in late.body_out
    assert b"[DONE]" not in late.body_out
    record = rig.record
    assert (record.status, record.fault, record.error and record.error.code) == (
        "failed",
        "gateway",
        "resume_buffer_full",
    )


async def test_ended_streams_make_room_the_oldest_first() -> None:
    rig = ResumableRig(limits=StreamLimits(total_bytes=10_000))
    _, first = rig.begin("a")
    rig.upstream.end(END)
    _, second = rig.begin("b")
    rig.upstream.end(END)
    _, third = rig.begin("c")
    statuses = [(await rig.open(path)).status for path in (first, second, third)]
    assert statuses == [404, 200, 200]


async def test_where_running_streams_fill_everything_the_next_is_a_plain_one() -> None:
    rig = ResumableRig(limits=StreamLimits(total_bytes=6000))
    rig.begin("a")
    exchange, _ = rig.begin("b")
    assert exchange.header_out(b"x-strom-stream-id") is None
    assert exchange.body_out == chunk("b")
    exchange.disconnect()
    assert rig.upstream.aborted


async def test_a_slow_reader_of_a_forgotten_stream_is_cut() -> None:
    rig = ResumableRig(limits=StreamLimits(retention_s=10))
    exchange, _ = rig.begin("a")
    exchange.pause()
    rig.upstream.end(END)
    rig.clock.advance(11)
    assert exchange.state == "aborted"


async def test_a_background_response_has_means_of_its_own() -> None:
    rig = ResumableRig()
    exchange = rig.send(path="/v1/responses", background=True, input="x")
    await rig.until(lambda: exchange.state != "new")
    assert exchange.header_out(b"x-strom-stream-id") is None


@pytest.mark.parametrize(("letter", "member"), [("c", "error"), ("a", "type"), ("o", "error"), ("r", "error")])
async def test_unknown_streams_are_told_in_the_callers_protocol(letter: str, member: str) -> None:
    rig = ResumableRig()
    for method in ("GET", "DELETE"):
        exchange = await rig.ask(method, f"/v1/streams/strm_{letter}00000000_{'A' * 22}")
        assert exchange.status == 404
        told = answer(exchange)
        assert member in told
        assert isinstance(told["error"], str) == (letter == "o")


async def test_ids_that_are_none_and_methods_that_are_none() -> None:
    rig = ResumableRig()
    for path in ("/v1/streams/", "/v1/streams/x", "/v1/streams/strm_c00000000_/../../etc"):
        assert (await rig.ask("GET", path)).status == 404
    wrong = await rig.ask("POST", "/v1/streams/x")
    assert (wrong.status, wrong.header_out(b"allow")) == (405, b"GET, DELETE")


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"1.5", b"9" * 16, b"3"])
async def test_last_event_ids_that_cannot_be(value: bytes) -> None:
    rig = ResumableRig()
    _, path = rig.begin("a", "b")
    exchange = await rig.ask("GET", path, headers=[(b"last-event-id", value)])
    assert exchange.status == 400
    assert answer(exchange)["error"]["param"] == "Last-Event-ID"


async def test_one_last_event_id_not_two() -> None:
    rig = ResumableRig()
    _, path = rig.begin("a", "b")
    headers = [(b"last-event-id", b"1"), (b"last-event-id", b"2")]
    assert (await rig.ask("GET", path, headers=headers)).status == 400


async def test_it_is_kept_for_the_provider_s_other_protocols_too() -> None:
    rig = ResumableRig(behind=provider("p1", protocol="anthropic"))
    exchange = rig.send(RESUMABLE)
    rig.upstream.response(200, SSE)
    start = {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []},
    }
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}
    rig.upstream.read(
        b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in (start, block, delta))
    )
    exchange.disconnect()
    again = await rig.resume(stream_path(exchange), 1)
    assert again.body_out.startswith(b"id: 2\ndata: ")
