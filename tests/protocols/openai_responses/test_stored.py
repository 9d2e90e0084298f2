"""Conversations that go on, and the bodies of the endpoints around a store."""

from __future__ import annotations

import json

import pytest

from strom.core.errors import BadRequest, NotFound
from strom.core.messages import TextPart, ToolResultPart
from strom.protocols.openai_responses import CODEC, stored
from tests.protocols.openai_responses.frames import (
    call,
    context,
    message,
    numbered,
    plain,
    request,
    response,
    text_part,
)


def test_what_a_request_wants_of_a_store() -> None:
    assert stored.store_wish(request()) == stored.StoreWish()
    asked = request(previous_response_id="resp_1", store=False, background=True, x=1)
    assert stored.store_wish(asked) == stored.StoreWish("resp_1", store=False, background=True)
    with pytest.raises(BadRequest):
        stored.store_wish(request(store="yes"))


def test_a_conversation_goes_on() -> None:
    first = b'{"model":"m","input":"weather?"}'
    answer = json.dumps(response("completed", output=[call("fc_1", "{}")])).encode()
    history = [*stored.input_items(first), *stored.output_items(answer)]
    second = json.dumps(
        {
            "model": "m",
            "previous_response_id": "resp_1",
            "conversation": None,
            "input": [{"type": "function_call_output", "call_id": "call_fc_1", "output": "sunny"}],
            "x": 1,
        }
    ).encode()
    whole = stored.with_history(second, history)
    assert "previous_response_id" not in json.loads(whole)
    assert json.loads(whole)["x"] == 1
    messages = CODEC.decode_request(whole).messages
    assert [m.role for m in messages] == ["user", "assistant", "user"]
    assert messages[0].parts == (TextPart("weather?"),)
    assert isinstance(messages[2].parts[0], ToolResultPart)
    assert stored.input_items(b'{"model":"m"}') == []


def test_references_are_replaced() -> None:
    item = json.dumps(message("msg_1", text_part("hi"))).encode()
    items = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "item_reference"}, 7]
    body = json.dumps({"model": "m", "input": items}).encode()
    resolved = json.loads(stored.with_references(body, {"msg_1": item}.get))["input"]
    assert resolved == [json.loads(item), *items[1:]]
    with pytest.raises(NotFound):
        stored.with_references(body, lambda _: None)
    plain_body = b'{"model":"m","input":"x"}'
    assert stored.with_references(plain_body, lambda _: None) is plain_body


def test_background_objects() -> None:
    queued = json.loads(stored.begun_response(context(), "queued"))
    assert (queued["id"], queued["status"], queued["output"]) == ("resp_r1", "queued", [])
    assert stored.is_running(json.dumps(queued).encode())
    item = json.dumps(message("msg_1", text_part("hi"))).encode()
    cancelled = stored.cancelled_response(context(), [item], "resp_9")
    assert not stored.is_running(cancelled)
    assert (json.loads(cancelled)["id"], json.loads(cancelled)["status"]) == ("resp_9", "cancelled")
    assert len(json.loads(cancelled)["output"]) == 1


def test_the_rest_of_a_stream() -> None:
    stream = b": comment\n\n" + numbered(*plain())
    assert stored.frames_after(stream, -1) == numbered(*plain())
    rest = stored.frames_after(stream, 6)
    assert [json.loads(frame.partition(b"data: ")[2])["sequence_number"] for frame in rest.split(b"\n\n")[:-1]] == [
        7,
        8,
        9,
    ]
    assert stored.frames_after(b"data: {\n\ndata: 7\n\n", 0) == b""


def test_bodies() -> None:
    assert json.loads(stored.input_tokens_body(5)) == {"object": "response.input_tokens", "input_tokens": 5}
    assert json.loads(stored.deleted_body("resp_1")) == {"id": "resp_1", "object": "response", "deleted": True}
    listed = json.loads(stored.item_list([b'{"id":"a"}', b'{"type":"x"}']))
    assert (listed["first_id"], listed["last_id"], len(listed["data"])) == ("a", None, 2)
    assert json.loads(stored.item_list([]))["data"] == []


def test_what_is_not_stored() -> None:
    gone = stored.not_found("resp_1", param="previous_response_id")
    assert (gone.status, gone.code, gone.param) == (400, "previous_response_not_found", "previous_response_id")
    assert stored.not_found("resp_1").status == 404
