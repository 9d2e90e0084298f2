"""What the decoder makes of streams: legal ones, sloppy ones, broken ones."""

from __future__ import annotations

from typing import Any

import pytest

from strom.core.errors import (
    ContextOverflow,
    IncompleteStream,
    InvalidStreamEvent,
    ProviderError,
    RateLimited,
    StromError,
)
from strom.core.events import (
    ArgumentsDelta,
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
from strom.core.fold import Fold, fold
from strom.core.messages import OpaquePart, Part, RefusalPart, TextPart, ThinkingPart, ToolCallPart
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from tests.protocols.openai_responses.frames import (
    added,
    arguments,
    call,
    created,
    decode,
    delta,
    done,
    ended,
    event,
    message,
    numbered,
    part_added,
    part_done,
    plain,
    response,
    summary,
    text_part,
)


def parts(*frames: bytes) -> tuple[Part, ...]:
    """The parts of a stream that ends in Completed; the same ones when every frame is a read of its own, and byte by byte."""
    whole = decode(b"".join(frames))
    assert decode(*frames) == whole
    assert decode(*(bytes([byte]) for byte in b"".join(frames))) == whole
    return fold(whole).parts


def error_of(*frames: bytes, quirks: Quirks | None = None) -> StromError:
    last = decode(*frames, quirks=quirks)[-1]
    assert isinstance(last, Failed)
    return last.error


class TestText:
    def test_a_plain_stream(self) -> None:
        events = decode(numbered(*plain("Hi there")))
        assert events[0] == Started("resp_1", "gpt-x", 1_750_000_000)
        assert fold(events).parts == (TextPart("Hi there"),)
        assert events[-3:] == [
            UsageReported(Usage(9, 3, 4, None, 1)),
            Finished("stop", raw="completed"),
            Completed(),
        ]

    def test_each_delta_leaves_with_its_read(self) -> None:
        frames = plain("x" * 10)
        decoder_events = [decode(*frames[:count])[:-1] for count in range(len(frames))]
        texts = ["".join(e.text for e in events if isinstance(e, TextDelta)) for events in decoder_events]
        assert texts[4:7] == ["", "x" * 5, "x" * 10]

    def test_several_parts_and_a_refusal(self) -> None:
        refusal = event("response.refusal.delta", output_index=0, item_id="msg_1", content_index=1, delta="No.")
        frames = [created(), added(0, message()), delta(0, "one"), refusal, delta(0, "two", at=2), ended()]
        assert parts(*frames) == (TextPart("one"), RefusalPart("No."), TextPart("two"))

    @pytest.mark.parametrize("where", ["done", "part", "item", "terminal"])
    def test_text_that_comes_late_is_delivered_once(self, where: str) -> None:
        finished = message("msg_1", text_part("late"))
        late = {
            "done": event("response.output_text.done", output_index=0, item_id="msg_1", content_index=0, text="late"),
            "part": part_done(0, "late"),
            "item": done(0, finished),
            "terminal": b"",
        }
        frames = [created(), added(0, message(status="in_progress")), part_added(0), late[where]]
        assert parts(*frames, ended(output=[finished])) == (TextPart("late"),)
        assert parts(*plain("late")) == (TextPart("late"),)

    def test_a_terminal_event_alone(self) -> None:
        output = [message("m", text_part("hi")), call("fc_9", '{"a":1}')]
        assert parts(ended(output=output)) == (
            TextPart("hi"),
            ToolCallPart("call_fc_9", "f", '{"a":1}', item_id="fc_9"),
        )

    def test_content_of_an_item_as_a_string(self) -> None:
        assert parts(ended(output=[{"type": "message", "role": "assistant", "content": "hi"}])) == (TextPart("hi"),)

    def test_deltas_without_an_item_open_one(self) -> None:
        assert parts(created(), event("response.output_text.delta", delta="a"), ended()) == (TextPart("a"),)

    def test_an_item_without_ids_and_indices(self) -> None:
        finished = {"type": "message", "role": "assistant", "content": [text_part("ab")]}
        frames = [
            created(),
            event("response.output_item.added", item={"type": "message"}),
            event("response.output_text.delta", delta="a"),
            event("response.output_text.delta", delta="b"),
            event("response.output_item.done", item=finished),
            event("response.output_item.added", item={"type": "message"}),
            event("response.output_text.delta", delta="c"),
        ]
        output = [finished, {"type": "message", "role": "assistant", "content": [text_part("c")]}]
        assert parts(*frames, ended(output=output)) == (TextPart("ab"), TextPart("c"))

    def test_annotations(self) -> None:
        note = {"type": "url_citation", "url": "http://x", "title": "X", "start_index": 0, "end_index": 1}
        told = event(
            "response.output_text.annotation.added",
            output_index=0,
            item_id="msg_1",
            content_index=0,
            annotation_index=0,
            annotation=note,
        )
        finished = message("msg_1", text_part("a", annotations=[note, {**note, "url": "http://y"}]))
        events = decode(
            created(), added(0, message()), delta(0, "a"), told, done(0, finished), ended(output=[finished])
        )
        found = [e for e in events if isinstance(e, CitationDelta)]
        assert [e.protocol for e in found] == ["openai-responses"] * 2
        assert '"http://y"' in found[1].data
        assert decode(created(), told, ended())[-1] == Completed()

    def test_a_text_that_is_interrupted_goes_on_in_a_new_block(self) -> None:
        other = message("msg_2")
        frames = [created(), added(0, message()), delta(0, "a"), added(1, other), delta(1, "b", "msg_2"), delta(0, "c")]
        assert parts(*frames, ended()) == (TextPart("a"), TextPart("b"), TextPart("c"))

    def test_padding_escapes_and_other_alphabets(self) -> None:
        texts = [
            "plain",
            'quote " here',
            "line\nend",
            "tab\t",
            "\u20ac\u4f60\u597d",
            "back\\slash",
            "\x7f\u00a0",
            "last",
        ]
        frames = [created(), added(0, message())]
        for text in texts:
            frames.append(
                event("response.output_text.delta", item_id="msg_1", output_index=0, delta=text, obfuscation="aB3dE")
            )
        frames.append(ended())
        pieces = [frame + b"\n\n" for frame in numbered(*frames).split(b"\n\n")[:-1]]
        assert fold(decode(*pieces)).parts == (TextPart("".join(texts)),)


class TestCalls:
    def test_fragments(self) -> None:
        finished = call("fc_1", '{"a": "b"}', "look", namespace="ns")
        frames = [
            created(),
            added(0, call("fc_1", name="look", namespace="ns")),
            arguments(0, '{"a":'),
            arguments(0, ' "b"}'),
            event("response.function_call_arguments.done", output_index=0, item_id="fc_1", arguments='{"a": "b"}'),
            done(0, finished),
        ]
        made = parts(*frames, ended(output=[finished]))
        assert made == (ToolCallPart("call_fc_1", "look", '{"a": "b"}', namespace="ns", item_id="fc_1"),)
        assert decode(*frames, ended())[-2] == Finished("tool_calls", raw="completed")

    @pytest.mark.parametrize("where", ["added", "arguments.done", "item.done", "terminal"])
    def test_arguments_that_come_late_are_delivered_once(self, where: str) -> None:
        finished = call("fc_1", '{"a":1}')
        opening = added(0, finished if where == "added" else call("fc_1"))
        told = event("response.function_call_arguments.done", output_index=0, item_id="fc_1", arguments='{"a":1}')
        frames = [
            opening,
            told if where == "arguments.done" else b"",
            done(0, finished) if where == "item.done" else b"",
        ]
        assert parts(created(), *frames, ended(output=[finished])) == (
            ToolCallPart("call_fc_1", "f", '{"a":1}', item_id="fc_1"),
        )

    def test_a_name_that_comes_at_the_end(self) -> None:
        nameless = {"id": "fc_1", "type": "function_call", "call_id": "c"}
        told = event("response.function_call_arguments.done", output_index=0, item_id="fc_1", arguments="{}", name="g")
        assert parts(created(), added(0, nameless), arguments(0, "{}"), told, ended()) == (
            ToolCallPart("c", "g", "{}", item_id="fc_1"),
        )

    def test_a_call_without_a_name_is_named_and_left_out(self) -> None:
        events = decode(created(), arguments(0, "{}"), ended())
        assert Noted("a tool call without a name") in events
        assert fold(events).parts == ()
        assert fold(events).finish_reason == "stop"

    def test_a_missing_call_id_is_the_items_id_or_invented(self) -> None:
        bare = {"type": "function_call", "name": "f", "arguments": "{}"}
        assert parts(ended(output=[bare, {**bare, "id": "fc_2"}])) == (
            ToolCallPart("call_0", "f", "{}"),
            ToolCallPart("fc_2", "f", "{}", item_id="fc_2"),
        )

    def test_calls_may_overlap_and_text_waits_for_them(self) -> None:
        frames = [
            created(),
            added(0, call("fc_1")),
            added(1, call("fc_2")),
            arguments(0, '{"a"', "fc_1"),
            arguments(1, '{"b"', "fc_2"),
            added(2, message()),
            delta(2, "text"),
            added(3, call("fc_3")),
            arguments(0, ":1}", "fc_1"),
            done(0, call("fc_1", '{"a":1}')),
            arguments(1, ":2}", "fc_2"),
            arguments(3, "{}", "fc_3"),
            done(3, call("fc_3", "{}")),
            done(1, call("fc_2", '{"b":2}')),
            delta(2, " more"),
        ]
        made = parts(*frames, ended())
        assert [getattr(part, "arguments", getattr(part, "text", "")) for part in made] == [
            '{"a":1}',
            '{"b":2}',
            "text",
            "{}",
            " more",
        ]

    def test_invalid_arguments_fail_that_call_only(self) -> None:
        finished = call("fc_1", "{oops")
        events = decode(created(), added(0, call("fc_1")), arguments(0, "{oops"), done(0, finished), ended())
        assert [bool(e.invalid) for e in events if isinstance(e, BlockEnded)] == [True]
        assert events[-1] == Completed()

    def test_a_fence_around_arguments_is_stripped(self) -> None:
        frames = [added(0, call("fc_1")), arguments(0, '```json\n{"a":'), arguments(0, "1}\n```")]
        assert parts(created(), *frames, ended())[0] == ToolCallPart("call_fc_1", "f", '{"a":1}', item_id="fc_1")

    def test_what_follows_complete_arguments_is_ignored(self) -> None:
        frames = [added(0, call("fc_1")), arguments(0, "{}"), arguments(0, "\n"), done(0, call("fc_1", "{}"))]
        assert parts(created(), *frames, arguments(0, "late"), ended())[0] == ToolCallPart(
            "call_fc_1", "f", "{}", item_id="fc_1"
        )

    def test_a_free_text_call(self) -> None:
        begun = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": ""}
        pieces = [
            event("response.custom_tool_call_input.delta", output_index=0, item_id="ctc_1", delta=text)
            for text in ("*** Begin", " {patch\n")
        ]
        finished = {**begun, "input": "*** Begin {patch\n"}
        want = ToolCallPart("c1", "apply_patch", "*** Begin {patch\n", custom=True, item_id="ctc_1")
        assert parts(created(), added(0, begun), *pieces, done(0, finished), ended(output=[finished])) == (want,)
        assert parts(ended(output=[finished])) == (want,)
        told = event("response.custom_tool_call_input.done", output_index=0, item_id="ctc_1", input=finished["input"])
        assert parts(created(), added(0, begun), told, done(0, begun), ended()) == (want,)


class TestReasoning:
    def test_summary_parts_and_encrypted_content(self) -> None:
        finished = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
        begun = {"id": "rs_1", "type": "reasoning", "summary": []}
        frames = [added(0, begun), summary(0, "one "), summary(0, "two"), summary(0, "three", at=1), done(0, finished)]
        events = decode(created(), *frames, ended())
        assert fold(events).parts == (
            ThinkingPart("one two\n\nthree", "gAAA", origin="openai-responses", item_id="rs_1"),
        )
        assert decode(*[created(), *frames, ended()]) == events

    def test_full_text(self) -> None:
        begun = {"id": "rs_1", "type": "reasoning", "summary": [], "content": []}
        pieces = [
            event("response.reasoning_text.delta", output_index=0, item_id="rs_1", content_index=0, delta=text)
            for text in ("a", "b")
        ]
        finished = {**begun, "content": [{"type": "reasoning_text", "text": "ab"}]}
        assert parts(created(), added(0, begun), *pieces, done(0, finished), ended(output=[finished])) == (
            ThinkingPart("ab", item_id="rs_1"),
        )
        assert parts(ended(output=[finished])) == (ThinkingPart("ab", item_id="rs_1"),)

    def test_of_summary_and_full_text_the_first_is_shown_and_the_other_named(self) -> None:
        item = {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "short"}],
            "content": [{"type": "reasoning_text", "text": "long"}],
        }
        events = decode(created(), done(0, item), ended(output=[item]))
        assert fold(events).parts == (ThinkingPart("long", item_id="rs_1"),)
        assert [e for e in events if isinstance(e, Noted)] == [
            Noted("reasoning (of summary and full text only what came first)")
        ]

    def test_encrypted_reasoning_alone(self) -> None:
        item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
        want = ThinkingPart(encrypted="gAAA", origin="openai-responses", item_id="rs_1")
        assert parts(created(), added(0, {**item, "encrypted_content": None}), done(0, item), ended()) == (want,)

    def test_deltas_after_the_end_of_an_item_are_ignored(self) -> None:
        item = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]}
        frames = [created(), done(0, item), summary(0, "late"), done(0, item), delta(0, "x"), ended()]
        assert parts(*frames) == (ThinkingPart("a", item_id="rs_1"), TextPart("x"))

    def test_an_interrupted_thought_still_gets_its_signature(self) -> None:
        item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "E"}
        frames = [created(), added(0, {**item, "encrypted_content": None}), summary(0, "a"), added(1, message())]
        events = decode(*frames, delta(1, "t"), done(0, item), ended())
        assert [type(e) for e in events if isinstance(e, ThinkingDelta | SignatureDelta | TextDelta)] == [
            ThinkingDelta,
            TextDelta,
            SignatureDelta,
        ]


