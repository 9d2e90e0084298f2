"""The same protocol on both sides: bytes stay bytes, single broken frames are repaired."""

from __future__ import annotations

import json
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import (
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    Overloaded,
    ProviderError,
)
from strom.core.evidence import Evidence
from strom.core.usage import Usage
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks, ReplyContext
from tests.grammar import anthropic as grammar
from tests.protocols.anthropic_messages.frames import (
    MESSAGE_STOP,
    PING,
    block_start,
    context,
    delta,
    end,
    event,
    start,
    stop,
    text_stream,
)
from tests.protocols.anthropic_messages.test_decoder import RICH


def relay(*frames: bytes, quirks: Quirks | None = None, ctx: ReplyContext | None = None) -> tuple[bytes, Evidence]:
    relayed = CODEC.relay(ctx or context(block=lambda: None), quirks or Quirks())
    out = b"".join([*map(relayed.feed, frames), relayed.finish()])
    return out, relayed.evidence


def repaired(*frames: bytes, **members: object) -> grammar.Seen:
    """Read strictly: the whole stream, of which some frames were broken."""
    out, evidence = relay(*frames, ctx=context(**members))
    assert evidence.complete
    return grammar.read(out)


# --- untouched ---


def test_a_legal_stream_is_byte_exact() -> None:
    assert relay(RICH)[0] == RICH
    frames = text_stream("a", "b", 'c"\\', "\u20ac")
    assert relay(*frames)[0] == b"".join(frames)


@given(st.lists(st.integers(0, len(RICH)), max_size=30))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(RICH)]
    pieces = [RICH[left:right] for left, right in pairwise(places)]
    out, evidence = relay(*pieces)
    assert out == RICH
    assert (evidence.deltas, evidence.output_characters, evidence.first_token_kind) == (10, 17, "thinking")


def test_layout_line_ends_and_unknown_members_stay() -> None:
    spaced = RICH.replace(b'"type":', b'"type" : ').replace(b'"index":', b'"x":1,"index":')
    assert relay(spaced)[0] == spaced
    crlf = RICH.replace(b"\n", b"\r\n")
    assert relay(crlf)[0] == crlf


def test_unknown_events_blocks_and_deltas_pass() -> None:
    frames = [
        start(container={"id": "c"}),
        event("brand_new", x=1),
        block_start(0, "server_tool_use", id="s", name="web_search", input={}),
        delta(0, "json", '{"q":1}'),
        stop(0),
        block_start(1),
        delta(1, "text", ""),
        delta(1, "compaction", "x"),
        delta(1, "text", "a"),
        stop(1),
        end("end_turn", output_tokens=4, server_tool_use={"web_search_requests": 1}),
        MESSAGE_STOP,
    ]
    assert relay(*frames)[0] == b"".join(frames)


def test_every_delta_leaves_at_once() -> None:
    relayed = CODEC.relay(context(), Quirks())
    for frame in text_stream("a", "b", "c")[:-2]:
        assert relayed.feed(frame) == frame
    assert relayed.feed(end()) == b""


# --- the block, the evidence ---


def test_the_block_is_added_to_the_message_delta_alone() -> None:
    asked: list[bool] = []

    def block() -> bytes:
        asked.append(relayed.evidence.complete)
        return b'{"trace_id":"t"}'

    relayed = CODEC.relay(context(block=block, block_name="llmeu"), Quirks())
    frames = text_stream("a")
    out = b"".join([*map(relayed.feed, frames), relayed.finish()])
    assert asked == [True]
    assert out == b"".join(frames).replace(b"3}}\n", b'3},"llmeu":{"trace_id":"t"}}\n')


def test_the_evidence_of_a_stream_that_dies() -> None:
    usage = {"input_tokens": 900, "output_tokens": 1, "cache_read_input_tokens": 4000}
    out, evidence = relay(start(usage=usage), block_start(0), delta(0, "text", "long "))
    assert out.endswith(delta(0, "text", "long "))
    assert evidence.usage == Usage(4900, None, 4000)
    assert (evidence.response_id, evidence.model, evidence.output_characters) == ("msg_1", "claude-x", 5)
    assert isinstance(evidence.error, IncompleteStream)


