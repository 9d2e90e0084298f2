"""Refusals, fallback before the first token, and whole replies."""

import json
from typing import Any

import pytest

from strom.gateway.services import CallSettings
from strom.transport.memory import MemoryExchange
from strom.transport.types import Refusal, TransportFailure
from tests.gateway.rig import DONE, FINISH, JSON, KEY, PATHS, ROLE, SSE, USAGE, Rig, data_objects, text

BUSY = b'{"error":{"message":"overloaded","type":"server_error"}}'
FAILURES = ["connect", "connect_timeout", "tls", "proxy", "closed_before_response", "protocol"]


def refuse(rig: Rig, status: int, body: bytes = BUSY, headers: Any = ()) -> None:
    rig.upstream().response(status, [*JSON, *headers])
    rig.upstream().end(body)


def answer(rig: Rig) -> None:
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("from b"))
    rig.upstream().end(FINISH, USAGE, DONE)


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_a_busy_endpoint_gives_way_to_the_next(front: str, status: int) -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call(front)
    refuse(rig, status)
    assert len(rig.client.sent) == 2
    answer(rig)
    assert exchange.status == 200
    assert b"from b" in exchange.body_out
    outcomes = [(attempt.endpoint_id, attempt.outcome) for attempt in rig.record.attempts]
    assert outcomes[0][0] == "e1"
    assert outcomes[0][1] != "ok"
    assert outcomes[1] == ("e2", "ok")
    assert rig.record.status == "completed"


def test_the_second_attempt_has_identical_bytes() -> None:
    rig = Rig(endpoints=2)
    rig.call()
    refuse(rig, 503)
    assert rig.upstream(0).request.body == rig.upstream(1).request.body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_these_are_never_tried_elsewhere(status: int) -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call()
    refuse(rig, status, b'{"error":{"message":"no"}}')
    assert len(rig.client.sent) == 1
    expected = {401: 502, 403: 502, 422: 400, 404: 400}  # a 404 that names no model: mlx_lm says it of any failure
    assert exchange.status == expected.get(status, status)


@pytest.mark.parametrize("kind", FAILURES)
def test_an_endpoint_that_cannot_be_reached_gives_way(kind: Any) -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call()
    rig.upstream().fail(TransportFailure(kind, "detail", sent=False))
    answer(rig)
    assert exchange.status == 200


@pytest.mark.parametrize("kind", FAILURES)
def test_the_last_endpoint_s_failure_is_the_answer_and_names_the_backend(kind: Any) -> None:
    rig = Rig()
    exchange = rig.call()
    rig.upstream().fail(TransportFailure(kind, "secret detail", sent=False))
    assert exchange.status in (502, 504)
    message = json.loads(exchange.body_out)["error"]["message"]
    assert "'p1'" in message
    assert "secret detail" not in message


def test_a_stream_without_a_token_gives_way_a_stream_with_one_does_not() -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE)
    rig.upstream().fail(TransportFailure("cut", "", sent=True))
    assert len(rig.client.sent) == 2
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("x"))
    rig.upstream().fail(TransportFailure("cut", "", sent=True))
    assert len(rig.client.sent) == 2
    assert exchange.body_out.count(ROLE) == 1, "what the first attempt said before its first token never went out"
    assert "error" in data_objects(exchange.body_out)[-1]


def test_an_error_in_a_200_gives_way() -> None:
    rig = Rig(endpoints=2)
    exchange = rig.call()
    rig.upstream().response(200, SSE)
    rig.upstream().read(b'data: {"error":{"message":"out of memory"}}\n\n')
    answer(rig)
    assert exchange.status == 200


def test_after_a_heartbeat_the_next_endpoint_still_may_answer() -> None:
    rig = Rig(endpoints=2, settings=CallSettings(heartbeat_s=10))
    exchange = rig.call()
    rig.clock.advance(11)
    refuse(rig, 503)
    answer(rig)
    assert exchange.writes[0] == b": keep-alive\n\n"
    assert exchange.body_out.count(b"[DONE]") == 1
    assert rig.record.status == "completed"


def test_after_a_heartbeat_a_refusal_is_told_in_band() -> None:
    rig = Rig(settings=CallSettings(heartbeat_s=10))
    exchange = rig.call()
    rig.clock.advance(11)
    refuse(rig, 503)
    assert exchange.status == 200
    assert data_objects(exchange.body_out)[-1]["error"]["message"]
    assert b"[DONE]" not in exchange.body_out