class TestOpaque:
    def test_an_item_only_this_protocol_knows_is_kept_whole(self) -> None:
        item = {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        }
        searching = event("response.web_search_call.searching", output_index=0, item_id="ws_1")
        frames = [added(0, {**item, "status": "in_progress"}), searching, done(0, item), added(1, message())]
        made = parts(created(), *frames, delta(1, "found"), ended())
        assert isinstance(made[0], OpaquePart)
        assert (made[0].protocol, made[0].kind) == ("openai-responses", "web_search_call")
        assert '"query": "x"' in made[0].json.text
        assert made[1] == TextPart("found")

    def test_one_whose_members_are_not_ours(self) -> None:
        item = {"id": "x", "type": "odd_call", "content": 7}
        made = parts(created(), added(0, item), done(0, item), ended(output=[item]))
        assert [type(part) for part in made] == [OpaquePart]

    def test_one_that_never_ends(self) -> None:
        made = parts(created(), added(0, {"id": "x", "type": "odd_call"}), ended())
        assert isinstance(made[0], OpaquePart)
        assert made[0].json.text == '{"id": "x", "type": "odd_call"}'


class TestEnds:
    @pytest.mark.parametrize(
        ("details", "reason"),
        [
            ({"reason": "max_output_tokens"}, "length"),
            ({"reason": "content_filter"}, "content_filter"),
            ({"reason": "steered"}, "steered"),
            (None, "incomplete"),
        ],
    )
    def test_an_incomplete_answer_is_proven(self, details: Any, reason: str) -> None:
        frames = [*plain()[:-1], ended("incomplete", incomplete_details=details)]
        events = decode(*frames)
        assert events[-1] == Completed()
        assert fold(events).finish_reason == reason

    def test_the_status_of_the_object_counts(self) -> None:
        frame = event(
            "response.completed", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"})
        )
        assert fold(decode(frame)).finish_reason == "length"
        odd = event("response.completed", response=response("odd"))
        assert fold(decode(odd)).finish_reason == "stop"
        bare = event("response.completed")
        assert decode(bare)[-1] == Completed()
        running = event("response.completed", response=response("in_progress"))
        assert decode(running)[-1] == Completed()

    def test_eof_without_the_terminal_event(self) -> None:
        assert isinstance(error_of(*plain()[:-1]), IncompleteStream)
        assert isinstance(error_of(), IncompleteStream)
        cut = b"".join(plain())[:-1]
        assert isinstance(error_of(cut), IncompleteStream)

    def test_eof_counts_as_proof_where_a_quirk_says_so(self) -> None:
        lax = Quirks(done_required=False)
        assert fold(decode(*plain()[:-1], quirks=lax)).finish_assumed
        with_call = [created(), done(0, call("fc_1", "{}"))]
        assert fold(decode(*with_call, quirks=lax)).finish_reason == "tool_calls"
        assert isinstance(error_of(*plain()[:-3], quirks=lax), IncompleteStream)

    def test_nothing_after_the_end_counts(self) -> None:
        assert decode(*plain(), delta(0, "late"), b"garbage\n\n", *plain()) == decode(*plain())

    def test_done_and_keep_alives_and_unknown_events_mean_nothing(self) -> None:
        frames = plain()
        noise = [
            b"data: [DONE]\n\n",
            b": ping\n\n",
            event("keepalive", sequence_number=3),
            event("response.new.thing", x=[1]),
        ]
        assert decode(*noise, *frames[:4], *noise, *frames[4:]) == decode(*frames)
        assert isinstance(error_of(*frames[:-1], b"data: [DONE]\n\n"), IncompleteStream)

    def test_without_event_lines_and_with_every_line_end(self) -> None:
        data = b"".join(plain())
        want = decode(data)
        bare = b"".join(frame.partition(b"\n")[2] for frame in plain())
        assert decode(bare) == want
        for ending in (b"\r\n", b"\r"):
            assert decode(data.replace(b"\n", ending)) == want
        typeless = event("response.output_text.delta", delta="a").replace(
            b'"type": "response.output_text.delta", ', b""
        )
        assert fold(decode(typeless, ended())).parts == (TextPart("a"),)

    def test_usage(self) -> None:
        odd: list[Any] = [{}, {"input_tokens": None}, {"input_tokens": "9"}, [], "x", {"output_tokens_details": 7}]
        for usage in odd:
            assert fold(decode(ended(usage=usage))).usage is None
        short = {"input_tokens": 5.0, "output_tokens": 2, "input_tokens_details": None}
        assert fold(decode(ended(usage=short))).usage == Usage(5, 2)

    def test_a_cut_that_calls_itself_complete_is_noted(self) -> None:
        events = decode(ended(max_output_tokens=3))
        assert [e for e in events if isinstance(e, Noted)]
        assert not [e for e in decode(ended(max_output_tokens=4)) if isinstance(e, Noted)]