def test_an_unproven_end_leaves_no_message_delta() -> None:
    out, evidence = relay(*text_stream("a")[:-1])
    assert b"message_delta" not in out
    assert isinstance(evidence.error, IncompleteStream)
    out, evidence = relay(start(), MESSAGE_STOP)
    assert out == start()
    assert isinstance(evidence.error, IncompleteCompletion)


def test_errors_are_left_to_the_gateway() -> None:
    relayed = CODEC.relay(context(), Quirks())
    head = relayed.feed(start())
    assert relayed.feed(event("error", error={"type": "overloaded_error", "message": "busy"})) == b""
    assert isinstance(relayed.evidence.error, Overloaded)
    assert relayed.feed(PING) == relayed.finish() == b""
    whole = grammar.read(head + relayed.fail(ProviderError("broke")))
    assert whole.types == ["message_start", "error"]
    assert relayed.fail(ProviderError("again")) == relayed.heartbeat() == b""


def test_what_cannot_be_read_is_an_error() -> None:
    for data in (b"data: {\n\n", b"data: []\n\n", delta(0, "json", "{")):
        out, evidence = relay(start(), data, stop(0))
        assert out == start()
        assert isinstance(evidence.error, InvalidStreamEvent)
    good = [start(), block_start(0), delta(0, "text", "a"), delta(0, "text", "b")]
    out, evidence = relay(*good, delta(0, "text", "X").replace(b"X", b"\xff"))
    assert out == b"".join(good)
    assert isinstance(evidence.error, InvalidStreamEvent)
    relayed = CODEC.relay(context(), Quirks())
    assert not any(relayed.feed(b"x" * (1 << 20)) for _ in range(18))
    assert isinstance(relayed.evidence.error, InvalidStreamEvent)


def test_nothing_comes_after_the_end() -> None:
    frames = text_stream("a")
    assert relay(*frames, PING, *frames)[0] == b"".join(frames)
    assert relay(b"".join([*frames, PING]))[0] == b"".join(frames)


# --- heartbeats ---


def test_heartbeats_and_pings() -> None:
    relayed = CODEC.relay(context(), Quirks())
    assert relayed.heartbeat() == b": keep-alive\n\n"
    assert relayed.feed(PING) == b": ping\n\n"
    assert relayed.feed(b": mine\n\n") == b": mine\n\n"
    assert relayed.feed(start()) == start()
    assert relayed.heartbeat() == PING.replace(b': "', b':"')
    assert relayed.feed(PING) == PING
    assert relayed.feed(b"data: [DONE]\n\n") == b""


# --- repairs ---


def test_missing_and_wrong_event_lines() -> None:
    frames = text_stream("a", "b")
    bare = [frame.split(b"\n", 1)[1] for frame in frames]
    assert relay(*bare)[0] == b"".join(frames)
    wrong = [b"event: message\n" + frame for frame in bare]
    assert relay(*wrong)[0] == b"".join(frames)
    split = [frame.replace(b'", ', b'",\ndata: ', 1) for frame in bare]
    assert repaired(*split).text == "ab"
    assert relay(start(), PING.split(b"\n", 1)[1])[0] == start() + PING


def test_a_start_without_usage_id_or_shape() -> None:
    end_ = [*text_stream("a")[1:]]
    whole = repaired(start(usage=None, id=7, content=None, x_vendor=1), *end_)
    assert whole.message["usage"] == {"input_tokens": 7, "output_tokens": 1}
    assert (whole.message["id"], whole.message["x_vendor"]) == ("7", 1)
    whole = repaired(start(usage={"input_tokens": 4}, id=None, model=None), *end_)
    assert whole.message["usage"] == {"input_tokens": 4, "output_tokens": 1}
    assert (whole.message["id"], whole.message["model"]) == ("msg_r1", "client-model")
    assert repaired(start(usage={"output_tokens": 2}), *end_).message["usage"] == {
        "output_tokens": 2,
        "input_tokens": 7,
    }
    assert repaired(event("message_start"), *end_).text == "a"
    assert repaired(*end_).text == "a"
    assert repaired(start(), start(), *end_).text == "a"


