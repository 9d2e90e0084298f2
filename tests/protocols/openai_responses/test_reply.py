"""Whole replies, both ways, and relayed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import (
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    ProviderError,
    RateLimited,
    StromError,
)
from strom.core.events import Completed, Event, Failed
from strom.core.fold import fold
from strom.core.messages import (
    ImagePart,
    Json,
    OpaquePart,
    RefusalPart,
    Reply,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from strom.core.order import OrderChecker
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import CODEC
from tests.protocols.openai_responses.frames import (
    USAGE,
    call,
    context,
    decode,
    ended,
    message,
    numbered,
    plain,
    response,
    text_part,
)


def body(status: str = "completed", **members: Any) -> bytes:
    return json.dumps(response(status, **{"usage": USAGE, **members})).encode()


def read(data: bytes, quirks: Quirks | None = None) -> list[Event]:
    events = CODEC.decode_reply(data, quirks or Quirks())
    checker = OrderChecker()
    for event in events:
        checker.feed(event)
    assert checker.ended
    return events


def error_of(data: bytes) -> StromError:
    last = read(data)[-1]
    assert isinstance(last, Failed)
    return last.error


class TestDecode:
    def test_it_says_what_the_stream_says(self) -> None:
        finished = message("msg_1", text_part("Hi there"))
        assert fold(read(body(output=[finished]))) == fold(decode(*plain()))

    def test_kinds_of_items(self) -> None:
        output = [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "s"}],
                "encrypted_content": "E",
            },
            message("msg_1", text_part("a"), {"type": "refusal", "refusal": "b"}),
            call("fc_1", '{"a":1}'),
            {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "raw"},
            {"id": "x_1", "type": "mcp_call"},
        ]
        parts = fold(read(body(output=output))).parts
        assert parts[:5] == (
            ThinkingPart("s", "E", "", "openai-responses", "rs_1"),
            TextPart("a"),
            RefusalPart("b"),
            ToolCallPart("call_fc_1", "f", '{"a":1}', item_id="fc_1"),
            ToolCallPart("c2", "p", "raw", custom=True, item_id="ctc_1"),
        )
        assert isinstance(parts[5], OpaquePart)

    def test_incomplete(self) -> None:
        reply = fold(read(body("incomplete", incomplete_details={"reason": "max_output_tokens"})))
        assert (reply.finish_reason, reply.finish_raw) == ("length", "max_output_tokens")

    @pytest.mark.parametrize("status", ["queued", "in_progress", None])
    def test_a_reply_that_is_not_finished(self, status: Any) -> None:
        assert isinstance(error_of(body(status)), IncompleteCompletion)

    def test_a_missing_status_by_quirk(self) -> None:
        assert read(body(""), Quirks(finish_reason_required=False))[-1] == Completed()

    def test_failures(self) -> None:
        assert isinstance(error_of(body("failed", error={"code": "rate_limit_exceeded", "message": "x"})), RateLimited)
        assert isinstance(error_of(body("cancelled")), ProviderError)
        assert isinstance(error_of(b'{"error":{"message":"x","code":"rate_limit_exceeded"}}'), RateLimited)
        assert isinstance(error_of(b'{"object":"response","error":{"message":"x"}}'), ProviderError)

    @pytest.mark.parametrize(
        ("data", "kind"),
        [
            (b"", ProviderError),
            (b"  <html>x</html>", ProviderError),
            (b"plain", InvalidStreamEvent),
            (b"[]", InvalidStreamEvent),
            (b"{}", InvalidStreamEvent),
            (b'{"choices":[]}', InvalidStreamEvent),
            (b'{"object":"response","status":"completed","output":[7]}', InvalidStreamEvent),
            (b'{"object":"response","output":' + b"[" * 100_000, InvalidStreamEvent),
            (b"data: {}\n\n", InvalidStreamEvent),
            (b": x\n\n", IncompleteStream),
        ],
    )
    def test_what_is_no_reply(self, data: bytes, kind: type[StromError]) -> None:
        error = error_of(data)
        assert isinstance(error, kind)
        assert "<html" not in error.message


PARTS = (
    ThinkingPart("hm", "sig", origin="anthropic"),
    ThinkingPart(encrypted="enc", origin="openai-responses", item_id="rs_7"),
    TextPart("Hi", citations=Json('[{"type":"url_citation","url":"http://x"},{"type":"char_location"}]')),
    TextPart(""),
    RefusalPart("No."),
    RefusalPart(""),
    ToolCallPart("c1", "f", "", namespace="ns"),
    ToolCallPart("c2", "p", "raw", custom=True),
    OpaquePart("openai-responses", "web_search_call", Json('{"type":"web_search_call","id":"ws_1"}')),
    OpaquePart("anthropic", "server_tool_use", Json("{}")),
    ThinkingPart("bare"),
)


class TestEncode:
    def write(self, *parts: Any, **changes: Any) -> dict[str, Any]:
        reply = Reply("resp_9", "m", 1, parts, "stop", usage=Usage(9, 3))
        written: dict[str, Any] = json.loads(CODEC.encode_reply(reply, context(**changes)))
        return written

    def test_all_parts(self) -> None:
        written = self.write(*PARTS)
        assert [item["type"] for item in written["output"]] == [
            "reasoning",
            "reasoning",
            "message",
            "message",
            "function_call",
            "custom_tool_call",
            "web_search_call",
            "reasoning",
        ]
        assert written["output"][0]["encrypted_content"] == "strom.anthropic.signature.sig"
        assert written["output"][1]["id"] == "rs_7"
        assert written["output"][2]["content"][0]["annotations"] == [{"type": "url_citation", "url": "http://x"}]
        assert written["output"][4]["arguments"] == "{}"
        assert (written["id"], written["object"], written["status"]) == ("resp_9", "response", "completed")
        assert written["usage"]["total_tokens"] == 12
        assert written["strom"] == {"complete": True}
        assert self.write(TextPart("x"), reasoning="drop")["output"]

    def test_an_estimate_where_nothing_was_reported(self) -> None:
        written = json.loads(CODEC.encode_reply(Reply("", "m", 1, (TextPart("x" * 8),), "length"), context()))
        assert (written["id"], written["status"]) == ("resp_r1", "incomplete")
        assert (written["usage"]["input_tokens"], written["usage"]["output_tokens"]) == (7, 2)

    def test_a_part_that_no_reply_has(self) -> None:
        with pytest.raises(ValueError, match="ImagePart"):
            self.write(ImagePart(url="x"))

    def test_what_it_writes_it_reads(self) -> None:
        written = self.write(TextPart("Hi"), ToolCallPart("c1", "f", '{"a":1}'))
        assert [type(part) for part in fold(read(json.dumps(written).encode())).parts] == [TextPart, ToolCallPart]


class TestRelay:
    def relay(self, data: bytes, **changes: Any) -> bytes:
        return CODEC.relay_reply(data, context(**changes), read(data))

    @pytest.mark.parametrize("output", [None, ...])
    def test_an_output_that_is_not_there_is_an_empty_list(self, output: Any) -> None:
        members = {**json.loads(body()), "output": output}
        data = json.dumps({name: value for name, value in members.items() if value is not ...}).encode()
        assert json.loads(CODEC.relay_reply(data, context(), read(data)))["output"] == []

    def test_bytes_stay_but_for_the_block(self) -> None:
        data = body(x_custom=[1, 2]).replace(b", ", b" ,  ")
        assert self.relay(data) == data[:-1] + b',"strom":{"complete":true}}'
        assert self.relay(data, block=lambda: None) == data

    def test_what_a_client_needs_is_put_in(self) -> None:
        for lacking in ({"usage": None}, {"usage": {"input_tokens": 1}}, {"created_at": None}, {"model": None}):
            relayed = json.loads(self.relay(body(output=[message("m", text_part("Hi"))], x=1, **lacking)))
            assert relayed["usage"]["total_tokens"]
            assert relayed["x"] == 1
            assert relayed["model"] in ("gpt-x", "client-model")
            assert relayed["strom"] == {"complete": True}

    def test_one_that_came_as_a_stream(self) -> None:
        relayed = json.loads(self.relay(numbered(*plain())))
        assert relayed["output"][0]["content"][0]["text"] == "Hi there"
        assert relayed["strom"] == {"complete": True}

    def test_a_terminal_event_alone_is_a_stream_too(self) -> None:
        data = ended(
            output=[message("m", text_part("hi"))], usage={"input_tokens": 2, "output_tokens": 1, "total_tokens": 3}
        )
        relayed = json.loads(self.relay(data))
        assert relayed["usage"]["total_tokens"] == 3
