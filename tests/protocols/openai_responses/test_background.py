"""The stream of a background response: numbered anew, under our id, ended exactly once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import GatewayError, ProviderError, StromError
from strom.protocols.openai_responses import background, stored
from strom.protocols.openai_responses.background import BackgroundStream
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import call, context, request, response

ITEM = call("fc_1", "{}")


def frame(kind: str, number: int = 0, **members: Any) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": number, **members})
    return f"event: {kind}\ndata: {data}\n\n".encode()


THEIRS = b"".join(
    (
        frame("response.created", response=response("in_progress")),
        frame("response.queued", 1, response=response("queued")),
        frame("response.in_progress", 2, response=response("in_progress")),
        b": a comment\n\n",
        frame("response.output_item.added", 3, output_index=0, item={**ITEM, "arguments": ""}),
        frame("response.output_item.done", 4, output_index=0, item=ITEM),
    )
)
DONE = response("completed", output=[ITEM], usage={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
END = frame("response.completed", 5, response=DONE)


def begun() -> BackgroundStream:
    return BackgroundStream(context(request=request(background=True)))


def data(frames: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(each.partition(b"data: ")[2]) for each in frames]


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_a_foreign_stream_becomes_ours_however_it_is_cut(step: int) -> None:
    stream, whole = begun(), THEIRS + END + frame("response.completed", 6, response=response("completed"))
    for at in range(0, len(whole), step):
        stream.feed(whole[at : at + step])
    assert stream.ended
    events = data(stream.frames)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events] == [
        "response.created", "response.queued", "response.in_progress", "keepalive", "response.output_item.added",
        "response.output_item.done", "response.completed",
    ]  # fmt: skip
    responses = [event["response"] for event in events if "response" in event]
    assert {(each["id"], each["background"]) for each in responses} == {(stream.identity, True)}
    assert json.loads(stream.response) == responses[-1]
    assert stream.size_bytes == sum(map(len, stream.frames))
    assert background.split_frames(b"".join(stream.frames)) == stream.frames


@pytest.mark.parametrize("fed", [b"", THEIRS, THEIRS + END])
def test_a_call_that_failed(fed: bytes) -> None:
    stream = begun()
    stream.feed(fed)
    was_ended = stream.ended
    stream.fail(ProviderError("It broke.", code="broken"))
    stream.fail(ProviderError("Again."))
    stream.cancel()
    grammar.read(b"".join(stream.frames), strict=False)
    shown = json.loads(stream.response)
    assert shown["status"] == ("completed" if was_ended else "failed")
    if not was_ended:
        assert shown["error"] == {"code": "broken", "message": "It broke."}
        assert shown["output"] == ([ITEM] if fed else [])
        assert (shown["id"], shown["background"]) == (stream.identity, True)


def test_a_cancelled_call_keeps_what_was_finished() -> None:
    stream = begun()
    stream.feed(THEIRS)
    stream.cancel()
    grammar.read(b"".join(stream.frames), strict=False)
    last = data(stream.frames)[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "cancelled")
    shown = json.loads(stream.response)
    assert (shown["status"], shown["output"], shown["error"]) == ("cancelled", [ITEM], None)
    stream.feed(END)
    assert data(stream.frames)[-1] == last


@pytest.mark.parametrize(
    "bad", [b"data: x\n\n", b"data: [1]\n\n", b'data: {"no": "type"}\n\n', b'data: {"type": 1}\n\n']
)
def test_what_is_no_event_is_our_error(bad: bytes) -> None:
    with pytest.raises(StromError):
        begun().feed(bad)


def test_a_lost_response() -> None:
    lost = background.lost_response(json.dumps(response("in_progress")).encode(), GatewayError("Gone.", code="gone"))
    shown = json.loads(lost)
    assert (shown["status"], shown["error"]) == ("failed", {"code": "gone", "message": "Gone."})
    (event,) = data([background.lost_frame(lost, 7)])
    assert (event["type"], event["sequence_number"], event["response"]) == ("response.failed", 7, shown)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (THEIRS + END, True),
        (THEIRS[40:] + END, True),
        (END.replace(b"\n", b"\r\n"), True),
        (THEIRS, False),
        (b"", False),
        (b"data: nonsense\n\n", False),
        (b"data: [DONE]\n\n", False),
    ],
)
def test_the_object_in_the_last_event(written: bytes, found: bool) -> None:
    shown = background.ended_response(written)
    assert (json.loads(shown) if found else shown) == (DONE if found else b"")


def test_what_a_raw_body_wants() -> None:
    body = b'{"model":"m","stream":true,"conversation":"c","input":[{"type":"item_reference","id":"x"}],"store":null}'
    wish = stored.body_wish(body)
    assert (wish.model, wish.stream, wish.conversation, wish.references, wish.store) == ("m", True, True, True, True)
    assert wish.reads
    assert not stored.body_wish(b'{"conversation":null,"previous_response_id":null}').reads
    for none in (b"", b"[]", b"{", b"\xff", b"[" * 5000):
        assert stored.body_wish(none) == stored.NO_WISH


def test_listed_items_are_complete() -> None:
    listed = stored.listed_item(b'{"role":"user","content":"hi"}', "own")
    assert json.loads(listed) == {
        "role": "user", "content": [{"type": "input_text", "text": "hi"}], "type": "message", "id": "own",
    }  # fmt: skip
    kept = b'{"type":"function_call","id":"fc_1","call_id":"c","name":"n","arguments":"{}"}'
    assert json.loads(stored.listed_item(kept, "own")) == json.loads(kept)
    assert stored.listed_item(b"7", "own") == b"7"
    assert stored.item_id(b"7") == ""
    assert json.loads(stored.item_list([kept], has_more=True))["has_more"] is True
