"""A Chat stream becomes canonical events, however its server deviates."""

from __future__ import annotations

import json

import pytest

from strom.core.errors import (
    BadRequest,
    ContextOverflow,
    IncompleteCompletion,
    IncompleteStream,
    InvalidStreamEvent,
    ProviderError,
    RateLimited,
    StromError,
)
from strom.core.events import (
    ArgumentsDelta,
    Block,
    BlockEnded,
    BlockStarted,
    Completed,
    Event,
    Failed,
    Finished,
    Noted,
    Started,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from strom.core.messages import RefusalPart, TextPart, ThinkingPart, ToolCallPart
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from tests.protocols.openai_chat.frames import (
    DONE,
    bare,
    call,
    chunk,
    data,
    decode,
    failure,
    folded,
    role,
    stop,
    text,
    thinking,
    usage,
)


def test_a_plain_answer() -> None:
    events = decode([role(), text("Hel"), text("lo"), text(' "you"\n'), stop(), usage(), DONE])
    assert events == [
        Started("chatcmpl-u", "m", 1760000000),
        BlockStarted(0, Block("text")),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        TextDelta(0, ' "you"\n'),
        BlockEnded(0),
        Finished("stop", raw="stop"),
        UsageReported(Usage(9, 3)),
        Completed(),
    ]


# --- proof ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"data: [DONE]", b"data:[DONE]\n", b"data:  [DONE] \n\n", b"data: [DONE]\r\n\r\n"])
def test_the_sentinel_is_proof_with_or_without_its_line_ends(tail: bytes) -> None:
    assert decode([text("a"), stop(), tail])[-1] == Completed()


def test_the_end_of_bytes_is_no_proof() -> None:
    assert isinstance(failure(decode([text("a"), stop()])), IncompleteStream)
    assert isinstance(failure(decode([text("a")])), IncompleteStream)
    assert isinstance(failure(decode([])), IncompleteStream)
    assert isinstance(failure(decode([text("a"), stop().removesuffix(b"\n")])), IncompleteStream)


def test_the_terminator_without_a_reason_is_no_proof() -> None:
    assert isinstance(failure(decode([text("a"), chunk({}, ""), DONE])), IncompleteCompletion)


def test_quirk_done_not_required() -> None:
    quirks = Quirks(done_required=False)
    assert decode([text("a"), stop()], quirks)[-1] == Completed()
    assert isinstance(failure(decode([text("a")], quirks)), IncompleteStream)
    assert isinstance(failure(decode([text("a"), stop(), b"data: {"], quirks)), IncompleteStream)


def test_quirk_finish_reason_not_required() -> None:
    quirks = Quirks(finish_reason_required=False)
    assert decode([text("a"), DONE], quirks)[-2:] == [Finished("stop", assumed=True), Completed()]
    opened = call(index=0, id="c", name="f", arguments="{}")
    assert Finished("tool_calls", assumed=True) in decode([opened, DONE], quirks)
    assert decode([DONE], quirks) == [Started(), Finished("stop", assumed=True), Completed()]
    assert isinstance(failure(decode([text("a")], quirks)), IncompleteStream)


def test_nothing_counts_after_the_terminal_event() -> None:
    events = decode([text("a"), stop(), DONE, text("ghost"), DONE])
    assert events.count(Completed()) == 1
    assert folded(events).parts() == (TextPart("a"),)
    assert folded(decode([text("a") + stop() + DONE + text("ghost")])).parts() == (TextPart("a"),)


def test_the_sentinel_in_content_is_content() -> None:
    fold = folded(decode([text("data: [DONE]\n\n"), text("[DONE]"), stop(), DONE]))
    assert fold.parts() == (TextPart("data: [DONE]\n\n[DONE]"),)


# --- finish reasons ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "extra", "wanted"),
    [
        ("stop", {}, Finished("stop", raw="stop")),
        ("stop", {"stop_reason": "</x>"}, Finished("stop_sequence", "</x>", "stop")),
        ("stop", {"stopping_word": "END"}, Finished("stop_sequence", "END", "stop")),
        ("stop", {"stop_reason": 151643}, Finished("stop", raw="stop")),
        ("length", {}, Finished("length", raw="length")),
        ("content_filter", {}, Finished("content_filter", raw="content_filter")),
        ("function_call", {}, Finished("tool_calls", raw="function_call")),
        ("abort", {}, Finished("abort", raw="abort")),
    ],
)
def test_reasons(reason: str, extra: dict[str, object], wanted: Finished) -> None:
    assert wanted in decode([text("a"), chunk({}, reason, choice=extra), DONE])


def test_the_last_reason_wins() -> None:
    fold = folded(decode([text("a"), stop(), stop("length"), usage(), DONE]))
    assert fold.reply().finish_reason == "length"


def test_stop_with_calls_means_tool_calls_and_length_does_not() -> None:
    opened = call(index=0, id="c", name="f", arguments="{}")
    assert Finished("tool_calls", raw="stop") in decode([opened, stop(), DONE])
    assert Finished("length", raw="length") in decode([opened, stop("length"), DONE])
    assert folded(decode([stop(), opened, DONE])).reply().finish_reason == "tool_calls"


