"""Responses in the background: they outlive their client, are read from any event on, cancelled, and lost with dignity."""

import json
from typing import Any

import pytest

from strom.core.usage import estimate_tokens
from strom.server.responses import background
from strom.transport.memory import MemoryExchange
from strom.transport.types import TransportFailure
from tests.grammar import openai_responses as grammar
from tests.server.responses_rig import PATH, RESPONSES, SSE, ResponsesRig, chat_frames, events, numbers
from tests.server.rig import answer

WELL = chat_frames("Hel", "lo")
HALF = chat_frames("Hel", finish=None)


async def begun(rig: ResponsesRig, **body: Any) -> tuple[MemoryExchange, str]:
    """A background call at its upstream, and its path."""
    exchange = await rig.begin({"background": True, **body})
    rig.upstream.response(200, SSE)
    made = events(exchange.body_out)[0]["response"] if body.get("stream") else answer(exchange)
    return exchange, f"{PATH}/{made['id']}"


async def status_of(rig: ResponsesRig, path: str) -> str:
    return str(answer(await rig.ask("GET", path))["status"])


async def test_it_answers_at_once_and_is_polled() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig)
    made = answer(exchange)
    assert (made["status"], made["background"], made["output"]) == ("queued", True, [])
    assert exchange.header_out(b"x-strom-trace-id") == made["id"].removeprefix("resp_").encode()
    assert rig.sent_body()["stream"] is True
    rig.upstream.read(HALF)
    running = answer(await rig.ask("GET", path))
    assert (running["status"], running["background"]) == ("in_progress", True)
    rig.upstream.end(WELL[len(HALF) :])
    done = answer(await rig.ask("GET", path))
    assert (done["status"], done["background"], done["id"]) == ("completed", True, made["id"])
    assert done["output"][0]["content"][0]["text"] == "Hello"
    record = rig.store.list().records[0]
    assert (record.status, record.trace_id) == ("completed", made["id"].removeprefix("resp_"))


async def test_a_conversation_goes_on_from_it() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig, input="one")
    running = await rig.create({"previous_response_id": path.rpartition("/")[2]})
    assert running.status == 400
    rig.upstream.end(WELL)
    await rig.begin({"input": "two", "previous_response_id": path.rpartition("/")[2]})
    assert [message["content"] for message in rig.sent_body()["messages"]] == ["one", "Hello", "two"]


async def test_a_stream_is_one_legal_stream() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    assert [event["type"] for event in events(exchange.body_out)] == ["response.created", "response.queued"]
    rig.upstream.end(WELL)
    seen = grammar.read(exchange.body_out, strict=False)
    assert (exchange.state, seen.text("output_text")) == ("finished", "Hello")
    assert seen.response == answer(await rig.ask("GET", path))
    assert {event["response"]["id"] for event in events(exchange.body_out) if "response" in event} == {
        path.rpartition("/")[2]
    }


async def test_it_survives_its_client_and_is_read_on() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    seen = numbers(exchange.body_out)
    exchange.disconnect()
    assert not rig.upstream.aborted
    again = await rig.open(f"{path}?stream=true&starting_after={seen[-1]}")
    rig.upstream.end(WELL[len(HALF) :])
    assert again.state == "finished"
    assert seen + numbers(again.body_out) == list(range(len(seen) + len(numbers(again.body_out))))
    grammar.read(exchange.body_out + again.body_out, strict=False)


@pytest.mark.parametrize("restarted", [False, True])
async def test_every_event_once_from_any_number(restarted: bool) -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.end(WELL)
    every = exchange.body_out
    rig = await rig.restart() if restarted else rig
    for after in (None, 0, 3, len(events(every)) - 2):
        query = "" if after is None else f"&starting_after={after}"
        replayed = await rig.ask("GET", f"{path}?stream=true{query}")
        assert events(replayed.body_out) == events(every)[0 if after is None else after + 1 :]
    for after in (len(events(every)) - 1, 10_000):
        assert (await rig.ask("GET", f"{path}?stream=true&starting_after={after}")).body_out == b""


