"""Responses to Responses: what passes untouched, what is repaired, what is added."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import IncompleteStream, InvalidStreamEvent, ProviderError, StromError
from strom.protocols.codec import Quirks
from strom.protocols.openai_responses import CODEC
from strom.protocols.openai_responses.relay import Relay
from tests.grammar import openai_responses as grammar
from tests.protocols.openai_responses.frames import (
    USAGE,
    added,
    arguments,
    call,
    context,
    created,
    delta,
    done,
    ended,
    event,
    message,
    numbered,
    part_added,
    plain,
    request,
    response,
    summary,
    text_part,
)


def new_relay(quirks: Quirks | None = None, **changes: Any) -> Relay:
    relay = CODEC.relay(context(**changes), quirks or Quirks())
    assert isinstance(relay, Relay)
    return relay


def relay_frames(*frames: bytes, **changes: Any) -> tuple[bytes, Relay]:
    relay = new_relay(**changes)
    out = b"".join(relay.feed(frame) for frame in frames)
    return out + relay.finish(), relay


def split_frames(data: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in data.split(b"\n\n")[:-1]]


def data_of(frame: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(frame.partition(b"data: ")[2])
    return data


def of_one_message(text: str, *deltas: bytes) -> list[bytes]:
    """A whole, legal stream of one message with these deltas."""
    head, tail = plain(text)[:4], plain(text)[-4:]
    return split_frames(numbered(head[0], *head[2:], *deltas, *tail))


def off() -> None:
    return None


class TestUntouched:
    def test_a_legal_stream_with_the_block_off_passes_byte_for_byte(self) -> None:
        frames = split_frames(numbered(*plain()))
        out, relay = relay_frames(*frames, block=off)
        assert out == b"".join(frames)
        assert relay.evidence.complete
        assert json.loads(relay.response)["status"] == "completed"

    def test_only_the_terminal_event_gets_the_block(self) -> None:
        frames = split_frames(numbered(*plain()))
        out, _ = relay_frames(*frames)
        assert out.startswith(b"".join(frames[:-1]))
        last = data_of(split_frames(out)[-1])
        assert last["response"].pop("strom") == {"complete": True}
        assert last == data_of(frames[-1])

    def test_the_evidence_is_complete_before_the_block_is_asked_for(self) -> None:
        def block() -> bytes:
            assert relay.evidence.complete
            assert relay.evidence.usage is not None
            return b'{"asked":1}'

        relay = new_relay(block=block)
        assert b'"strom":{"asked":1}' in relay.feed(numbered(*plain()))

    def test_unknown_events_members_comments_and_layouts_pass(self) -> None:
        odd = [
            event("response.new.thing", x={"y": 1}),
            event("response.output_item.added", output_index=9, item={"type": "message", "content": 7}),
            event("keepalive"),
        ]
        frames = split_frames(numbered(*plain()[:4], *odd, *plain()[4:]))
        frames.insert(2, b": comment\n\n")
        frames.insert(5, b"event: response.x\nid: 7\n\n")
        out, relay = relay_frames(*frames, block=off)
        assert out == b"".join(frames)
        assert relay.evidence.deltas == 2

    def test_line_ends_of_the_upstream_stay(self) -> None:
        data = numbered(*plain()).replace(b"\n", b"\r\n")
        assert relay_frames(data, block=off)[0] == data

    def test_evidence(self) -> None:
        thought = {"id": "rs_1", "type": "reasoning", "summary": []}
        frames = [created(), added(0, thought), summary(0, "hm"), summary(0, "!"), done(0, thought)]
        frames += [added(1, call("fc_1")), arguments(1, "{}"), done(1, call("fc_1", "{}")), ended()]
        _, relay = relay_frames(*split_frames(numbered(*frames)))
        evidence = relay.evidence
        assert (evidence.response_id, evidence.model, evidence.first_token_kind) == ("resp_1", "gpt-x", "thinking")
        assert (evidence.deltas, evidence.output_characters, evidence.tool_calls) == (3, 5, 1)
        assert (evidence.finish_reason, evidence.finish_raw) == ("tool_calls", "completed")
        assert evidence.usage is not None
        assert evidence.usage.input_tokens == 9

    def test_the_quick_way_counts_the_same(self) -> None:
        texts = ["a", "bc", "d\ne", "f", "\u20ac", "g"]
        pieces = of_one_message("".join(texts), *(delta(0, text) for text in texts))
        out, relay = relay_frames(*pieces, block=off)
        whole, blind = relay_frames(b"".join(pieces), block=off)
        assert out == whole == b"".join(pieces)
        assert relay.evidence.output_characters == blind.evidence.output_characters == len("".join(texts))
        assert relay.evidence.deltas == blind.evidence.deltas == len(texts)


class TestNumbers:
    @pytest.mark.parametrize("at", range(1, 10))
    def test_a_heartbeat_shifts_later_events(self, at: int) -> None:
        frames = split_frames(numbered(*plain("some longer text")))
        relay = new_relay()
        out = b"".join(relay.feed(frame) for frame in frames[:at]) + relay.heartbeat()
        out += b"".join(relay.feed(frame) for frame in frames[at:])
        seen = grammar.read(out, strict=False)
        assert seen.keepalives == 1
        assert seen.text("output_text") == "some longer text"

    def test_the_quick_way_renumbers(self) -> None:
        deltas = [delta(0, text) for text in ("a", "b\n", '"c', "d", "e")]
        frames = of_one_message('ab\n"cde', *deltas)
        relay = new_relay()
        out = relay.feed(frames[0]) + relay.heartbeat() + b"".join(map(relay.feed, frames[1:]))
        numbers = [data_of(frame)["sequence_number"] for frame in split_frames(out)]
        assert numbers == list(range(len(frames) + 1))
        assert [data_of(f).get("delta") for f in split_frames(out)][4:9] == ["a", "b\n", '"c', "d", "e"]
        assert relay.evidence.output_characters == 7

    def test_padding_survives_renumbering(self) -> None:
        deltas = [
            delta(0, text).replace(b"}\n", b', "obfuscation": "%b"}\n' % padding)
            for text, padding in (("a", b"xY1"), ("b", b"Zz9z"), ("c", b"q"))
        ]
        frames = of_one_message("abc", *deltas)
        untouched, _ = relay_frames(*frames, block=off)
        assert untouched == b"".join(frames)
        relay = new_relay()
        out = relay.feed(frames[0]) + relay.heartbeat() + b"".join(map(relay.feed, frames[1:]))
        assert [data_of(f).get("obfuscation") for f in split_frames(out)][4:7] == ["xY1", "Zz9z", "q"]

    def test_before_the_beginning_a_heartbeat_is_a_comment(self) -> None:
        relay = new_relay(block=off)
        assert relay.heartbeat() == b": keep-alive\n\n"
        data = numbered(*plain())
        assert relay.feed(data) == data
        assert relay.heartbeat() == b""

    def test_missing_and_wrong_numbers_are_put_right(self) -> None:
        bare = [frame.replace(b"logprobs", b"logprobs") for frame in plain()]
        seen = grammar.read(relay_frames(*bare)[0])
        assert seen.text("output_text") == "Hi there"
        wrong = [
            frame.replace(b'"sequence_number": 5', b'"sequence_number": 50')
            for frame in split_frames(numbered(*plain()))
        ]
        grammar.read(relay_frames(*wrong)[0])


class TestRepairs:
    def test_event_lines_indices_and_logprobs(self) -> None:
        finished = message("msg_1", text_part("ab"))
        second = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}
        frames = [
            created(),
            event("response.output_item.added", item=message()),
            event("response.content_part.added", item_id="msg_1", part=text_part("")),
            event("response.output_text.delta", item_id="msg_1", delta="a"),
            event("response.output_text.delta", item_id="msg_1", delta="b"),
            event("response.content_part.done", item_id="msg_1", part=text_part("ab")),
            event("response.output_item.done", item=finished),
            event("response.output_item.added", item={**second, "summary": []}),
            event("response.reasoning_summary_part.added", item_id="rs_1", part={"type": "summary_text", "text": ""}),
            event("response.reasoning_summary_text.delta", item_id="rs_1", delta="s"),
            event("response.reasoning_summary_part.done", item_id="rs_1", part=second["summary"][0]),
            event("response.output_item.done", item=second),
            ended(output=[finished, second]),
        ]
        bare = [frame.partition(b"\n")[2] for frame in frames]
        out, _ = relay_frames(*bare)
        seen = grammar.read(out)
        assert seen.text("output_text") == "ab"
        assert seen.text("reasoning_summary_text") == "s"
        assert relay_frames(b"".join(bare))[0] == out

    def test_a_type_that_stands_in_the_event_line_only(self) -> None:
        frame = event(
            "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="a", logprobs=[]
        )
        bare = frame.replace(b'"type": "response.output_text.delta", ', b"")
        assert bare != frame
        out, _ = relay_frames(created(), added(0, message()), part_added(0), bare)
        assert data_of(split_frames(out)[3])["type"] == "response.output_text.delta"

    def test_a_short_beginning_is_filled_up(self) -> None:
        short = event("response.created", response={"id": "resp_7", "object": "response", "status": "in_progress"})
        out, _ = relay_frames(short, event("response.in_progress"))
        first, second = (data_of(frame)["response"] for frame in split_frames(out))
        assert (first["id"], first["model"], first["created_at"]) == ("resp_7", "client-model", 1_760_000_000)
        assert first["output"] == []
        assert second["id"] == "resp_7"

    def test_a_beginning_that_is_none_is_put_right_unobserved(self) -> None:
        out, relay = relay_frames(event("response.created", response=[]), *plain()[1:])
        assert data_of(split_frames(out)[0])["response"]["output"] == []
        assert relay.evidence.complete

    @pytest.mark.parametrize(
        ("usage", "wanted"),
        [
            (None, (7, 2)),
            ({}, (7, 2)),
            ({"input_tokens": 5}, (5, 2)),
            ({"input_tokens": 5, "output_tokens": 4}, (5, 4)),
            ({**USAGE, "input_tokens_details": {}}, (9, 3)),
            ({**USAGE, "output_tokens_details": 7}, (9, 3)),
            ("broken", (7, 2)),
        ],
    )
    def test_usage_is_always_whole(self, usage: Any, wanted: tuple[int, int]) -> None:
        out, relay = relay_frames(*plain()[:-1], ended(usage=usage, output=[message("msg_1", text_part("Hi there"))]))
        seen = grammar.read(out)
        assert (seen.response["usage"]["input_tokens"], seen.response["usage"]["output_tokens"]) == wanted
        assert relay.evidence.usage is None or relay.evidence.usage.input_tokens == wanted[0]

    def test_output_that_the_terminal_event_lacks(self) -> None:
        outputs: list[Any] = [[], None]
        for output in outputs:
            seen = grammar.read(relay_frames(*plain()[:-1], ended(output=output))[0])
            assert seen.response["output"] == [message("msg_1", text_part("Hi there"))]

    def test_a_terminal_event_without_anything(self) -> None:
        for kind in ("completed", "incomplete"):
            out, _ = relay_frames(*plain()[:-1], event(f"response.{kind}"))
            assert grammar.read(out).response["status"] == kind

    def test_a_foreign_end_marker_is_dropped(self) -> None:
        out, _ = relay_frames(b"data: [DONE]\n\n", *split_frames(numbered(*plain())), b"data: [DONE]\n\n", block=off)
        assert out == numbered(*plain())

    def test_data_on_several_lines_is_joined_when_it_is_rewritten(self) -> None:
        frames = plain()
        frames[4] = frames[4].replace(b', "output_index"', b',\ndata: "output_index"')
        assert grammar.read(relay_frames(*frames)[0]).text("output_text") == "Hi there"


class TestEnds:
    def test_incomplete_is_passed_on(self) -> None:
        details = {"reason": "max_output_tokens"}
        out, relay = relay_frames(*plain()[:-1], ended("incomplete", incomplete_details=details))
        assert grammar.read(out).types[-1] == "response.incomplete"
        assert relay.evidence.finish_reason == "length"

    def test_eof_without_proof_is_for_the_gateway_to_word(self) -> None:
        frames = split_frames(numbered(*plain()))[:-1]
        out, relay = relay_frames(*frames)
        assert out == b"".join(frames)
        assert isinstance(relay.evidence.error, IncompleteStream)
        seen = grammar.read(out + relay.fail(relay.evidence.error))
        assert seen.types[-2:] == ["error", "response.failed"]
        assert seen.response["id"] == "resp_1"
        assert seen.response["output"][0]["content"][0]["text"] == "Hi there"
        assert relay.feed(b"".join(plain())) == b""
        assert relay.finish() == b""

    def test_eof_as_proof_by_quirk(self) -> None:
        for frames, kind in ((plain()[:-1], "completed"),):
            relay = new_relay(Quirks(done_required=False))
            out = b"".join(map(relay.feed, frames)) + relay.finish()
            seen = grammar.read(out)
            assert seen.types[-1] == f"response.{kind}"
            assert seen.response["strom"] == {"complete": True}
            assert relay.evidence.finish_assumed

    @pytest.mark.parametrize(
        ("frame", "kind"),
        [
            (event("error", message="boom", code="server_error"), ProviderError),
            (
                event("response.failed", response=response("failed", error={"message": "boom", "code": "x"})),
                ProviderError,
            ),
            (b'data: {"error":{"message":"boom"}}\n\n', ProviderError),
            (b"data: {boom\n\n", InvalidStreamEvent),
            (event("response.completed", response=[]), InvalidStreamEvent),
        ],
    )
    def test_an_error_is_not_passed_on(self, frame: bytes, kind: type[StromError]) -> None:
        frames = split_frames(numbered(*plain()[:5]))
        out, relay = relay_frames(*frames, frame, *plain())
        assert out == b"".join(frames)
        assert isinstance(relay.evidence.error, kind)
        seen = grammar.read(out + relay.fail(relay.evidence.error))
        assert seen.error is not None
        assert seen.response["status"] == "failed"

    def test_failure_before_anything(self) -> None:
        relay = new_relay()
        seen = grammar.read(relay.fail(ProviderError("x")), strict=False)
        assert seen.response["id"] == "resp_r1"

    def test_a_limit_that_was_reached_is_noted(self) -> None:
        out, relay = relay_frames(*plain(), request=request(max_output_tokens=3))
        assert grammar.read(out)
        assert any("output limit" in note for note in relay.evidence.notes)


def test_items_are_counted_from_nought_by_one() -> None:
    """transformers serve 5.24 gives a call and the empty message behind it one index, 1; openai-python fails on that."""
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "f",
        "arguments": "{}",
        "status": "completed",
    }
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    frames = [
        event("response.created", response=response("in_progress")),
        event("response.output_item.added", output_index=1, item={**call, "arguments": ""}),
        event("response.function_call_arguments.done", item_id="fc_1", output_index=1, arguments="{}", name="f"),
        event("response.output_item.done", output_index=1, item=call),
        event("response.output_item.added", output_index=1, item=message),
        event("response.output_item.done", output_index=1, item=message),
        event("response.completed", response=response("completed", output=[message, call])),
    ]
    out, relay = relay_frames(*frames)
    told = [data_of(frame) for frame in split_frames(out) if b'"output_index"' in frame]
    indices = {each["item_id"] if "item_id" in each else each["item"]["id"]: each["output_index"] for each in told}
    assert indices == {"fc_1": 0, "msg_1": 1}
    assert relay.evidence.tool_calls == 1