# --- usage ---------------------------------------------------------------------------------------------


def test_usage_anywhere_and_the_last_one_wins() -> None:
    running = chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10})
    last = usage(
        prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 2},
        completion_tokens_details={"reasoning_tokens": 1},
    )
    fold = folded(decode([running, stop(usage={"prompt_tokens": 9, "completion_tokens": 3}), last, DONE]))
    assert fold.usage == Usage(9, 3, 4, 2, 1)


def test_usage_in_other_words() -> None:
    assert folded(decode([text("a"), stop(), usage(prompt_cache_hit_tokens=5), DONE])).usage == Usage(9, 3, 5)
    assert folded(decode([text("a"), stop(usage=None), DONE])).usage is None


# --- frames --------------------------------------------------------------------------------------------


def test_what_is_missing_or_null_is_legal() -> None:
    frames = [
        data({"choices": [{"delta": {"content": "a"}}], "error": None}),
        bare(choices=None),
        bare(),
        chunk({"role": None, "content": None, "tool_calls": None}),
        data({"choices": [{"index": None, "delta": None}]}),
        data({"id": 7, "created": 1.5, "model": None, "choices": [{"delta": {"content": "b"}}]}),
        stop(),
        DONE,
    ]
    assert folded(decode(frames)).parts() == (TextPart("ab"),)


def test_keep_alives_are_ignored() -> None:
    frames = [
        b": ping\n\n",
        b"data:\n\n",
        b"data: \n\n",
        b"retry: 300\n\n",
        b"id: 1\n\n",
        b"event: ping\n\n",
        chunk({"role": "assistant"}, model="keepalive"),
        data({"type": "ping"}),
        chunk({"role": "assistant", "content": None}, prompt_progress={"total": 9}),
        text("a"),
        stop(),
        DONE,
    ]
    assert folded(decode(frames)).parts() == (TextPart("a"),)


@pytest.mark.parametrize(
    "frame",
    [b'data: {"choices": [{"del\n\n', b"data: 7\n\n", data({"hello": 1}), data({"choices": "x"}), b"data: \xff\n\n"],
)
def test_an_undecodable_frame_is_an_error(frame: bytes) -> None:
    events = decode([text("ok"), frame, text("more"), stop(), DONE])
    assert isinstance(failure(events), InvalidStreamEvent)
    assert folded(events).parts() == (TextPart("ok"),)


def test_a_frame_without_end_is_cut_off() -> None:
    decoder_events = decode([b"data: " + b"x" * (16 * 1024 * 1024), b"y"])
    assert isinstance(failure(decoder_events), InvalidStreamEvent)


def test_created_as_a_text() -> None:
    assert decode([chunk({"content": "a"}, created="17"), stop(), DONE])[0] == Started("chatcmpl-u", "m", 17)
    assert decode([chunk({"content": "a"}, created="x"), stop(), DONE])[0] == Started("chatcmpl-u", "m", 0)


def test_other_choices_are_noted_once() -> None:
    other = bare(choices=[{"index": 1, "delta": {"content": "B"}, "finish_reason": None}])
    events = decode([text("A"), other, other, stop(), DONE])
    assert events.count(Noted("choices other than the first")) == 1
    assert folded(events).parts() == (TextPart("A"),)


def test_the_text_of_another_choice_is_not_learned_as_the_first_ones() -> None:
    other = bare(choices=[{"index": 1, "delta": {"content": "A"}, "finish_reason": None}])
    events = decode([role(), text("A") + other, other, other.replace(b'"A"', b'"B"'), text("C"), stop(), DONE])
    assert folded(events).parts() == (TextPart("AC"),)


# --- errors --------------------------------------------------------------------------------------------


def error_frame(**error: object) -> bytes:
    return data({"error": error})


@pytest.mark.parametrize(
    ("frame", "kind", "words"),
    [
        (error_frame(message=" boom "), ProviderError, "boom"),
        (data({"error": "boom"}), ProviderError, "boom"),
        (data({"object": "error", "message": "flat", "type": "BadRequestError", "code": 400}), BadRequest, "flat"),
        (error_frame(message="quota", type="insufficient_quota"), RateLimited, "quota"),
        (error_frame(message="x", code="context_length_exceeded"), ContextOverflow, "x"),
        (b"event: error\ndata: plain words\n\n", ProviderError, "plain words"),
        (b'event: error\ndata: {"message": "told"}\n\n', ProviderError, "told"),
    ],
)
def test_error_frames(frame: bytes, kind: type[StromError], words: str) -> None:
    events = decode([text("a"), frame, DONE])
    error = failure(events)
    assert isinstance(error, kind)
    assert error.message == words


def test_waiting_does_not_help_against_a_spent_quota() -> None:
    error = failure(decode([error_frame(message="q", code="insufficient_quota"), DONE]))
    assert (error.status, error.code, error.retryable) == (429, "insufficient_quota", False)