@pytest.mark.parametrize("restarted", [False, True])
async def test_its_frames_have_ids_and_are_a_resumable_stream(restarted: bool) -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    name = path.rpartition("/")[2]
    assert exchange.header_out(b"x-strom-stream-id") == name.encode()
    rig.upstream.end(WELL)
    every = exchange.body_out
    frames = [frame + b"\n\n" for frame in every.split(b"\n\n")[:-1]]
    assert [frame.split(b"\n")[0] for frame in frames] == [b"id: %d" % (at + 1) for at in range(len(frames))]
    rig = await rig.restart() if restarted else rig
    for count in (None, 0, 1, 4, len(frames)):
        headers = [] if count is None else [(b"last-event-id", b"%d" % count)]
        for asked in (f"/v1/streams/{name}", f"{path}?stream=true"):
            again = await rig.ask("GET", asked, headers=headers)
            assert (again.state, again.body_out) == ("finished", b"".join(frames[count or 0 :])), asked
            assert again.header_out(b"x-strom-stream-id") == name.encode()
    beyond = [(b"last-event-id", b"%d" % (len(frames) + 1))]
    assert (await rig.ask("GET", f"/v1/streams/{name}", headers=beyond)).status == 400


async def test_a_running_one_has_no_frames_beyond_its_last() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig, stream=True)
    stream = f"/v1/streams/{path.rpartition('/')[2]}"
    assert (await rig.ask("GET", stream, headers=[(b"last-event-id", b"3")])).status == 400


async def test_one_that_is_cancelled_tells_what_had_come_of_it() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig, stream=True)
    rig.upstream.read(chat_frames("twelve chars", "twelve chars", finish=None))
    cancelled = answer(await rig.ask("POST", f"{path}/cancel"))
    assert (cancelled["status"], cancelled["usage"]["output_tokens"]) == ("cancelled", estimate_tokens(24))


async def test_a_client_that_reconnects_to_the_same_address_goes_on_where_it_was() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig, stream=True)
    rig.upstream.end(WELL)
    again = await rig.ask("GET", f"{path}?stream=true&starting_after=0", headers=[(b"last-event-id", b"4")])
    assert numbers(again.body_out)[0] == 4


async def test_as_a_stream_it_is_cancelled() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    stream = f"/v1/streams/{path.rpartition('/')[2]}"
    deleted = await rig.ask("DELETE", stream)
    assert (deleted.status, deleted.header_out(b"x-request-id") is not None) == (204, True)
    assert rig.upstream.aborted
    assert await status_of(rig, path) == "cancelled"
    assert events(exchange.body_out)[-1]["type"] == "response.failed"
    assert (await rig.ask("GET", stream)).body_out == exchange.body_out


@pytest.mark.parametrize(
    ("method", "name", "status"),
    [("GET", "resp_none", 404), ("DELETE", "resp_none", 404), ("POST", "resp_none", 405)],
)
async def test_streams_that_are_none(method: str, name: str, status: int) -> None:
    refused = await ResponsesRig().ask(method, f"/v1/streams/{name}")
    assert (refused.status, type(answer(refused)["error"]["message"])) == (status, str)


async def test_a_slow_reader_gets_everything_in_its_own_time() -> None:
    rig = ResponsesRig()
    exchange, _ = await begun(rig, stream=True)
    exchange.pause()
    rig.upstream.read(HALF)
    assert len(events(exchange.body_out)) == 2
    rig.upstream.end(WELL[len(HALF) :])
    assert exchange.state == "started"
    exchange.resume()
    assert exchange.state == "finished"
    grammar.read(exchange.body_out, strict=False)


@pytest.mark.parametrize("restarted", [False, True])
async def test_cancel_stops_the_upstream_at_once(restarted: bool) -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    cancelled = answer(await rig.ask("POST", f"{path}/cancel"))
    assert rig.upstream.aborted
    assert (cancelled["status"], cancelled["background"]) == ("cancelled", True)
    assert rig.store.list().records[0].status == "cancelled"
    seen = grammar.read(exchange.body_out, strict=False)
    assert exchange.state == "finished"
    assert seen.error is not None
    assert seen.error["code"] == "cancelled"
    rig = await rig.restart() if restarted else rig
    assert await status_of(rig, path) == "cancelled"
    assert answer(await rig.ask("POST", f"{path}/cancel")) == cancelled
    assert (await rig.create({"previous_response_id": cancelled["id"]})).status == 400


async def test_delete_while_it_runs() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig)
    assert answer(await rig.ask("DELETE", path))["deleted"] is True
    assert rig.upstream.aborted
    assert (await rig.ask("GET", path)).status == 404


async def test_an_upstream_that_fails() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    rig.upstream.fail(TransportFailure("cut", "", sent=True))
    seen = grammar.read(exchange.body_out, strict=False)
    assert seen.error is not None
    failed = answer(await rig.ask("GET", path))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "incomplete_stream")