def test_an_end_without_usage_or_with_several_frames() -> None:
    head = text_stream("abcdefgh")[:-2]
    bare = event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, x=1)
    whole = repaired(*head, bare, MESSAGE_STOP)
    assert whole.usage == {"input_tokens": 9, "output_tokens": 2}
    whole = repaired(*head, end("end_turn", output_tokens=1), end("max_tokens", output_tokens=5), MESSAGE_STOP)
    assert (whole.finish, whole.usage["output_tokens"]) == ("max_tokens", 5)
    whole = repaired(*head, end("end_turn"), event("message_delta", usage={"output_tokens": 8}), MESSAGE_STOP)
    assert (whole.finish, whole.usage["output_tokens"]) == ("end_turn", 8)
    number = event("message_delta", delta={"stop_reason": 5}, usage={"output_tokens": 8})
    assert repaired(*head, number, MESSAGE_STOP).finish == "5"
    untyped = event(
        "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 1}
    )
    assert repaired(*head, untyped.replace(b'"type": "message_delta", ', b""), MESSAGE_STOP).finish == "end_turn"


def test_the_quirks() -> None:
    out, evidence = relay(*text_stream("a")[:-1], quirks=Quirks(done_required=False))
    assert out.startswith(b"".join(text_stream("a")[:-1]))
    assert grammar.read(out).finish == "end_turn"
    assert evidence.complete
    out, evidence = relay(start(), block_start(0), MESSAGE_STOP, quirks=Quirks(finish_reason_required=False))
    assert evidence.finish_assumed
    whole = grammar.read(out)
    assert (whole.finish, whole.kinds) == ("end_turn", ["text"])


def test_tool_use_without_input_or_with_all_of_it() -> None:
    bare = event("content_block_start", index=0, content_block={"type": "tool_use", "id": "a.b", "name": "f"})
    whole = repaired(start(), bare, delta(0, "json", '{"a":1}'), stop(0), end("tool_use"), MESSAGE_STOP)
    assert whole.calls[0][1:] == ("f", {"a": 1})
    full = block_start(0, "tool_use", input={"a": 1}, id=5)
    assert repaired(start(), full, stop(0), end("tool_use"), MESSAGE_STOP).calls == [("5", "f", {"a": 1})]
    legal = block_start(0, "tool_use", id="functions.f:0")
    assert legal in relay(start(), legal)[0]  # the next request maps it


def test_initial_text_becomes_a_delta() -> None:
    frames = [start(), block_start(0, text="Hi"), delta(0, "text", "!"), stop(0), end(), MESSAGE_STOP]
    assert repaired(*frames).text == "Hi!"
    thought = [start(), block_start(0, "thinking", thinking="hm", signature="s"), stop(0), end(), MESSAGE_STOP]
    assert repaired(*thought).thinking == "hm"


def test_blocks_never_closed_never_opened_or_misnumbered() -> None:
    never_closed = [block_start(0), delta(0, "text", "a"), block_start(1), delta(1, "text", "b")]
    assert repaired(start(), *never_closed, end(), MESSAGE_STOP).kinds == ["text", "text"]
    never_opened = [delta(0, "text", "a"), delta(1, "thinking", "b"), stop(1), stop(1)]
    assert repaired(start(), *never_opened, end(), MESSAGE_STOP).kinds == ["text", "thinking"]
    numbered = [block_start(3), delta(3, "text", "a"), stop(3), block_start(3), delta(3, "text", "b"), stop(3)]
    whole = repaired(start(), *numbered, end(), MESSAGE_STOP)
    assert (whole.text, len(whole.blocks)) == ("ab", 2)
    unnumbered = [event("content_block_start", content_block={"type": "text", "text": ""})]
    unnumbered += [event("content_block_delta", delta={"type": "text_delta", "text": "a"}), event("content_block_stop")]
    assert repaired(start(), *unnumbered, end(), MESSAGE_STOP).text == "a"
    opaque = [block_start(4, "server_tool_use", id="s", name="n"), delta(4, "json", "{}"), stop(4)]
    assert repaired(start(), *opaque, end(), MESSAGE_STOP).kinds == ["server_tool_use"]
    assert relay(start(), event("content_block_start", index=0, content_block=[]))[0] == start()
    assert relay(start(), event("content_block_delta", index=0))[0] == start()


