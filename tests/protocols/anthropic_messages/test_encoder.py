"""What an Anthropic client is written, judged by the independent grammar."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import ContextOverflow, Overloaded, ProviderError
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    CitationDelta,
    Completed,
    Event,
    Finished,
    Noted,
    SignatureDelta,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.usage import Usage
from strom.protocols.anthropic_messages import CODEC
from tests.grammar import anthropic as grammar
from tests.protocols.anthropic_messages.frames import context, decode, text_stream

TEXT: list[Event] = [Started("chatcmpl-1", "up"), BlockStarted(0, Block("text")), TextDelta(0, "Hi"), BlockEnded(0)]


def encode(events: list[Event], *, at_once: bool = False, **members: Any) -> bytes:
    encoder = CODEC.encoder(context(**members))
    return encoder.encode(events) if at_once else b"".join(encoder.encode([event]) for event in events)


def seen(events: list[Event], reason: str = "stop", **members: Any) -> grammar.Seen:
    """The stream of these events and an end, read strictly; written event by event and at once alike."""
    whole = [*events, Finished(reason), Completed()]
    pieces = grammar.read(encode(whole, **members))
    together = grammar.read(encode(whole, at_once=True, **members))
    assert (pieces.types, pieces.blocks) == (together.types, together.blocks)
    return pieces


def call(index: int, *fragments: str, **block: Any) -> list[Event]:
    deltas = [ArgumentsDelta(index, fragment) for fragment in fragments]
    return [BlockStarted(index, Block("tool_call", f"call_{index}", "f", **block)), *deltas, BlockEnded(index)]


def thinking(index: int, *events: Event) -> list[Event]:
    return [BlockStarted(index, Block("thinking")), *events, BlockEnded(index)]


# --- the frame around ---


def test_a_text_stream_byte_for_byte() -> None:
    events = [*TEXT, UsageReported(Usage(12, 2, 4)), Finished("stop"), Completed()]
    assert encode(events) == (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_r1","type":"message",'
        b'"role":"assistant","model":"client-model","content":[],"stop_reason":null,"stop_sequence":null,'
        b'"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
        b"event: content_block_start\n"
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},'
        b'"usage":{"input_tokens":8,"output_tokens":2,"cache_read_input_tokens":4},"strom":{"complete":true}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_known_usage_stands_at_the_start() -> None:
    events: list[Event] = [Started("msg_up"), UsageReported(Usage(30, None, 10, 5)), *TEXT[1:]]
    whole = grammar.read(encode([*events, Finished("stop"), Completed()], at_once=True))
    assert whole.message["usage"] == {
        "input_tokens": 15,
        "output_tokens": 1,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 10,
    }
    assert whole.message["id"] == "msg_up"
    only_zero: list[Event] = [Started(), UsageReported(Usage(0)), Finished("stop"), Completed()]
    assert grammar.read(encode(only_zero, at_once=True)).message["usage"]["input_tokens"] == 7


def test_unknown_usage_is_estimated() -> None:
    assert seen(TEXT).usage == {"input_tokens": 7, "output_tokens": 1}
    assert seen(
        [Started(), UsageReported(Usage(5)), UsageReported(Usage(output_tokens=9, reasoning_tokens=4))]
    ).usage == {
        "input_tokens": 5,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


def test_the_block_has_its_name_or_is_missing() -> None:
    named = encode([*TEXT, Finished("stop"), Completed()], block_name="llmeu")
    assert b'"llmeu":{"complete":true}' in named
    assert b"strom" not in encode([*TEXT, Finished("stop"), Completed()], block=lambda: None)


def test_each_delta_leaves_at_once_and_a_second_start_changes_nothing() -> None:
    encoder = CODEC.encoder(context())
    assert encoder.encode([TEXT[0]]).count(b"message_start") == 2
    assert encoder.encode([TEXT[1]]) == b""
    assert b'"text":"Hi"' in encoder.encode([TEXT[2]])
    assert b'"text":"more"' in encoder.encode([TextDelta(0, "more")])
    assert encoder.encode([Started("other")]) == b""
    assert encoder.encode([UsageReported(Usage(1, 1)), Finished("stop"), Noted("x")]) == b""


# --- blocks ---


def test_thinking_then_text_then_calls() -> None:
    events = [
        Started(),
        *thinking(0, ThinkingDelta(0, "h"), ThinkingDelta(0, "m"), SignatureDelta(0, "sig")),
        BlockStarted(1, Block("text")),
        TextDelta(1, "a"),
        BlockEnded(1),
        *call(2, '{"x":', "1}"),
        *call(3),
    ]
    whole = seen(events, "tool_calls")
    assert whole.kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert (whole.thinking, whole.text, whole.finish) == ("hm", "a", "tool_use")
    assert whole.blocks[0]["signature"] == "sig"
    assert whole.calls == [("call_2", "f", {"x": 1}), ("call_3", "f", {})]


def test_empty_blocks_are_not_written() -> None:
    events = [Started(), BlockStarted(0, Block("text")), BlockEnded(0), *thinking(1), *call(2)]
    assert seen(events).kinds == ["tool_use"]


def test_signatures_are_never_invented_and_others_are_marked() -> None:
    assert seen([Started(), *thinking(0, ThinkingDelta(0, "h"))]).blocks[0]["signature"] == ""
    whole = seen([Started(), *thinking(0, ThinkingDelta(0, "h"), SignatureDelta(0, "x", "openai-responses"))])
    assert whole.blocks[0]["signature"] == "strom.openai-responses..x"
    assert seen([Started(), *thinking(0, SignatureDelta(0, "sig"))]).blocks[0]["signature"] == "sig"


@pytest.mark.parametrize(
    ("mode", "kinds", "text", "hidden"),
    [
        ("native", ["thinking", "redacted_thinking", "text"], "a", "hm"),
        ("text", ["text", "text"], "<think>hm</think>\n\na", ""),
        ("drop", ["text"], "a", ""),
    ],
)
def test_reasoning(mode: str, kinds: list[str], text: str, hidden: str) -> None:
    events = [
        Started(),
        *thinking(0, ThinkingDelta(0, "h"), ThinkingDelta(0, "m"), SignatureDelta(0, "s")),
        BlockStarted(1, Block("redacted_thinking", data="X", protocol="anthropic")),
        BlockEnded(1),
        *thinking(2),
        BlockStarted(3, Block("text")),
        TextDelta(3, "a"),
        BlockEnded(3),
    ]
    whole = seen(events, reasoning=mode)
    assert (whole.kinds, whole.text, whole.thinking) == (kinds, text, hidden)


def test_what_another_protocol_alone_knows_is_left_out() -> None:
    foreign: list[Event] = [
        BlockStarted(0, Block("opaque", data="{}", protocol="openai-responses")),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        CitationDelta(1, "openai-responses", "{}"),
        TextDelta(1, "a"),
        BlockEnded(1),
    ]
    assert seen([Started(), *foreign]).kinds == ["text"]


def test_our_own_opaque_blocks_and_citations_are_written() -> None:
    events: list[Event] = [
        Started(),
        BlockStarted(
            0, Block("opaque", name="server_tool_use", data='{"type":"server_tool_use"}', protocol="anthropic")
        ),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        CitationDelta(1, "anthropic", '{"type":"x"}'),
        TextDelta(1, "a"),
        BlockEnded(1),
    ]
    assert seen(events).kinds == ["server_tool_use", "text"]


def test_interleaved_calls_become_sequential() -> None:
    one, two = call(0, "{", "}"), call(1, "[", "]")
    mixed = [Started(), *[event for pair in zip(one, two, strict=True) for event in pair]]
    assert [each["payload"] for each in seen(mixed).blocks] == ["{}", "[]"]


def test_illegal_ids_are_mapped_and_broken_arguments_kept() -> None:
    bad = Block("tool_call", "functions.f:0", "f")
    whole = grammar.read(
        encode(
            [Started(), BlockStarted(0, bad), ArgumentsDelta(0, '{"a'), BlockEnded(0), Finished("length"), Completed()]
        )
    )
    assert whole.blocks[0]["id"].startswith("strom_")
    assert whole.blocks[0]["payload"] == '{"a'
    assert whole.finish == "max_tokens"


def test_a_free_text_call_is_wrapped() -> None:
    assert seen([Started(), *call(0, 'say "', 'hi"\n', custom=True)]).calls[0][2] == {"input": 'say "hi"\n'}
    assert seen([Started(), *call(0, custom=True)]).calls[0][2] == {}


# --- reasons ---


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "end_turn"),
        ("stop_sequence", "end_turn"),
        ("length", "max_tokens"),
        ("context_full", "model_context_window_exceeded"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("refusal", "refusal"),
        ("pause", "pause_turn"),
        ("abort", "end_turn"),
    ],
)
def test_stop_reasons(reason: str, word: str) -> None:
    assert seen(TEXT, reason).finish == word


def test_stop_with_calls_is_tool_use_and_length_stays() -> None:
    assert seen([Started(), *call(0)]).finish == "tool_use"
    assert seen([Started(), *call(0)], "length").finish == "max_tokens"


def test_the_stop_sequence() -> None:
    whole = grammar.read(encode([*TEXT, Finished("stop_sequence", "END"), Completed()]))
    assert (whole.finish, whole.stop_sequence) == ("stop_sequence", "END")


def test_a_refusal_is_text_with_its_reason() -> None:
    refusal: list[Event] = [Started(), BlockStarted(0, Block("refusal")), TextDelta(0, "No."), BlockEnded(0)]
    whole = seen(refusal)
    assert (whole.kinds, whole.text, whole.finish) == (["text"], "No.", "refusal")


# --- heartbeats, failures, the end ---


def test_a_heartbeat_opens_the_stream() -> None:
    encoder = CODEC.encoder(context())
    out = encoder.heartbeat() + encoder.heartbeat() + encoder.encode([*TEXT, Finished("stop"), Completed()])
    whole = grammar.read(out)
    assert whole.pings == 2
    assert whole.message["id"] == "msg_r1"
    assert encoder.heartbeat() == b""


def test_failures_end_the_stream() -> None:
    encoder = CODEC.encoder(context())
    whole = grammar.read(encoder.encode(TEXT[:3]) + encoder.fail(ProviderError("broke")))
    assert whole.error == {"type": "api_error", "message": "broke"}
    assert whole.last["request_id"] == "trace-1"
    assert encoder.encode(TEXT) == encoder.fail(ProviderError("x")) == encoder.heartbeat() == b""


def test_a_failure_before_anything_is_just_the_error() -> None:
    assert grammar.read(CODEC.encoder(context()).fail(Overloaded("busy"))).types == ["error"]
    overflow = CODEC.encoder(context()).fail(ContextOverflow("x", tokens=9, limit=8))
    assert b"prompt is too long: 9 tokens > 8 maximum" in overflow


def test_completed_alone_still_makes_a_stream() -> None:
    assert grammar.read(encode([Finished("stop"), Completed()], at_once=True)).kinds == []


def test_round_trip_through_the_decoder() -> None:
    events = decode(*text_stream("a", 'b"\n', "\u20ac"))
    again = decode(encode(events, at_once=True))
    assert [each for each in again if isinstance(each, TextDelta)] == [
        each for each in events if isinstance(each, TextDelta)
    ]


@given(st.lists(st.text(min_size=1), min_size=1))
def test_any_text_arrives(texts: list[str]) -> None:
    events: list[Event] = [
        Started(),
        BlockStarted(0, Block("text")),
        *[TextDelta(0, text) for text in texts],
        BlockEnded(0),
    ]
    assert seen(events).text == "".join(texts)