def test_a_first_token_timeout_gives_way() -> None:
    rig = Rig(endpoints=2, settings=CallSettings(heartbeat_s=1000))
    exchange = rig.call()
    rig.clock.advance(121)
    assert rig.upstream(0).aborted
    answer(rig)
    assert exchange.status == 200


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("status", [401, 403])
def test_an_upstream_s_401_is_not_the_client_s(front: str, status: int) -> None:
    rig = Rig()
    exchange = rig.call(front)
    refuse(rig, status, f'{{"error":{{"message":"bad key {KEY}"}}}}'.encode())
    assert exchange.status == 502
    assert KEY.encode() not in exchange.body_out
    assert "p1" in json.loads(exchange.body_out)["error"]["message"]
    assert rig.record.fault == "upstream"


def test_rate_limits_pass_with_their_headers() -> None:
    rig = Rig()
    exchange = rig.call()
    refuse(
        rig, 429, headers=[(b"retry-after", b"17"), (b"x-ratelimit-remaining-requests", b"0"), (b"set-cookie", b"a=b")]
    )
    assert exchange.status == 429
    assert exchange.header_out(b"retry-after") == b"17"
    assert exchange.header_out(b"x-ratelimit-remaining-requests") == b"0"
    assert rig.record.fault == "upstream", "it limits the gateway, not this client"
    assert exchange.header_out(b"set-cookie") is None


def test_the_caller_s_key_never_reaches_a_backend() -> None:
    rig = Rig()
    rig.call(headers=[(b"authorization", b"Bearer caller-key"), (b"x-api-key", b"caller-key"), (b"cookie", b"c=1")])
    sent = rig.upstream().request
    assert (b"authorization", f"Bearer {KEY}".encode()) in sent.headers
    assert "caller-key" not in str(sent.headers)
    assert all(name not in (b"x-api-key", b"cookie") for name, _ in sent.headers)


REPLY = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "real-m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    "x_unknown": {"kept": True},
}


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
def test_a_whole_reply(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front, stream=False)
    assert json.loads(rig.upstream().request.body).get("stream") in (None, False)
    rig.upstream().response(200, JSON)
    rig.upstream().end(json.dumps(REPLY).encode())
    assert exchange.status == 200
    body = json.loads(exchange.body_out)
    assert body["strom"]["complete"] is True
    assert body["strom"]["usage_source"] == "reported"
    assert rig.record.status == "completed"
    assert not rig.record.streamed
    if front == "openai-chat":
        assert {name: value for name, value in body.items() if name != "strom"} == REPLY
    else:
        assert body["content"] == [{"type": "text", "text": "Hello"}]
        assert body["usage"]["input_tokens"] == 9


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
def test_a_stream_becomes_a_whole_reply(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front, stream=False)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hel"), text("lo"))
    assert exchange.state == "new"
    rig.upstream().end(FINISH, USAGE, DONE)
    assert exchange.status == 200
    assert b"Hello" in exchange.body_out
    assert rig.record.status == "completed"


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
def test_an_unproven_stream_is_no_whole_reply(front: str) -> None:
    rig = Rig()
    exchange = rig.call(front, stream=False)
    rig.upstream().response(200, SSE)
    rig.upstream().read(ROLE, text("Hello"))
    rig.upstream().end(FINISH)
    assert exchange.status == 502
    assert b"Hello" not in exchange.body_out
    assert rig.record.status == "incomplete"


def test_leaving_a_whole_reply_closes_the_upstream() -> None:
    rig = Rig()
    exchange = rig.call(stream=False)
    exchange.disconnect()
    assert rig.upstream().aborted
    assert rig.record.status == "cancelled"


@pytest.mark.parametrize("front", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":"m"', b"\xff\xfe", b'"x"', b'{"model":5,"messages":[]}'])
def test_a_body_that_is_no_request_is_a_400_and_recorded(front: str, body: bytes) -> None:
    rig = Rig()
    exchange = rig.call_raw(front, body)
    assert exchange.status == 400
    assert rig.client.sent == []
    assert rig.record.status == "rejected"
    assert rig.record.fault == "client"


def test_what_the_transport_refused_is_worded_in_the_caller_s_protocol() -> None:
    rig = Rig()
    refusal = Refusal(413, "body_too_large", "33554433 bytes")
    exchange = MemoryExchange("POST", PATHS["anthropic"], refusal=refusal)
    rig.gateway.handle_call(exchange, rig.gateway.codecs["anthropic"])
    assert exchange.status == 413
    assert json.loads(exchange.body_out)["error"]["type"] == "request_too_large"
    assert rig.record.status == "rejected"