def test_interleaved_calls_become_sequential() -> None:
    frames = [
        block_start(0, "tool_use"),
        block_start(1, "tool_use"),
        delta(1, "json", "[1"),
        delta(0, "json", '{"a"'),
        delta(0, "json", ":1}"),
        stop(0),
        delta(1, "json", "]"),
        stop(1),
    ]
    calls = repaired(start(), *frames, end("tool_use"), MESSAGE_STOP).calls
    assert [arguments for _, _, arguments in calls] == [{"a": 1}, [1]]


@pytest.mark.parametrize(("mode", "kinds"), [("drop", ["text"]), ("text", ["text", "text"])])
def test_reasoning_that_is_not_wanted(mode: str, kinds: list[str]) -> None:
    frames = [
        start(),
        block_start(0, "thinking"),
        delta(0, "thinking", "hm"),
        delta(0, "thinking", "m"),
        delta(0, "signature", "s"),
        stop(0),
        block_start(1, "redacted_thinking", data="x"),
        stop(1),
        block_start(2),
        delta(2, "text", "a"),
        stop(2),
        end(),
        MESSAGE_STOP,
    ]
    whole = repaired(*frames, reasoning=mode)
    assert whole.kinds == kinds
    assert whole.text == ("a" if mode == "drop" else "<think>hmm</think>\n\na")


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from(RICH.split(b"\n\n")).map(lambda part: part + b"\n\n"), max_size=25
    )
)
def test_garbage_never_raises_and_ends_once(pieces: list[bytes]) -> None:
    relayed = CODEC.relay(context(), Quirks())
    out = b"".join([*map(relayed.feed, pieces), relayed.finish()])
    assert relayed.evidence.ended
    assert relayed.evidence.complete == out.endswith(MESSAGE_STOP)
    if relayed.evidence.error is not None:
        out += relayed.fail(relayed.evidence.error)
    assert out.count(b"event: message_stop\n") + out.count(b"event: error\n") == 1


KNOWN = [
    block_start(0),
    block_start(1, "tool_use"),
    block_start(0, "thinking"),
    block_start(2, "tool_use", input={"a": 1}),
    delta(0, "text", "a"),
    delta(1, "json", "{"),
    delta(0, "thinking", "t"),
    delta(2, "text", "b"),
    stop(0),
    stop(1),
    stop(2),
    PING,
]


@given(st.lists(st.sampled_from(KNOWN), max_size=12), st.sampled_from(["native", "drop", "text"]))
def test_whatever_blocks_upstream_makes_the_client_reads_a_legal_stream(frames: list[bytes], mode: str) -> None:
    relayed = CODEC.relay(context(reasoning=mode), Quirks())
    out = b"".join(map(relayed.feed, [start(), *frames, end(), MESSAGE_STOP]))
    if relayed.evidence.error is not None:
        out += relayed.fail(relayed.evidence.error)
    grammar.read(out)


def test_members_of_the_held_frame_survive() -> None:
    frame = end("refusal", output_tokens=2)
    data = json.loads(frame.split(b"data: ")[1])
    data["delta"]["stop_details"] = {"category": "x"}
    out = relay(
        start(), event(**{"kind": "message_delta", **{k: v for k, v in data.items() if k != "type"}}), MESSAGE_STOP
    )[0]
    assert b'"stop_details": {"category": "x"}' in out


def test_many_frames_in_one_read_leave_in_one_write() -> None:
    frames = text_stream(*[str(number) for number in range(50)])
    assert relay(b"".join(frames))[0] == b"".join(frames) == b"".join(chain(frames))
