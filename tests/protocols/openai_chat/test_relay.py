"""A relayed Chat stream: bytes stay bytes, and single frames are repaired."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.core.errors import BadRequest, IncompleteCompletion, IncompleteStream, InvalidStreamEvent, ProviderError
from strom.core.usage import Usage
from strom.protocols.codec import Quirks
from strom.protocols.openai_chat.relay import ChatRelay
from tests.protocols.openai_chat.frames import (
    BLOCK,
    DONE,
    USAGE,
    bare,
    call,
    chunk,
    context,
    data,
    legal_relay,
    relay,
    role,
    stop,
    text,
    thinking,
    usage,
)

PLAIN = [role(), text("Hel"), text("lo"), text(" you")]


def exact(frames: list[bytes], **options: Any) -> None:
    out, _ = relay(frames, **options)
    assert out == b"".join(frames)


def test_a_legal_stream_is_relayed_byte_for_byte() -> None:
    exact([*PLAIN, stop(), DONE])
    exact([*PLAIN, stop(), usage(), DONE], asked=True)
    exact([*PLAIN, stop(usage=USAGE), DONE])
    exact([b": hi\n\n", *PLAIN, thinking("x"), b":\n\n", stop("length"), DONE])
    exact([frame.replace(b"data: ", b"data:").replace(b"\n", b"\r\n") for frame in (*PLAIN, stop())] + [DONE])


def test_unknown_fields_survive_a_repair() -> None:
    odd = chunk({"role": "assistant", "content": "x", "x_delta": {"b": 1.50}}, x_chunk=[1, None])
    out, _ = relay([role(), odd, stop(), DONE])
    assert b'"x_delta":{"b":1.5}' in out
    assert b'"x_chunk":[1,null]' in out
    assert out.count(b'"role"') == 1


def test_each_delta_leaves_with_its_read() -> None:
    relayed = ChatRelay(context(), Quirks())
    assert [relayed.feed(frame) for frame in PLAIN] == PLAIN
    assert relayed.feed(stop()) == b""
    assert relayed.feed(DONE) == stop() + DONE


def test_evidence() -> None:
    frames = [role(), thinking("hm"), text("a"), text("bc"), stop(), usage(), DONE]
    _, relayed = relay(frames)
    seen = relayed.evidence
    assert (seen.response_id, seen.model, seen.first_token_kind) == ("chatcmpl-u", "m", "thinking")
    assert (seen.deltas, seen.output_characters, seen.usage) == (3, 5, Usage(9, 3))
    assert (seen.finish_reason, seen.finish_raw, seen.complete, seen.error) == ("stop", "stop", True, None)


def test_content_as_a_list_counts_and_passes() -> None:
    pieces = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "thinking", "thinking": "!"}]
    frames = [role(), chunk({"content": [*pieces, {"type": "text", "text": "so"}]}), stop(), DONE]
    exact(frames)
    _, relayed = relay(frames)
    assert (relayed.evidence.first_token_kind, relayed.evidence.output_characters) == ("thinking", 5)


def test_the_fast_path_counts_as_the_slow_one() -> None:
    frames = [*PLAIN, text('é\n"x"'), text("more"), stop(), DONE]
    whole, by_frame = relay([b"".join(frames)]), relay(frames)
    assert whole[0] == by_frame[0] == b"".join(frames)
    for name in ("deltas", "output_characters", "first_token_kind"):
        assert getattr(whole[1].evidence, name) == getattr(by_frame[1].evidence, name)


# --- the end -------------------------------------------------------------------------------------------


def test_the_block_rides_on_the_last_frame_after_the_evidence_is_complete() -> None:
    made = context()
    relayed = ChatRelay(made, Quirks())
    made.block = lambda: json.dumps({"complete": relayed.evidence.complete}).encode()
    out = b"".join(map(relayed.feed, [*PLAIN, stop(), DONE]))
    assert out.endswith(b'"finish_reason":"stop"}],"strom":{"complete": true}}\n\n' + DONE)
    seen, _ = legal_relay([*PLAIN, stop(), usage(), DONE], asked=True, block=BLOCK)
    assert seen.chunks[-1]["strom"] == {"complete": True}
    assert seen.chunks[-1]["choices"] == []


def test_the_block_has_the_name_it_is_given() -> None:
    out, _ = relay([*PLAIN, stop(), DONE], block=BLOCK, block_name="other")
    assert b'"other":{"complete":true}' in out


def test_an_end_without_proof_puts_nothing_out() -> None:
    for frames, error in (
        ([*PLAIN, stop()], IncompleteStream),
        (PLAIN, IncompleteStream),
        ([*PLAIN, DONE], IncompleteCompletion),
        ([*PLAIN, b"data: {\n\n", stop(), DONE], InvalidStreamEvent),
        ([*PLAIN, b"data: 7\n\n", stop(), DONE], InvalidStreamEvent),
        ([*PLAIN, data({"error": {"message": "boom"}}), DONE], ProviderError),
        ([*PLAIN, data({"error": {"message": "no", "code": 400}}), DONE], BadRequest),
        ([*PLAIN, b"event: error\ndata: boom\n\n", DONE], ProviderError),
        ([*PLAIN, b"data: " + b"x" * (16 * 1024 * 1024), b"y"], InvalidStreamEvent),
    ):
        relayed = ChatRelay(context(block=BLOCK), Quirks())
        out = b"".join(relayed.feed(frame) for frame in frames) + relayed.finish()
        assert out == b"".join(PLAIN)
        assert isinstance(relayed.evidence.error, error)
        assert not relayed.evidence.complete
        assert relayed.feed(text("ghost")) == relayed.finish() == b""


def test_the_error_frame() -> None:
    relayed = ChatRelay(context(), Quirks())
    frame = relayed.fail(ProviderError("It broke."))
    error = {"message": "It broke.", "type": "upstream_error", "param": None, "code": "upstream_error"}
    assert json.loads(frame[6:]) == {"error": error}
    assert relayed.heartbeat() == b": keep-alive\n\n"


@pytest.mark.parametrize("tail", [b"data: [DONE]", b"data:[DONE] \n\n"])
def test_the_terminator_goes_out_whole(tail: bytes) -> None:
    out, relayed = relay([*PLAIN, stop(), tail])
    assert out == b"".join(PLAIN) + stop() + DONE
    assert relayed.evidence.complete


def test_quirk_done_not_required() -> None:
    out, _ = relay([*PLAIN, stop()], quirks=Quirks(done_required=False))
    assert out == b"".join(PLAIN) + stop() + DONE
    _, relayed = relay(PLAIN, quirks=Quirks(done_required=False))
    assert isinstance(relayed.evidence.error, IncompleteStream)


def test_quirk_finish_reason_not_required() -> None:
    quirks = Quirks(finish_reason_required=False)
    seen, relayed = legal_relay([*PLAIN, DONE], quirks=quirks)
    assert (seen.finish, relayed.evidence.finish_reason, relayed.evidence.finish_assumed) == ("stop", "stop", True)
    seen, _ = legal_relay(
        [role(), call(index=0, id="c", type="function", name="f", arguments="{}"), DONE], quirks=quirks
    )
    assert seen.finish == "tool_calls"
    seen, _ = legal_relay([DONE], quirks=quirks)
    assert seen.finish == "stop"
    other = bare(choices=[{"index": 1, "delta": {"content": "B"}, "finish_reason": None}])
    seen, relayed = legal_relay([text("A"), other, stop("length"), DONE], quirks=quirks)
    assert (seen.finish, relayed.evidence.finish_reason) == ("length", "length")


def test_the_last_reason_wins_and_nothing_follows_the_terminator() -> None:
    seen, relayed = legal_relay([*PLAIN, stop(), stop("length"), DONE, text("ghost"), DONE])
    assert (seen.finish, seen.text, relayed.evidence.finish_reason) == ("length", "Hello you", "length")


def test_text_and_reason_in_one_frame_are_two() -> None:
    both = chunk({"content": "x"}, "stop", choice={"stop_reason": "END", "token_ids": [1]}, usage=USAGE)
    seen, relayed = legal_relay([role(), both, DONE])
    assert [c["choices"][0]["delta"] for c in seen.chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "x"},
        {},
    ]
    assert (seen.finish, seen.usage) == ("stop", USAGE)
    assert relayed.evidence.finish_reason == "stop_sequence"
    relayed = ChatRelay(context(), Quirks())
    assert b'"content":"x"' in relayed.feed(both)


def test_several_choices_have_their_own_finish() -> None:
    def choice(index: int, content: str = "", reason: str | None = None) -> dict[str, Any]:
        return {"index": index, "delta": {"content": content}, "finish_reason": reason}

    frames = [
        bare(choices=[choice(0, "A"), choice(1, "B")]),
        bare(choices=[choice(0, "1", "stop"), choice(1, "2")]),
        bare(choices=[choice(0), choice(1, "", "length")]),
        DONE,
    ]
    out, relayed = relay(frames)
    texts, reasons = ["", ""], ["", ""]
    for line in out.split(b"\n\n")[:-2]:
        for one in json.loads(line[6:])["choices"]:
            texts[one["index"]] += one["delta"].get("content") or ""
            reasons[one["index"]] += one["finish_reason"] or ""
    assert (texts, reasons) == (["A1", "B2"], ["stop", "length"])
    assert relayed.evidence.complete
    both = [bare(choices=[choice(0, "", "stop"), choice(1, "", "stop")]), DONE]
    assert relay([frames[0], *both])[1].evidence.complete
    _, relayed = relay([frames[0], bare(choices=[choice(1, "", "stop")]), DONE])
    assert isinstance(relayed.evidence.error, IncompleteCompletion)


# --- usage ---------------------------------------------------------------------------------------------


def test_usage_nobody_asked_for_rides_on_the_finish_frame() -> None:
    running = chunk({"content": "a"}, usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10})
    for frames in ([text("a"), stop(), usage(), DONE], [running, running, stop(usage=USAGE), DONE]):
        seen, relayed = legal_relay([role(), *frames])
        assert seen.usage == USAGE
        assert relayed.evidence.usage == Usage(9, 3)


def test_usage_that_was_asked_for_has_the_last_frame() -> None:
    running = chunk({"content": "a"}, usage=USAGE)
    for frames in (
        [text("a"), stop(usage=USAGE), usage(), DONE],
        [running, stop(usage=USAGE), DONE],
        [text("a"), stop(), bare(choices=..., usage=USAGE), DONE],
        [text("a"), stop(), bare(choices=[], usage=USAGE, object="chat.completion"), DONE],
        [text("a"), usage(completion_tokens=1, total_tokens=10), stop(usage=USAGE), DONE],
        [text("a"), usage(completion_tokens=1, total_tokens=10), stop(), usage(), DONE],
    ):
        seen, _ = legal_relay([role(), *frames], asked=True)
        assert seen.usage == USAGE


def test_usage_that_nobody_reported_is_estimated() -> None:
    seen, relayed = legal_relay([*PLAIN, stop(), DONE], asked=True, input_estimate=5)
    assert seen.usage == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert relayed.evidence.usage is None
    seen, _ = legal_relay([*PLAIN, stop(usage={}), DONE], asked=True)
    assert seen.usage["completion_tokens"] == 3


def test_numbers_that_are_missing_are_added() -> None:
    seen, _ = legal_relay([*PLAIN, stop(usage={"prompt_tokens": 9, "completion_tokens": 3, "x": 1}), DONE])
    assert seen.usage == {**USAGE, "x": 1}


def test_running_usage_that_was_asked_for_stays() -> None:
    running = chunk({"content": "a"}, usage=USAGE)
    frames = [role(), running, chunk({"content": "b"}, "stop", usage=USAGE), usage(), DONE]
    out, _ = relay(frames, asked=True, continuous_usage=True)
    assert running in out
    assert out.count(b'"usage":{') == 4
    exact([role(), running, stop(usage=USAGE), usage(), DONE], asked=True, continuous_usage=True)


def test_usage_of_several_choices_goes_on_the_last_finish() -> None:
    other = [bare(choices=[{"index": 1, "delta": {}, "finish_reason": "stop"}], usage=USAGE)]
    seen, _ = legal_relay([text("A"), stop(usage=USAGE), *other, DONE])
    assert seen.usage == USAGE


# --- repairs -------------------------------------------------------------------------------------------


def test_the_role_is_said_once() -> None:
    frames = [chunk({"role": "assistant", "content": word}) for word in ("a", "b", '"c"', "d")]
    seen, _ = legal_relay([*frames, chunk({"role": "assistant"}, "stop"), DONE])
    assert seen.text == 'ab"c"d'
    assert relay([*frames, stop(), DONE])[0] == relay([b"".join(frames) + stop() + DONE])[0]


def test_a_foreign_reasoning_field_gets_the_usual_one_beside_it() -> None:
    frames = [chunk({"reasoning": word}) for word in ("a", "b", "c")]
    out, _ = relay([role(), *frames, text("x"), stop(), DONE])
    assert b'"delta":{"reasoning":"c","reasoning_content":"c"}' in out
    assert relay([role() + b"".join(frames) + text("x") + stop() + DONE])[0] == out


def test_a_word_that_is_also_a_member_is_not_taken_for_text() -> None:
    frames = [role(), *(chunk({"reasoning": word}) for word in ("reasoning_content", "next", "m", "other"))]
    out, _ = relay([*frames, stop(), DONE])
    assert b'"reasoning":"other","reasoning_content":"other"' in out


def test_the_envelope_is_completed() -> None:
    frames = [
        data({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}),
        data({"id": 5, "created": "1760000000", "model": None, "choices": [{"index": 0, "delta": {"content": "a"}}]}),
        bare(choices=[{"index": 0, "delta": None, "finish_reason": None}]),
        data({"choices": [{"index": 0, "finish_reason": "stop"}]}),
        DONE,
    ]
    seen, _ = legal_relay(frames)
    assert {(c["id"], c["model"]) for c in seen.chunks} == {("chatcmpl-r1", "alias")}
    assert [c["created"] for c in seen.chunks] == [1750000000, 1760000000, 1760000000, 1750000000]


def test_frames_without_choices() -> None:
    vendor = bare(choices=[], prompt_filter_results=[])
    seen, _ = legal_relay([vendor, role(), bare(choices=None), bare(choices=...), text("a"), stop(), DONE])
    assert seen.text == "a"
    assert seen.chunks[0]["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert len(seen.chunks) == 4
    exact([vendor, role(), text("a"), stop(), usage(), DONE], asked=True)


def test_what_is_no_event_for_a_client_is_left_out() -> None:
    frames = [
        b"retry: 3000\n\n",
        b"data:\n\n",
        b"event: ping\n\n",
        b"id: 1\n" + role(),
        b": note\n" + text("a"),
        chunk({"role": "assistant"}, model="keepalive"),
        data({"type": "ping"}),
        stop(),
        DONE,
    ]
    out, _ = relay(frames)
    assert out == role() + b": note\n" + text("a") + stop() + DONE


def test_what_is_not_understood_passes_on() -> None:
    odd = chunk({"content": {"new": 1}})
    stranger = data({"hello": 1})
    exact([role(), odd, stranger, stop(), DONE])


@pytest.mark.parametrize("told", ["Overloaded", {"message": "Overloaded", "type": "server_error"}])
def test_an_error_in_what_is_not_understood_is_an_error(told: object) -> None:
    """The client would take it for one: success may not follow."""
    frame = data({"id": True, "object": "chat.completion.chunk", "error": told})
    out, relayed = relay([role(), text("a"), frame, stop(), DONE])
    assert out == role() + text("a") + relayed.fail(ProviderError("Overloaded"))
    assert isinstance(relayed.evidence.error, ProviderError)
    exact([role(), data({"id": True, "error": None}), stop(), DONE])


@pytest.mark.parametrize("rest", [b"}", b'"x": ' + b"[" * 100_000])
def test_what_is_not_understood_has_to_be_json_to_its_end(rest: bytes) -> None:
    _, relayed = relay([role(), b'data: {"id": true, ' + rest + b"\n\n", stop(), DONE])
    assert isinstance(relayed.evidence.error, InvalidStreamEvent)


def test_json_on_several_lines_passes_and_is_joined_when_the_block_rides_on_it() -> None:
    spread = b'data: {"id":"chatcmpl-u","object":"chat.completion.chunk",\ndata: "created":1,"model":"m",\n'
    last = spread + b'data: "choices":[{"index":0,\ndata: "delta":{},"finish_reason":"stop"}]}\n\n'
    exact([role(), last, DONE])
    out, _ = relay([role(), last, DONE], block=BLOCK)
    assert out.count(b"\n") == 6
    assert b'"strom":{"complete":true}}' in out


def test_broken_arguments_are_an_error() -> None:
    broken = call(index=0, id="c", type="function", name="f", arguments="XX").replace(b"XX", b"\xff")
    _, relayed = relay([role(), broken, stop(), DONE])
    assert isinstance(relayed.evidence.error, InvalidStreamEvent)


@pytest.mark.parametrize("broken", [b"\xff", b"\\ud83d"])
def test_a_field_nobody_reads_may_not_be_broken(broken: bytes) -> None:
    for frame in (stop(usage={**USAGE, "XX": 1}), stop(XX=1), chunk({"content": "a"}, usage={**USAGE, "XX": 1})):
        out, relayed = relay([role(), frame.replace(b"XX", broken), DONE])
        assert isinstance(relayed.evidence.error, InvalidStreamEvent)
        assert out.startswith(role())


# --- reasoning as the deployment wants it --------------------------------------------------------------

THOUGHT = [role(), thinking("h"), thinking("m"), text("so"), text("!"), stop(), DONE]


def test_reasoning_can_be_left_out() -> None:
    seen, relayed = legal_relay(THOUGHT, reasoning="drop")
    assert (seen.reasoning, seen.text) == ("", "so!")
    assert relayed.evidence.first_token_kind == "thinking"


def test_reasoning_can_go_out_as_text() -> None:
    seen, _ = legal_relay(THOUGHT, reasoning="text")
    assert (seen.reasoning, seen.text) == ("", "<think>\nhm\n</think>\n\nso!")
    seen, _ = legal_relay([role(), chunk({"reasoning": "a", "content": "b"}), stop(), DONE], reasoning="text")
    assert seen.text == "<think>\na\n</think>\n\nb"
    seen, _ = legal_relay([role(), thinking("a"), stop(), DONE], reasoning="text")
    assert seen.text == "<think>\na\n</think>\n\n"
    listed = chunk({"content": [{"type": "text", "text": "x"}]})
    assert listed in relay([role(), listed, stop(), DONE], reasoning="text")[0]