# --- thinking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_fields(field: str) -> None:
    frames = [chunk({field: "w"}), chunk({field: "hy"}), text("so"), stop(), DONE]
    assert folded(decode(frames)).parts() == (ThinkingPart("why"), TextPart("so"))


def test_both_reasoning_fields_are_one() -> None:
    fold = folded(decode([chunk({"reasoning": "a", "reasoning_content": "a"}), stop(), DONE]))
    assert fold.parts() == (ThinkingPart("a"),)


def test_think_tags() -> None:
    frames = [text("<th"), text("ink>a < b</thi"), text("nk>so <think> and </think>"), stop(), DONE]
    assert folded(decode(frames)).parts() == (ThinkingPart("a < b"), TextPart("so <think> and </think>"))


def test_a_tag_left_over_after_the_reasoning_field() -> None:
    frames = [thinking("r"), text("</th"), text("ink>ok"), stop(), DONE]
    assert folded(decode(frames)).parts() == (ThinkingPart("r"), TextPart("ok"))


def test_what_was_held_back_as_a_tag_comes_out_when_it_is_none() -> None:
    opened = call(index=0, id="c", name="f", arguments="{}")
    assert folded(decode([text("<th"), opened, stop(), DONE])).parts()[0] == TextPart("<th")
    assert folded(decode([text("<th"), stop(), DONE])).parts() == (TextPart("<th"),)
    assert folded(decode([text("<th"), thinking("x"), stop(), DONE])).parts() == (TextPart("<th"), ThinkingPart("x"))
    assert folded(decode([text("<th"), b"data: {\n\n"])).parts() == (TextPart("<th"),)
    assert folded(decode([text("<th")])).parts() == (TextPart("<th"),)


def test_quirks_of_think_tags() -> None:
    frames = [text("hm</think>ok"), stop(), DONE]
    assert folded(decode(frames, Quirks(think_preopened=True))).parts() == (ThinkingPart("hm"), TextPart("ok"))
    frames = [text("<think>x</think>"), stop(), DONE]
    assert folded(decode(frames, Quirks(think_tags=False))).parts() == (TextPart("<think>x</think>"),)


def test_several_kinds_in_one_frame_come_in_order() -> None:
    part = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    frame = chunk({"tool_calls": [part], "content": "b", "reasoning_content": "a"}, "tool_calls")
    parts = folded(decode([frame, DONE])).parts()
    assert parts == (ThinkingPart("a"), TextPart("b"), ToolCallPart("c", "f", "{}"))


def test_content_as_a_list() -> None:
    pieces = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "t1"}]},
        {"type": "thinking", "thinking": "t2"},
        {"type": "text", "text": "a"},
        {"type": "reference"},
    ]
    parts = folded(decode([chunk({"content": pieces}), stop(), DONE])).parts()
    assert parts == (ThinkingPart("t1t2"), TextPart("a"))


def test_a_refusal() -> None:
    frames = [chunk({"refusal": "I "}), chunk({"refusal": "won't"}), stop(), DONE]
    assert folded(decode(frames)).parts() == (RefusalPart("I won't"),)


# --- the fast path -------------------------------------------------------------------------------------


def test_the_fast_path_follows_the_open_block() -> None:
    frames = [thinking("a"), thinking("b"), text("c"), text("d"), thinking("e"), text("f"), stop(), DONE]
    events = decode(frames)
    assert [e for e in events if isinstance(e, TextDelta | ThinkingDelta)] == [
        ThinkingDelta(0, "a"),
        ThinkingDelta(0, "b"),
        TextDelta(1, "c"),
        TextDelta(1, "d"),
        ThinkingDelta(2, "e"),
        TextDelta(3, "f"),
    ]


@pytest.mark.parametrize("odd", ["\u00a0", "é\u2028", 'q"q', "back\\slash", "\t", "😀"])
def test_odd_characters_on_the_fast_path(odd: str) -> None:
    escaped = data(json.loads(text(odd)[6:])).replace(odd.encode(), json.dumps(odd)[1:-1].encode())
    events = decode([role(), text("a"), text("b"), text(odd), escaped, stop(), DONE])
    assert folded(events).parts() == (TextPart(f"ab{odd}{odd}"),)


def test_a_broken_text_in_a_known_shape_is_an_error() -> None:
    broken = text("XX").replace(b"XX", b"\xff\xfe")
    assert isinstance(failure(decode([role(), text("a"), text("b"), broken])), InvalidStreamEvent)
    control = text("XX").replace(b"XX", b"a\x01b")
    assert isinstance(failure(decode([role(), text("a"), text("b"), control])), InvalidStreamEvent)


def test_a_delta_leaves_with_its_read() -> None:
    from strom.protocols.openai_chat import CODEC

    decoder = CODEC.decoder(Quirks())
    seen: list[list[Event]] = [decoder.feed(frame) for frame in (role(), text("a"), text("b"), text("c"))]
    assert [events[-1] for events in seen[1:]] == [TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(0, "c")]
    assert not any(isinstance(event, Failed | ArgumentsDelta) for events in seen for event in events)