class TestErrors:
    def test_failed_with_its_error_inside_and_outside(self) -> None:
        inside = event(
            "response.failed", response=response("failed", error={"code": "server_error", "message": "boom"})
        )
        outside = event(
            "response.failed",
            response=response("failed"),
            error={"message": "boom", "type": "server_error", "code": "upstream_error"},
        )
        for frame in (inside, outside):
            error = error_of(created(), frame)
            assert isinstance(error, ProviderError)
            assert error.message == "boom"
            assert error.status == 502
        assert "without saying which" in error_of(event("response.failed", response=response("failed"))).message

    @pytest.mark.parametrize(
        "frame",
        [
            event("error", code="rate_limit_exceeded", message="slow", param=None, sequence_number=1),
            event("error", error={"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "slow"}),
            event("error", code=None, message=None, error={"code": 429, "message": "slow"}),
            b'data: {"error":{"message":"slow","type":"tokens","code":"rate_limit_exceeded"}}\n\n',
            event(
                "response.failed", response=response("failed", error={"code": "rate_limit_exceeded", "message": "slow"})
            ),
        ],
    )
    def test_error_events_in_every_shape(self, frame: bytes) -> None:
        error = error_of(created(), frame)
        assert isinstance(error, RateLimited)
        assert error.message == "slow"

    def test_other_error_words(self) -> None:
        overflow = error_of(event("error", code="context_length_exceeded", message="too long"))
        assert isinstance(overflow, ContextOverflow)
        assert error_of(b"event: error\ndata: it broke\n\n").message == "it broke"
        assert "without a message" in error_of(b"event: error\ndata: <html></html>\n\n").message
        assert "without a message" in error_of(event("error")).message
        assert error_of(b'data: {"error":"plain words"}\n\n').message == "plain words"

    def test_a_null_error_is_none(self) -> None:
        frames = [frame.replace(b'data: {"type"', b'data: {"error": null, "type"') for frame in plain()]
        assert decode(*frames) == decode(*plain())

    @pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
    def test_a_cancelled_answer(self, status: str) -> None:
        assert "cancelled" in error_of(event("response.cancelled", response=response(status))).message

    @pytest.mark.parametrize(
        "frame",
        [
            b"data: {\n\n",
            b"data: 7\n\n",
            b"data: {}\n\n",
            b"data: \xff\xfe\n\n",
            b'data: {"type":7}\n\n',
            b'data: {"choices":[]}\n\n',
            event("response.output_item.added", output_index=0, item=7),
            event("response.output_item.added", output_index=0),
            event("response.output_item.added", output_index=0, item={"id": "x"}),
            event("response.output_item.added", output_index=0, item={"type": "message", "content": 7}),
            event("response.created", response=[]),
            b"data: " + b"[" * 100_000 + b"\n\n",
        ],
    )
    def test_a_frame_that_is_none(self, frame: bytes) -> None:
        before: list[Event] = decode(*plain()[:6])[:-1]
        events = decode(*plain()[:6], frame, *plain()[6:])
        assert events[: len(before)] == before
        assert isinstance(events[-1], Failed)
        assert isinstance(events[-1].error, InvalidStreamEvent)

    def test_what_came_before_is_evidence(self) -> None:
        folded = Fold()
        folded.feed(decode(*plain()[:6]))
        assert folded.parts() == (TextPart("Hi there"),)
        assert isinstance(folded.error, IncompleteStream)

    def test_a_broken_part_is_no_reason_to_fail(self) -> None:
        odd = event("response.content_part.done", output_index=0, item_id="msg_1", content_index=0, part=7)
        stray = event("response.content_part.done", output_index=5, item_id="x", content_index=0, part=text_part("y"))
        assert fold(decode(*plain()[:6], odd, stray, *plain()[6:])).parts == (TextPart("Hi there"),)

    def test_an_endless_line(self) -> None:
        huge = b"data: " + b"x" * (17 * 1024 * 1024)
        assert isinstance(error_of(huge), InvalidStreamEvent)


def test_argument_deltas_leave_at_once() -> None:
    events = decode(created(), added(0, call("fc_1")), arguments(0, "{"))
    assert [e for e in events if isinstance(e, ArgumentsDelta)] == [ArgumentsDelta(0, "{")]
    assert [type(e) for e in events] == [Started, BlockStarted, ArgumentsDelta, Failed]
