"""A Messages stream becomes canonical events, whatever the server leaves out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.core.errors import (
    BadRequest,
    ContextOverflow,
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    Overloaded,
    ProviderError,
    RateLimited,
)
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
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
from strom.core.order import OrderChecker
from strom.core.usage import Usage
from strom.protocols.anthropic_messages import CODEC
from strom.protocols.codec import Quirks
from tests.patience import assert_linear
from tests.protocols.anthropic_messages.frames import (
    MESSAGE_STOP,
    PING,
    block_start,
    decode,
    delta,
    end,
    event,
    start,
    stop,
    text_stream,
)

DONE = [Finished("stop", raw="end_turn"), UsageReported(Usage(9, 3)), Completed()]
HEAD = [Started("msg_1", "claude-x"), UsageReported(Usage(9))]


def body(*frames: bytes) -> list[Event]:
    """The events between the head and the usual end."""
    events = decode(start(), *frames, end(), MESSAGE_STOP)
    assert events[:2] == HEAD
    assert events[-3:] == DONE
    return events[2:-3]


def failure(*frames: bytes, quirks: Quirks | None = None) -> Failed:
    last = decode(*frames, quirks=quirks)[-1]
    assert isinstance(last, Failed)
    return last


# --- blocks ---


def test_text() -> None:
    assert decode(*text_stream("Hel", "lo \u20ac")) == [
        *HEAD,
        BlockStarted(0, Block("text")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo \u20ac"),
        BlockEnded(0),
        *DONE,
    ]


def test_thinking_with_signature_and_redacted_thinking() -> None:
    frames = [
        block_start(0, "thinking"),
        delta(0, "thinking", "hm"),
        delta(0, "thinking", "\n"),
        delta(0, "signature", "c2ln"),
        stop(0),
        block_start(1, "redacted_thinking", data="RU5D"),
        stop(1),
    ]
    assert body(*frames) == [
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "hm"),
        ThinkingDelta(0, "\n"),
        SignatureDelta(0, "c2ln"),
        BlockEnded(0),
        BlockStarted(1, Block("redacted_thinking", data="RU5D", protocol="anthropic")),
        BlockEnded(1),
    ]


def test_tool_calls_with_empty_fragments() -> None:
    frames = [
        block_start(0, "tool_use"),
        delta(0, "json", ""),
        delta(0, "json", '{"a":'),
        delta(0, "json", "1}"),
        stop(0),
    ]
    assert body(*frames, block_start(1, "tool_use", name="g"), delta(1, "json", ""), stop(1)) == [
        BlockStarted(0, Block("tool_call", "toolu_0", "f")),
        ArgumentsDelta(0, '{"a":'),
        ArgumentsDelta(0, "1}"),
        BlockEnded(0),
        BlockStarted(1, Block("tool_call", "toolu_1", "g")),
        BlockEnded(1),
    ]


def test_input_given_at_the_start_counts_when_no_fragments_come() -> None:
    whole = block_start(0, "tool_use", input={"a": 1})
    assert ArgumentsDelta(0, '{"a": 1}') in body(whole, stop(0))
    assert body(whole, delta(0, "json", "{}"), stop(0))[1] == ArgumentsDelta(0, "{}")


def test_initial_text_thinking_and_signature() -> None:
    thinking = block_start(0, "thinking", thinking="hm", signature="c2ln")
    text = block_start(1, "text", text="Hi", citations=[{"type": "page_location"}])
    assert body(thinking, stop(0), text, stop(1)) == [
        BlockStarted(0, Block("thinking")),
        ThinkingDelta(0, "hm"),
        SignatureDelta(0, "c2ln"),
        BlockEnded(0),
        BlockStarted(1, Block("text")),
        TextDelta(1, "Hi"),
        CitationDelta(1, "anthropic", '{"type": "page_location"}'),
        BlockEnded(1),
    ]


def test_citations() -> None:
    citation = {"type": "char_location", "cited_text": "x"}
    events = body(block_start(0), delta(0, "citations", citation), delta(0, "citations", None), stop(0))
    assert events[1:] == [
        CitationDelta(0, "anthropic", '{"type": "char_location", "cited_text": "x"}'),
        BlockEnded(0),
    ]


def test_a_block_of_an_unknown_type_is_opaque_and_keeps_its_input() -> None:
    search = block_start(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={})
    events = body(search, delta(0, "json", '{"query":'), delta(0, "json", '"x"}'), stop(0), block_start(1), stop(1))
    opened = events[0]
    assert isinstance(opened, BlockStarted)
    assert (opened.block.kind, opened.block.name, opened.block.protocol) == ("opaque", "server_tool_use", "anthropic")
    assert opened.block.data.endswith('"input":{"query":"x"}}')
    assert [type(found) for found in events[1:]] == [BlockEnded, BlockStarted, BlockEnded]


@pytest.mark.parametrize("pieces", [[], ['{"cut']])
def test_an_opaque_block_without_legible_input_stays_as_it_came(pieces: list[str]) -> None:
    events = body(block_start(0, "mcp_tool_use", x=1), *[delta(0, "json", piece) for piece in pieces], stop(0))
    opened = events[0]
    assert isinstance(opened, BlockStarted)
    assert opened.block.data == '{"type": "mcp_tool_use", "x": 1}'


# --- what servers leave out or add ---


def test_event_lines_are_not_needed() -> None:
    frames = [frame.split(b"\n", 1)[1] for frame in text_stream("a")]
    assert decode(*frames) == decode(*text_stream("a"))


def test_the_event_line_stands_in_for_a_missing_type() -> None:
    frames = [*text_stream("a")[:-1], b"event: message_stop\ndata: {}\n\n"]
    assert decode(*frames) == decode(*text_stream("a"))


def test_pings_comments_and_unknown_events_are_ignored() -> None:
    noise = [PING, b": hello\n\n", event("brand_new", x=1), b"event: x\n\n", b"data: [DONE]\n\n", b"data:\n\n"]
    frames = text_stream("a", "b")
    mixed = list(chain.from_iterable((frame, *noise) for frame in frames))
    assert decode(*mixed) == decode(*frames)


def test_an_unknown_delta_is_noted() -> None:
    assert body(block_start(0), delta(0, "compaction", "x"), stop(0))[1] == Noted("stream delta compaction_delta")
    assert body(event("content_block_delta", index=0)) == []


def test_blocks_that_are_never_closed() -> None:
    assert body(block_start(0), delta(0, "text", "a"), block_start(1, "thinking"), delta(1, "thinking", "b")) == [
        BlockStarted(0, Block("text")),
        TextDelta(0, "a"),
        BlockEnded(0),
        BlockStarted(1, Block("thinking")),
        ThinkingDelta(1, "b"),
        BlockEnded(1),
    ]


def test_blocks_that_are_never_opened() -> None:
    frames = [delta(0, "text", "a"), delta(1, "thinking", "b"), delta(1, "signature", "s"), delta(1, "thinking", "")]
    assert body(*frames, delta(2, "text", ""), delta(2, "signature", ""), stop(9)) == [
        BlockStarted(0, Block("text")),
        TextDelta(0, "a"),
        BlockEnded(0),
        BlockStarted(1, Block("thinking")),
        ThinkingDelta(1, "b"),
        SignatureDelta(1, "s"),
        BlockEnded(1),
    ]


def test_missing_indices_mean_the_open_block() -> None:
    frames = [
        event("content_block_start", content_block={"type": "text", "text": ""}),
        event("content_block_delta", delta={"type": "text_delta", "text": "a"}),
        event("content_block_stop"),
        event("content_block_delta", delta={"type": "text_delta", "text": "b"}),
    ]
    assert [found for found in body(*frames) if isinstance(found, TextDelta)] == [TextDelta(0, "a"), TextDelta(1, "b")]


def test_upstreams_own_indices_do_not_matter() -> None:
    events = body(block_start(4), delta(4, "text", "a"), stop(4), block_start(4), delta(4, "text", "b"), stop(4))
    assert [found.index for found in events if isinstance(found, TextDelta)] == [0, 1]


def test_interleaved_calls_keep_their_fragments() -> None:
    calls = [block_start(0, "tool_use"), block_start(1, "tool_use"), delta(0, "json", "{"), delta(1, "json", "[")]
    events = body(*calls, delta(0, "json", "}"), stop(0), stop(1))
    assert [(found.index, found.text) for found in events if isinstance(found, ArgumentsDelta)] == [
        (0, "{"),
        (1, "["),
        (0, "}"),
    ]
    assert len(body(calls[0], calls[0])) == 4  # the same index again: another call


def test_missing_and_numeric_ids() -> None:
    frames = [block_start(0, "tool_use", id=None), stop(0), block_start(1, "tool_use", id=""), stop(1)]
    started = [found for found in body(*frames, block_start(2, "tool_use", id=7)) if isinstance(found, BlockStarted)]
    ids = [found.block.call_id for found in started]
    assert ids[2] == "7"
    assert len(set(ids)) == 3
    assert all(ids)
    assert decode(start(id=12), end(), MESSAGE_STOP)[0] == Started("12", "claude-x")


def test_no_message_start() -> None:
    events = decode(*text_stream("a")[1:])
    assert events[0] == Started()
    assert events[-1] == Completed()
    assert decode(end(), MESSAGE_STOP)[-1] == Completed()


def test_a_second_message_start_changes_nothing() -> None:
    assert [found for found in body(start(id="msg_2")) if isinstance(found, Started)] == []


# --- usage and reasons ---


def test_usage_is_a_running_total_and_includes_caches() -> None:
    first = start(usage={"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 100})
    last = end(output_tokens=40, cache_creation_input_tokens=5, output_tokens_details={"thinking_tokens": 8})
    events = decode(first, last, MESSAGE_STOP)
    assert [found.usage for found in events if isinstance(found, UsageReported)] == [
        Usage(125, None, 100),
        Usage(130, 40, 100, 5, 8),
    ]


@pytest.mark.parametrize("usage", [None, {"input_tokens": "many"}, 7])
def test_illegible_usage_is_no_report(usage: object) -> None:
    events = decode(start(usage=usage), event("message_delta", delta={"stop_reason": "end_turn"}), MESSAGE_STOP)
    assert not [found for found in events if isinstance(found, UsageReported)]
    assert events[-1] == Completed()


@pytest.mark.parametrize("details", [{"thinking_tokens": "x"}, {}, None])
def test_illegible_details_are_left_out(details: object) -> None:
    events = decode(start(), end(output_tokens=2, output_tokens_details=details), MESSAGE_STOP)
    assert UsageReported(Usage(9, 2)) in events


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("model_context_window_exceeded", "context_full"),
        ("compaction", "compaction"),
        (151643, "151643"),
    ],
)
def test_stop_reasons(word: str | int, reason: str) -> None:
    frame = event("message_delta", delta={"stop_reason": word})
    assert Finished(reason, raw=str(word)) in decode(start(), frame, MESSAGE_STOP)


def test_the_stop_sequence_is_kept_and_the_last_reason_wins() -> None:
    events = decode(start(), end("max_tokens"), end("stop_sequence", "END"), end(None), MESSAGE_STOP)
    assert [found for found in events if isinstance(found, Finished)][-1] == Finished(
        "stop_sequence", "END", "stop_sequence"
    )


# --- the end ---


def test_the_body_ends_without_message_stop() -> None:
    for cut in range(len(text_stream("a"))):
        assert isinstance(failure(*text_stream("a")[:cut]).error, IncompleteStream)


def test_an_unfinished_last_event_is_no_event() -> None:
    frames = text_stream("a")
    assert isinstance(failure(*frames[:-1], MESSAGE_STOP[:-1]).error, IncompleteStream)


def test_message_stop_without_a_reason() -> None:
    assert isinstance(failure(start(), MESSAGE_STOP).error, IncompleteCompletion)
    assert isinstance(failure(start(), end(None), MESSAGE_STOP).error, IncompleteCompletion)


def test_the_quirks() -> None:
    lenient = Quirks(done_required=False)
    assert decode(*text_stream("a")[:-1], quirks=lenient)[-1] == Completed()
    assert isinstance(failure(*text_stream("a")[:-2], quirks=lenient).error, IncompleteStream)
    events = decode(start(), MESSAGE_STOP, quirks=Quirks(finish_reason_required=False))
    assert events[-2:] == [Finished("stop", assumed=True), Completed()]
    both = Quirks(done_required=False, finish_reason_required=False)
    assert decode(start(), block_start(0), quirks=both)[-2:] == [Finished("stop", assumed=True), Completed()]


def test_nothing_comes_after_the_end() -> None:
    decoder = CODEC.decoder(Quirks())
    decoder.feed(b"".join(text_stream("a")))
    assert decoder.feed(b"".join(text_stream("a"))) == []
    assert decoder.finish() == []
    late = decode(*text_stream("a")[:-1], MESSAGE_STOP + event("error", error={"message": "late"}))
    assert late[-1] == Completed()


# --- errors ---


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, Overloaded),
        ({"type": "rate_limit_error", "message": "slow"}, RateLimited),
        ({"type": "invalid_request_error", "message": "bad"}, BadRequest),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}, ContextOverflow),
        ({"type": "api_error", "message": "x"}, ProviderError),
        ({"code": 503, "message": "x"}, Overloaded),
        ("text", ProviderError),
        ({}, ProviderError),
    ],
)
def test_errors_in_the_stream(error: object, kind: type) -> None:
    failed = failure(start(), event("error", error=error))
    assert type(failed.error) is kind
    assert failed.error.message


def test_an_error_needs_neither_type_nor_json() -> None:
    assert isinstance(failure(start(), b'data: {"error":{"code":429,"message":"m"}}\n\n').error, RateLimited)
    assert failure(start(), b"event: error\ndata: upstream fell over\n\n").error.message == "upstream fell over"
    assert failure(start(), event("error")).error.message
    assert decode(*text_stream("a")[:-1], b'data: {"type":"message_stop","error":null}\n\n')[-1] == Completed()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'"text"',
        b'{"type":"content_block_delta","index":"0"}',
        b'{"type":"content_block_start","index":0}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\xff"}}',
        b"[" * 5000,
        b'{"type":"ping","error":' + b'{"a":' * 100_000,
    ],
)
def test_what_is_no_event_of_the_protocol(data: bytes) -> None:
    assert isinstance(failure(start(), b"data: " + data + b"\n\n").error, InvalidStreamEvent)


def test_broken_text_in_a_frame_of_the_learned_shape() -> None:
    frames = [start(), block_start(0), delta(0, "text", "a"), delta(0, "text", "b")]
    assert isinstance(failure(*frames, delta(0, "text", "X").replace(b"X", b"\xff")).error, InvalidStreamEvent)


def test_an_endless_line_is_cut_off() -> None:
    decoder = CODEC.decoder(Quirks())
    piece = b"x" * (1 << 20)
    events = [found for _ in range(18) for found in decoder.feed(piece)]
    assert len(events) == 1
    assert isinstance(events[0], Failed)


# --- cuts, garbage, time ---

RICH = b"".join(
    [
        start(),
        PING,
        block_start(0, "thinking"),
        delta(0, "thinking", "\u00e4 \ud83d\ude80".encode("utf-16", "surrogatepass").decode("utf-16")),
        delta(0, "signature", "s"),
        stop(0),
        block_start(1),
        *[delta(1, "text", text) for text in ("a", "b", 'q"\n', "\u20ac", "e")],
        stop(1),
        block_start(2, "tool_use"),
        *[delta(2, "json", text) for text in ("", "{", '"k', '":1', "}")],
        stop(2),
        end("tool_use"),
        MESSAGE_STOP,
    ]
)


@given(st.lists(st.integers(0, len(RICH)), max_size=30))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(RICH)]
    pieces = [RICH[left:right] for left, right in pairwise(places)]
    assert decode(*pieces) == decode(RICH)


def test_byte_by_byte_and_with_other_line_ends() -> None:
    assert decode(*[bytes([byte]) for byte in RICH]) == decode(RICH)
    for line_end in (b"\r\n", b"\r"):
        other = RICH.replace(b"\n", line_end)
        assert decode(other) == decode(RICH)
        assert decode(*[bytes([byte]) for byte in other]) == decode(RICH)
    assert decode(b"\xef\xbb\xbf" + RICH) == decode(RICH)


@given(
    st.lists(
        st.binary(max_size=60) | st.sampled_from(RICH.split(b"\n\n")).map(lambda part: part + b"\n\n"), max_size=20
    )
)
def test_garbage_ends_in_exactly_one_terminal_event(pieces: list[bytes]) -> None:
    decoder = CODEC.decoder(Quirks())
    checker = OrderChecker()
    for found in [*chain.from_iterable(map(decoder.feed, pieces)), *decoder.finish()]:
        checker.feed(found)
    assert checker.ended


@pytest.mark.parametrize("kind", ["byte by byte", "large frame", "fragments"])
def test_work_grows_linearly(kind: str) -> None:
    def pieces(size: int) -> list[bytes]:
        head = [start(), block_start(0, "tool_use")]
        if kind == "byte by byte":
            data = b"".join([*head, delta(0, "json", "x" * size)])
            return [bytes([byte]) for byte in data]
        if kind == "large frame":
            data = delta(0, "json", "x" * (size * 40))
            return [*head, *[data[at : at + 4096] for at in range(0, len(data), 4096)]]
        return [*head, *[delta(0, "json", str(at)) for at in range(size // 8)]]

    def make(size: int) -> Callable[[], None]:
        given = pieces(size)

        def work() -> None:
            decoder = CODEC.decoder(Quirks())
            for piece in given:
                decoder.feed(piece)

        return work

    assert_linear(make, 10_000)
