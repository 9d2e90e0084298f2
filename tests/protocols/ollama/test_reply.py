"""Whole replies in both directions: a whole reply is a folded stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import IncompleteCompletion, InvalidStreamEvent, ModelNotFound, ProviderError
from strom.core.events import Completed, Failed, Finished, TextDelta
from strom.core.fold import fold
from strom.core.messages import RefusalPart, Reply, Request, TextPart, ThinkingPart, ToolCallPart
from strom.core.usage import Usage
from strom.protocols.codec import Codec, Quirks, ReplyContext
from strom.protocols.ollama import CODEC, GENERATE_CODEC
from strom.protocols.ollama.form import CHAT, GENERATE
from strom.protocols.ollama.load import load_reply
from tests.grammar.ollama import read
from tests.protocols.ollama.lines import BLOCK, STRICT, call, checked, context, decode, done, dump, line, part

CALL = ToolCallPart("c1", "f", '{"a":1}')
REPLY = Reply(
    "id",
    "upstream",
    1,
    (ThinkingPart("Hm"), TextPart("Hi "), TextPart("you"), CALL, ToolCallPart("c2", "g", "raw", custom=True)),
    "tool_calls",
    usage=Usage(9, 3, durations=(("total_duration", 900),)),
)


def body_of(message: dict[str, Any] | None = None, **members: Any) -> bytes:
    value = json.loads(done())
    value["message"] = {"role": "assistant", "content": "ok", **(message or {})}
    return dump({**value, **members})


def events_of(body: bytes, quirks: Quirks = STRICT) -> list[Any]:
    events = CODEC.decode_reply(body, quirks)
    checked(events)
    return events


def error_of(body: bytes) -> Exception:
    last = events_of(body)[-1]
    assert isinstance(last, Failed)
    return last.error


def test_a_reply_is_the_stream_it_amounts_to() -> None:
    body = body_of({"thinking": "Hm", "tool_calls": [call("f", {"a": 1})]})
    streamed = decode([line("ok", thinking="Hm", tool_calls=[call("f", {"a": 1})]), done()])
    reply = fold(events_of(body))
    assert reply.parts == fold(streamed).parts
    assert (reply.finish_reason, reply.usage) == ("tool_calls", fold(streamed).usage)
    pretty = json.dumps(json.loads(body), indent=1).encode()
    assert [part.text for part in fold(events_of(pretty)).parts[:2]] == ["Hm", "ok"]  # type: ignore[union-attr]


def test_a_body_of_lines_is_a_stream() -> None:
    assert events_of(line("a") + line("b") + done())[-1] == Completed()
    assert isinstance(error_of(line("a") + line("b")), Exception)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", ProviderError),
        (b"<html>\nnope</html>", ProviderError),
        (b"nope", InvalidStreamEvent),
        (b"[1]\n[2]", InvalidStreamEvent),
        (b"{}", InvalidStreamEvent),
        (body_of(done_reason=None), IncompleteCompletion),
        (body_of(done=False), IncompleteCompletion),
        (dump({"error": "model 'x' not found"}), ModelNotFound),
    ],
)
def test_what_is_no_answer(body: bytes, kind: type) -> None:
    assert isinstance(error_of(body), kind)


def test_a_reason_that_is_never_told() -> None:
    events = events_of(body_of(done_reason=None), Quirks(finish_reason_required=False))
    assert events[-2:] == [Finished("stop", assumed=True), Completed()]


# --- out -------------------------------------------------------------------------------------------


def encoded(reply: ReplyContext, codec: Codec = CODEC) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(codec.encode_reply(REPLY, reply))
    return value


def test_encode_reply() -> None:
    calls = [
        {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}},
        {"id": "c2", "function": {"index": 1, "name": "g", "arguments": {"input": "raw"}}},
    ]
    assert encoded(context()) == {
        "model": "asked-for",
        "created_at": "2026-01-05T10:00:00Z",
        "message": {"role": "assistant", "content": "Hi you", "thinking": "Hm", "tool_calls": calls},
        "done": True,
        "done_reason": "stop",
        "total_duration": 900,
        "prompt_eval_count": 9,
        "eval_count": 3,
        "strom": json.loads(BLOCK),
    }
    generated = encoded(context(block=lambda: None), GENERATE_CODEC)
    assert (generated["response"], generated["thinking"], generated["tool_calls"]) == ("Hi you", "Hm", calls)
    assert "strom" not in generated


def test_reasoning_as_text_or_not_at_all() -> None:
    assert encoded(context(reasoning="text"))["message"]["content"] == "<think>\nHm\n</think>\n\nHi you"
    assert "thinking" not in encoded(context(reasoning="text"))["message"]
    assert encoded(context(reasoning="drop"))["message"]["content"] == "Hi you"


def test_refusals_are_text() -> None:
    reply = Reply("", "", 0, (RefusalPart("No."),), "refusal")
    value = json.loads(CODEC.encode_reply(reply, context()))
    assert (value["message"]["content"], value["done_reason"]) == ("No.", "stop")


def test_whole_and_streamed_agree() -> None:
    chunks = [line(thinking="Hm"), line("Hi "), line("you"), line(tool_calls=[call("f", {"a": 1}, id="c1")]), done()]
    events = decode(chunks)
    seen = read(CODEC.encoder(context()).encode(events))
    value = json.loads(CODEC.encode_reply(fold(events), context()))
    assert (seen.thinking, seen.text) == (value["message"]["thinking"], value["message"]["content"])
    assert {name: value[name] for name in value if name != "message"} == {
        name: seen.last[name] for name in seen.last if name != "message"
    }


# --- the same protocol on both sides -----------------------------------------------------------------


def relayed(body: bytes, reply: ReplyContext | None = None, quirks: Quirks = STRICT, codec: Codec = CODEC) -> bytes:
    return codec.relay_reply(body, reply or context(), codec.decode_reply(body, quirks))


def test_a_legal_reply_keeps_its_bytes() -> None:
    body = body_of(x_vendor=[1.0], eval_duration=77).rstrip()
    assert relayed(body) == body[:-1] + b',"strom":' + BLOCK + b"}"
    assert relayed(body, context(block=lambda: None)) == body
    generated = part("x", done=True, done_reason="stop", context=[1]).rstrip()
    assert relayed(generated, codec=GENERATE_CODEC) == generated[:-1] + b',"strom":' + BLOCK + b"}"


def test_a_broken_reply_is_put_right() -> None:
    body = body_of({"tool_calls": [call("f", '{"a":1}')]}, x=1, created_at=None)
    value = json.loads(relayed(body))
    assert value["message"]["tool_calls"] == [call("f", {"a": 1})]
    assert (value["x"], value["created_at"]) == (1, "2026-01-05T10:00:00Z")
    body = body_of(done_reason=None)
    assert json.loads(relayed(body, quirks=Quirks(finish_reason_required=False)))["done_reason"] == "stop"


def test_a_stream_that_was_not_asked_for_becomes_a_reply_under_its_own_model() -> None:
    value = json.loads(relayed(line("a") + line("b") + done()))
    assert (value["message"]["content"], value["model"]) == ("ab", "qwen3")
    value = json.loads(relayed(body_of({"thinking": "Hm"}), context(reasoning="drop")))
    assert value["message"] == {"role": "assistant", "content": "ok"}


# --- load ------------------------------------------------------------------------------------------


def test_load_replies() -> None:
    assert json.loads(load_reply(CHAT, Request("ollama", "m", ()), context())) == {
        "model": "asked-for",
        "created_at": "2026-01-05T10:00:00Z",
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "load",
    }
    request = GENERATE_CODEC.decode_request(b'{"model":"m","keep_alive":0}')
    value = json.loads(load_reply(GENERATE, request, context()))
    assert (value["response"], value["done_reason"]) == ("", "unload")


def test_text_of_a_reply_is_one_delta() -> None:
    assert TextDelta(0, "ok") in events_of(body_of())