async def test_an_upstream_that_refuses_before_the_first_token() -> None:
    rig = ResponsesRig()
    exchange = await rig.begin({"background": True, "stream": True})
    rig.upstream.response(400, [(b"content-type", b"application/json")])
    rig.upstream.end(b'{"error": {"message": "too hot", "type": "invalid_request_error"}}')
    seen = grammar.read(exchange.body_out, strict=False)
    assert seen.error is not None
    assert "too hot" in seen.error["message"]
    assert seen.response["status"] == "failed"


@pytest.mark.parametrize(
    "body", [{"store": False}, {"model": ""}, {"input": 7}, {"input": [{"type": "message", "role": "x", "content": 1}]}]
)
async def test_what_is_refused_is_a_plain_error(body: dict[str, Any]) -> None:
    rig = ResponsesRig()
    refused = await rig.create({"background": True, **body})
    assert refused.status == 400
    assert answer(refused)["error"]["message"]
    assert rig.store.list().records[0].status == "rejected"


async def test_their_number_is_bounded() -> None:
    rig = ResponsesRig(max_background=1)
    await begun(rig)
    refused = await rig.create({"background": True})
    assert (refused.status, refused.header_out(b"retry-after")) == (429, b"5")
    rig.upstream.end(WELL)
    assert (await rig.begin({"background": True})).status == 200


async def test_their_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_STREAM_BYTES", 5000)
    rig = ResponsesRig()
    _, path = await begun(rig)
    rig.upstream.read(chat_frames(*["x" * 400] * 20, finish=None))
    assert rig.upstream.aborted
    assert answer(await rig.ask("GET", path))["error"]["code"] == "too_long"


async def test_a_stopped_process_leaves_it_failed() -> None:
    rig = ResponsesRig()
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    rig.responses._jobs.close()  # type: ignore[union-attr]
    assert rig.upstream.aborted
    grammar.read(exchange.body_out, strict=False)
    failed = answer(await (await rig.restart()).ask("GET", path))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "gateway_stopped")


async def test_a_process_that_vanished_leaves_it_failed_in_the_end() -> None:
    rig = ResponsesRig()
    _, path = await begun(rig, stream=True)
    other = await rig.restart()
    assert await status_of(other, path) == "queued"
    rig.wall.now += background.LEASE_S + 1
    failed = answer(await other.ask("GET", path))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "gateway_stopped")
    replayed = await other.ask("GET", f"{path}?stream=true&starting_after=1")
    (event,) = events(replayed.body_out)
    assert (event["type"], event["sequence_number"], event["response"]["status"]) == ("response.failed", 2, "failed")
    assert answer(await other.ask("POST", f"{path}/cancel"))["status"] == "failed"
    assert (await other.create({"previous_response_id": failed["id"]})).status == 400


async def test_several_processes_see_each_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "SHARED_TICK_S", 0.02)
    rig = ResponsesRig(shared=True)
    exchange, path = await begun(rig, stream=True)
    rig.upstream.read(HALF)
    other = await rig.restart()
    reader = await other.open(f"{path}?stream=true&starting_after=0")
    await other.until(lambda: "Hel" in reader.body_out.decode())
    cancelled = answer(await other.ask("POST", f"{path}/cancel"))
    assert cancelled["status"] == "cancelled"
    assert rig.upstream.aborted
    await other.until(lambda: reader.state == "finished")
    assert events(reader.body_out) == events(exchange.body_out)[1:]


async def test_a_relayed_stream_gets_our_id_and_numbers() -> None:
    rig = ResponsesRig(behind=RESPONSES)
    exchange, path = await begun(rig, stream=True)
    assert "background" not in rig.sent_body()
    theirs = {"id": "resp_theirs", "object": "response", "status": "in_progress", "output": [], "model": "real"}
    frames = [
        {"type": "response.created", "sequence_number": 0, "response": theirs},
        {"type": "response.in_progress", "sequence_number": 1, "response": theirs},
        {"type": "response.completed", "sequence_number": 2, "response": {**theirs, "status": "completed"}},
    ]
    for frame in frames:
        rig.upstream.read(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode())
    seen = grammar.read(exchange.body_out, strict=False)
    assert seen.types == ["response.created", "response.queued", "response.in_progress", "response.completed"]
    done = answer(await rig.ask("GET", path))
    assert (done["status"], done["background"], path) == ("completed", True, f"{PATH}/{done['id']}")
    assert done["id"] != "resp_theirs"
