"""What the encoder writes: the complete event grammar, item by item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import ContextOverflow, IncompleteStream, RateLimited
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockKind,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage
from strom.protocols.openai_responses import CODEC
from strom.protocols.openai_responses.carry import unpack
from strom.protocols.openai_responses.encoder import Encoder
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import context, request

END: list[Event] = [UsageReported(Usage(9, 3)), Finished("stop"), Completed()]


def block(kind: BlockKind, *deltas: Event, index: int = 0, **members: Any) -> list[Event]:
    return [BlockStarted(index, Block(kind, **members)), *deltas, BlockEnded(index)]


def write(events: list[Event], **changes: Any) -> grammar.Seen:
    """The stream as a client sees it; the same in one read as event by event."""
    whole = CODEC.encoder(context(**changes)).encode(events)
    single = CODEC.encoder(context(**changes))
    assert b"".join(single.encode([event]) for event in events) == whole
    return grammar.read(whole)


class TestText:
    def test_the_nine_events(self) -> None:
        events = [Started("chatcmpl-1", "m"), *block("text", TextDelta(0, "po"), TextDelta(0, "ng")), *END]
        seen = write(events)
        assert list(dict.fromkeys(seen.types)) == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert seen.text("output_text") == "pong"
        assert seen.response["id"] == "resp_r1"
        assert seen.response["model"] == "client-model"
        assert seen.response["created_at"] == 1_760_000_000
        assert seen.response["usage"] == {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 12,
        }
        assert seen.response["strom"] == {"complete": True}

    def test_an_id_of_this_protocol_is_kept(self) -> None:
        seen = write([Started("resp_9"), *block("text", TextDelta(0, "x"), item_id="msg_9"), *END])
        assert seen.response["id"] == "resp_9"
        assert seen.items[0].id == "msg_9"

    def test_an_item_id_that_occurs_twice_is_replaced(self) -> None:
        second = block("text", TextDelta(1, "y"), item_id="msg_9", index=1)
        seen = write([Started(), *block("text", TextDelta(0, "x"), item_id="msg_9"), *second, *END])
        assert [item.id for item in seen.items] == ["msg_9", "msg_r1_1"]

    def test_empty_blocks_leave_no_item(self) -> None:
        assert write([Started(), *block("text"), *block("thinking", index=1), *END]).items == []

    def test_a_refusal(self) -> None:
        seen = write([Started(), *block("refusal", TextDelta(0, "No.")), *END])
        assert seen.text("refusal") == "No."
        assert seen.response["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]

    def test_annotations_of_this_protocol_only(self) -> None:
        note = {"type": "url_citation", "url": "http://x"}
        own = CitationDelta(0, "openai-responses", json.dumps(note, indent=1))
        other = CitationDelta(0, "anthropic", "{}")
        seen = write([Started(), *block("text", TextDelta(0, "x"), own, other, TextDelta(0, "y")), *END])
        assert seen.types.count("response.output_text.annotation.added") == 1
        assert seen.response["output"][0]["content"][0]["annotations"] == [note]

    def test_texts_of_any_kind(self) -> None:
        text = 'a"b\\c\n\r\u2028\u0085\x00\x7f\U0001f600'
        seen = write([Started(), *block("text", *(TextDelta(0, character) for character in text)), *END])
        assert seen.text("output_text") == text


class TestCalls:
    def test_a_call(self) -> None:
        call = block("tool_call", ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1}"), call_id="c1", name="f")
        seen = write([Started(), *call, *END])
        assert seen.calls == [("c1", "f", '{"a":1}')]
        assert seen.response["output"][0]["status"] == "completed"
        assert "namespace" not in seen.response["output"][0]

    def test_empty_arguments_are_an_object(self) -> None:
        seen = write([Started(), *block("tool_call", call_id="c1", name="f", namespace="ns"), *END])
        assert seen.calls == [("c1", "f", "{}")]
        assert seen.response["output"][0]["namespace"] == "ns"

    def test_a_free_text_call(self) -> None:
        call = block("tool_call", ArgumentsDelta(0, "*** Begin\n"), call_id="c1", name="apply_patch", custom=True)
        seen = write([Started(), *call, *block("tool_call", index=1, call_id="c2", name="x", custom=True), *END])
        assert seen.calls == [("c1", "apply_patch", "*** Begin\n"), ("c2", "x", "")]
        assert seen.kinds == ["custom_tool_call"] * 2
        assert "response.custom_tool_call_input.done" in seen.types

    def test_overlapping_calls_come_one_after_the_other(self) -> None:
        events = [
            Started(),
            BlockStarted(0, Block("tool_call", "c0", "a")),
            ArgumentsDelta(0, '{"x"'),
            BlockStarted(1, Block("tool_call", "c1", "b")),
            ArgumentsDelta(1, '{"y"'),
            ArgumentsDelta(0, ":1}"),
            ArgumentsDelta(1, ":2}"),
            BlockEnded(0),
            BlockEnded(1),
            *END,
        ]
        assert write(events).calls == [("c0", "a", '{"x":1}'), ("c1", "b", '{"y":2}')]

    def test_a_call_whose_arguments_are_no_json_is_marked(self) -> None:
        cut: list[Event] = [BlockStarted(0, Block("tool_call", "c", "f")), ArgumentsDelta(0, "{"), BlockEnded(0, "cut")]
        seen = write([Started(), *cut, Finished("length"), Completed()])
        assert seen.response["output"][0]["status"] == "incomplete"


class TestReasoning:
    THOUGHT = block("thinking", ThinkingDelta(0, "User "), ThinkingDelta(0, "says"), item_id="")
    ANSWER = block("text", TextDelta(1, "Hi"), index=1)

    def test_a_summary(self) -> None:
        seen = write([Started(), *self.THOUGHT, *self.ANSWER, *END])
        assert seen.kinds == ["reasoning", "message"]
        assert seen.text("reasoning_summary_text") == "User says"
        item = seen.response["output"][0]
        assert item["summary"] == [{"type": "summary_text", "text": "User says"}]
        assert item["encrypted_content"] is None

    def test_as_text(self) -> None:
        seen = write([Started(), *self.THOUGHT, *self.ANSWER, *END], reasoning="text")
        assert seen.kinds == ["message", "message"]
        assert seen.text("output_text") == "<think>\nUser says\n</think>\n\nHi"

    def test_dropped(self) -> None:
        signed = [*self.THOUGHT[:-1], SignatureDelta(0, "s"), BlockEnded(0)]
        hidden = block("redacted_thinking", index=1, data="x", protocol="anthropic")
        seen = write([Started(), *signed, *hidden, *END], reasoning="drop")
        assert seen.items == []

    def test_a_signature_travels_marked(self) -> None:
        signed = [*self.THOUGHT[:-1], SignatureDelta(0, "si"), SignatureDelta(0, "g"), BlockEnded(0)]
        item = write([Started(), *signed, *END]).response["output"][0]
        assert unpack(item["encrypted_content"]) == ("anthropic", "signature", "sig")
        own = [*self.THOUGHT[:-1], SignatureDelta(0, "gAAA", "openai-responses"), BlockEnded(0)]
        assert write([Started(), *own, *END]).response["output"][0]["encrypted_content"] == "gAAA"

    def test_a_signature_without_text(self) -> None:
        item = write([Started(), *block("thinking", SignatureDelta(0, "s")), *END]).response["output"][0]
        assert item["summary"] == []
        assert item["encrypted_content"] == "strom.anthropic.signature.s"

    def test_redacted_reasoning(self) -> None:
        hidden = block("redacted_thinking", data="abc", protocol="anthropic")
        own = block("redacted_thinking", index=1, data="gAAA", protocol="openai-responses", item_id="rs_7")
        output = write([Started(), *hidden, *own, *END]).response["output"]
        assert [item["encrypted_content"] for item in output] == ["strom.anthropic.redacted.abc", "gAAA"]
        assert output[1]["id"] == "rs_7"
        assert write([Started(), *hidden, *END], reasoning="text").items == []


class TestOpaque:
    def test_an_item_of_this_protocol_goes_out_as_it_came(self) -> None:
        item = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
        data = json.dumps(item, indent=2)
        own = block("opaque", name="web_search_call", data=data, protocol="openai-responses", item_id="ws_1")
        foreign = block("opaque", index=1, name="server_tool_use", data="{}", protocol="anthropic")
        seen = write([Started(), *own, *foreign, *block("text", TextDelta(2, "x"), index=2), *END])
        assert seen.response["output"][0] == item
        assert seen.kinds == ["web_search_call", "message"]

    def test_one_without_an_id_of_its_own_gets_one(self) -> None:
        same = [
            block("opaque", index=at, name="x", data='{"type":"x","id":"a"}', protocol="openai-responses")
            for at in (0, 1)
        ]
        bare = block("opaque", index=2, name="x", data='{"type":"x"}', protocol="openai-responses")
        seen = write([Started(), *same[0], *same[1], *bare, *END])
        assert [item.id for item in seen.items] == ["a", "item_r1_1", "item_r1_2"]


class TestEnds:
    @pytest.mark.parametrize(
        ("reason", "kind", "details"),
        [
            ("stop", "completed", None),
            ("stop_sequence", "completed", None),
            ("tool_calls", "completed", None),
            ("length", "incomplete", {"reason": "max_output_tokens"}),
            ("context_full", "incomplete", {"reason": "max_output_tokens"}),
            ("content_filter", "incomplete", {"reason": "content_filter"}),
            ("refusal", "incomplete", {"reason": "content_filter"}),
            ("pause", "incomplete", None),
            ("incomplete", "incomplete", None),
            ("odd", "incomplete", {"reason": "odd"}),
        ],
    )
    def test_reasons(self, reason: str, kind: str, details: Any) -> None:
        seen = write([Started(), Finished("stop"), Finished(reason), Completed()])
        assert seen.types[-1] == f"response.{kind}"
        assert seen.response["incomplete_details"] == details

    def test_usage_that_nobody_reported_is_estimated(self) -> None:
        seen = write([Started(), *block("text", TextDelta(0, "x" * 9)), Finished("stop"), Completed()])
        assert (seen.response["usage"]["input_tokens"], seen.response["usage"]["output_tokens"]) == (7, 3)

    def test_usage_is_a_running_total(self) -> None:
        reports = [
            UsageReported(Usage(5, cached_tokens=2, cache_write_tokens=1)),
            UsageReported(Usage(output_tokens=4)),
        ]
        usage = write([Started(), *reports, UsageReported(Usage(reasoning_tokens=3)), Finished("stop"), Completed()])
        assert usage.response["usage"]["input_tokens_details"] == {"cached_tokens": 2, "cache_write_tokens": 1}
        assert usage.response["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
        assert usage.response["usage"]["total_tokens"] == 9

    def test_a_second_attempt_changes_nothing(self) -> None:
        assert write([Started("resp_1"), Started("resp_2"), Noted("x"), *END]).response["id"] == "resp_1"

    def test_without_the_block(self) -> None:
        body = CODEC.encoder(context(block=lambda: None)).encode([Started(), *END])
        assert "strom" not in grammar.read(body).response
        named = CODEC.encoder(context(block_name="llmeu")).encode([Started(), *END])
        assert grammar.read(named).response["llmeu"] == {"complete": True}

    def test_nothing_after_the_end(self) -> None:
        encoder = CODEC.encoder(context())
        encoder.encode([Started(), *END])
        assert encoder.encode([*block("text", TextDelta(0, "x"))]) == b""
        assert encoder.fail(IncompleteStream("x")) == b""
        assert encoder.heartbeat() == b""

    def test_a_completed_stream_without_a_beginning(self) -> None:
        assert grammar.read(CODEC.encoder(context()).encode([Finished("stop"), Completed()])).response["output"] == []


class TestHeartbeats:
    def test_they_are_counted_events_and_open_the_stream(self) -> None:
        encoder = CODEC.encoder(context())
        events: list[Event] = [Started("resp_late"), *block("text", TextDelta(0, "a"), TextDelta(0, "b")), *END]
        body = encoder.heartbeat() + encoder.heartbeat()
        for event in events:
            body += encoder.encode([event]) + (b"" if isinstance(event, Completed) else encoder.heartbeat())
        seen = grammar.read(body)
        assert seen.keepalives == 2 + len(events) - 1
        assert seen.response["id"] == "resp_r1"
        assert seen.text("output_text") == "ab"


class TestErrors:
    def test_both_shapes_and_then_the_failed_response(self) -> None:
        encoder = CODEC.encoder(context())
        body = encoder.encode([Started(), *block("text", TextDelta(0, "some"))]) + encoder.fail(IncompleteStream("cut"))
        seen = grammar.read(body)
        assert seen.types[-2:] == ["error", "response.failed"]
        assert seen.error == {"message": "cut", "type": "upstream_error", "param": None, "code": "incomplete_stream"}
        assert seen.response["error"] == {"code": "incomplete_stream", "message": "cut"}
        assert seen.response["output"][0]["content"][0]["text"] == "some"
        assert seen.response["strom"] == {"complete": True}

    def test_in_the_middle_of_an_item(self) -> None:
        encoder = CODEC.encoder(context())
        body = encoder.encode([Started(), BlockStarted(0, Block("text")), TextDelta(0, "some")])
        seen = grammar.read(body + encoder.fail(RateLimited("slow")))
        assert seen.response["error"]["code"] == "rate_limit_exceeded"
        assert seen.response["output"] == []

    def test_before_anything(self) -> None:
        seen = grammar.read(CODEC.encoder(context()).fail(ContextOverflow("too long")))
        assert seen.types == ["response.created", "response.in_progress", "error", "response.failed"]
        assert seen.response["error"]["code"] == "context_length_exceeded"

    def test_failed_is_never_written_as_such(self) -> None:
        assert CODEC.encoder(context()).encode([Failed(IncompleteStream("x"))]) == b""


class TestEcho:
    def test_what_the_client_asked_for(self) -> None:
        parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
        members: dict[str, Any] = {
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": parameters},
                {"type": "custom", "name": "p", "description": "e", "format": {"type": "text"}},
                {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g", "strict": False}] * 2},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "p"}]},
            "parallel_tool_calls": False,
            "max_output_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.25,
            "metadata": {"a": "b"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}, "verbosity": "low"},
            "store": False,
            "previous_response_id": "resp_0",
            "user": "u",
        }
        seen = write([Started(), *END], request=request(**members))
        echoed = {name: seen.response[name] for name in members}
        assert echoed.pop("tools") == [
            {**members["tools"][0], "strict": True},
            members["tools"][1],
            {
                "type": "namespace",
                "name": "ns",
                "description": "",
                "tools": [
                    {
                        "type": "function",
                        "name": "g",
                        "parameters": {"type": "object", "properties": {}},
                        "strict": False,
                    }
                ]
                * 2,
            },
            {"type": "web_search"},
        ]
        members.pop("tools")
        assert echoed == members

    def test_a_pretty_printed_request_breaks_no_line(self) -> None:
        body = json.dumps(
            {
                "model": "m",
                "input": "x",
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
                "tool_choice": {"type": "web_search_preview"},
                "metadata": {"a": "b"},
            },
            indent=1,
        )
        seen = write([Started(), *END], request=CODEC.decode_request(body.replace("\n", "\r\n").encode()))
        assert seen.response["tool_choice"] == {"type": "web_search_preview"}
        assert seen.response["metadata"] == {"a": "b"}


def test_the_final_object_and_the_items_are_there_for_a_store() -> None:
    encoder = CODEC.encoder(context())
    assert isinstance(encoder, Encoder)
    encoder.encode([Started(), *block("text", TextDelta(0, "x"))])
    assert json.loads(encoder.output[0])["content"][0]["text"] == "x"
    assert encoder.response == b""
    encoder.encode(END)
    assert json.loads(encoder.response)["status"] == "completed"
