"""Rows about streams, of Mojentic (M-01 to M-14), Blazen (B-01 to B-08) and noris (N-01 to N-06), and section 6 D."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import strom
from strom.client.events import (
    StreamCompleted,
    StreamContent,
    StreamErrorReason,
    StreamEvent,
    StreamThinking,
    StreamToolCall,
    StreamToolResult,
)
from strom.client.failures import StreamFailed, failure_of
from strom.client.media import Audio, Image, Video
from strom.client.options import ModelOptions
from strom.core.errors import AuthError, BadRequest, RateLimited, StromError, TimedOut, Unreachable, Unsupported
from strom.transport.types import TransportFailure
from tests.client.rig import (
    DONE,
    NDJSON,
    Answer,
    Rig,
    call,
    calls_answer,
    chunk,
    completed,
    content,
    failed,
    finish,
    play,
    play_ollama,
    refused,
    said,
    sse,
    text_answer,
    tool_delta,
    unreachable,
)

R = StreamErrorReason


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def test_m01_model_with_provider_and_tracer() -> None:
    tracer = strom.Tracer()
    model = strom.Model("ollama/qwen3:8b", tracer=tracer)
    assert (model.provider, model.model, model.tracer) == ("ollama", "qwen3:8b", tracer)


def test_m02_tools_run_and_the_follow_up_streams() -> None:
    messages = [strom.Message.user("Shout")]
    rig = Rig([calls_answer(call("c1", "shout", '{"text":"hi"}')), text_answer("HI it is")])
    events = rig.play(messages, tools=[shout])
    kinds = [type(event) for event in events]
    assert kinds == [StreamToolCall, StreamToolResult, StreamContent, StreamCompleted]
    assert len(messages) == 1  # the caller's list is his


def test_m03_config_beats_single_arguments() -> None:
    rig = Rig([text_answer()])
    with pytest.warns(DeprecationWarning, match="temperature"):
        rig.play(config=strom.CompletionConfig(temperature=0.1), temperature=0.9)
    assert rig.bodies()[0]["temperature"] == 0.1


def test_m03_single_arguments_alone_do_not_warn() -> None:
    rig = Rig([text_answer()])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rig.play(temperature=0.9, max_tokens=5)
    assert (rig.bodies()[0]["temperature"], rig.bodies()[0]["max_tokens"]) == (0.9, 5)


def test_m04_content_then_exactly_one_terminal_event() -> None:
    rig = Rig([Answer((content("a"), content("b"), finish("stop"), DONE, content("late"), DONE))])
    events = rig.play()
    assert [event.type for event in events] == ["content", "content", "completed"]
    assert len(rig.sent) == 1


def test_m04_events_are_frozen() -> None:
    event = StreamContent("a")
    with pytest.raises(AttributeError):
        event.text = "b"  # type: ignore[misc]


def test_m05_metadata_is_none_where_nothing_was_reported() -> None:
    frame = sse({"id": "", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]})
    metadata = completed(play(frame, DONE)).metadata
    assert (metadata.usage, metadata.provider_model, metadata.response_id, metadata.cost) == (None,) * 4
    assert metadata.finish_reason == "stop"


SEVEN = {
    R.INCOMPLETE_COMPLETION: [Answer((content("a"), finish("length"), DONE))],
    R.INCOMPLETE_STREAM: [Answer((content("a"),))],
    R.PROVIDER_ERROR: [Answer((content("a"), sse({"error": {"message": "x"}})))],
    R.UNEXPECTED_TOOL_CALLS: [Answer((tool_delta(call_id="c", name="f", arguments="{}"),))],
    R.INVALID_STREAM_EVENT: [Answer((b"data: {nonsense\n\n",))],
    R.REQUEST_FAILED: [refused(500)],
}


@pytest.mark.parametrize("reason", SEVEN)
def test_m06_reasons(reason: StreamErrorReason) -> None:
    end = failed(Rig(SEVEN[reason]).play())
    assert end.reason == reason
    assert end.detail
    assert end.metadata.request_duration_ms is not None


def test_m06_stream_events_unsupported_without_a_request() -> None:
    rig = Rig([], model={"quirks": {"never_stream": True}})
    end = failed(rig.play())
    assert end.reason == R.STREAM_EVENTS_UNSUPPORTED
    assert not rig.sent
    assert end.metadata.timing == strom.StreamMetrics()


def test_m06_a_model_that_cannot_stream_gives_whole_replies() -> None:
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}  # fmt: skip
    answer = Answer((json.dumps(body).encode(),), headers=[(b"content-type", b"application/json")])
    rig = Rig([answer], model={"quirks": {"never_stream": True}})
    rig.open(whole=True)
    completed(rig.finish())
    assert rig.bodies()[0]["stream"] is False
    assert rig.run.reply is not None
    assert rig.run.reply.text == "Hi"


def test_m07_unset_values_are_not_sent() -> None:
    rig = Rig([text_answer()])
    rig.play()
    assert rig.bodies()[0].keys() == {"model", "messages", "stream", "stream_options"}


def test_m08_success_is_stop_and_then_done() -> None:
    rig = Rig([text_answer()])
    completed(rig.play())
    assert rig.bodies()[0]["stream_options"] == {"include_usage": True}


def test_m09_ollama_success_is_done_with_its_reason() -> None:
    events = play_ollama(said("Hi"), said("!", done=True, done_reason="stop"))
    assert [event.text for event in events if isinstance(event, StreamContent)] == ["Hi", "!"]
    completed(events)


def test_m10_close_gives_no_further_event_and_keeps_timing() -> None:
    rig = Rig([Answer((content("a"), content("b")), silent=True)])
    rig.open()
    rig.step()
    rig.run.close(rig.now)
    assert rig.finish() == []
    assert rig.let_go == [False]
    assert rig.run.metrics.time_to_first_token_ms == pytest.approx(100)
    assert rig.run.failure is None
    assert rig.run.reply is None


def test_m11_fragments_belong_to_their_index_and_keep_their_ids() -> None:
    first = [
        tool_delta(0, call_id="a", name="shout", arguments=""),
        tool_delta(1, call_id="b", name="shout", arguments=""),
    ]
    rest = [tool_delta(0, arguments='{"te'), tool_delta(1, arguments='{"text":'), tool_delta(0, arguments='xt":"x"}'),
            tool_delta(1, arguments='"y"}')]  # fmt: skip
    rig = Rig([calls_answer(*first, *rest), text_answer()])
    events = rig.play(tools=[shout])
    results = [event for event in events if isinstance(event, StreamToolResult)]
    assert [(event.call_id, event.result) for event in results] == [("a", "X"), ("b", "Y")]
    sent = rig.bodies()[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [item["id"] for item in sent[1]["tool_calls"]] == ["a", "b"]
    assert [message["tool_call_id"] for message in sent[2:]] == ["a", "b"]


def test_m11_id_may_come_after_the_name() -> None:
    rig = Rig([calls_answer(tool_delta(0, name="shout"), tool_delta(0, call_id="late", arguments='{"text":"x"}'))])
    events = rig.play(tools=[shout], run_tools=False)
    calls = [event.call for event in events if isinstance(event, StreamToolCall)]
    assert [(item.name, item.arguments) for item in calls] == [("shout", {"text": "x"})]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_m12_response_format_of_openai() -> None:
    rig = Rig([text_answer()])
    wanted = strom.ResponseFormat("json_object", SCHEMA)
    rig.play(config=strom.CompletionConfig(response_format=wanted))
    sent = rig.bodies()[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["schema"]) == (
        "json_schema",
        "response",
        SCHEMA,
    )


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (strom.ResponseFormat("json_object"), "json"),
        (strom.ResponseFormat("json_object", SCHEMA), SCHEMA),
        (strom.ResponseFormat("text"), None),
    ],
)
def test_m12_response_format_of_ollama(wanted: strom.ResponseFormat, sent: object) -> None:
    rig = Rig([Answer((said("{}", done=True, done_reason="stop"),), headers=NDJSON)], name="ollama/m")
    rig.play(config=strom.CompletionConfig(response_format=wanted))
    assert rig.bodies()[0].get("format") == sent


def test_m12_schema_only_with_json_object() -> None:
    with pytest.raises(BadRequest):
        Rig([]).open(config=strom.CompletionConfig(response_format=strom.ResponseFormat("text", SCHEMA)))


def test_m13_anthropic_streams_here() -> None:
    frames: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"id": "m1", "role": "assistant", "model": "used-1", "content": [], "stop_reason": None,
                                       "type": "message", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 4}}),
        ("message_stop", {}),
    ]  # fmt: skip
    reads = tuple(f"event: {name}\n".encode() + sse({"type": name, **data}) for name, data in frames)
    rig = Rig([Answer(reads)], name="anthropic/claude", model={"api_key": "k"})
    events = rig.play()
    assert events[0] == StreamContent("Hi")
    metadata = completed(events).metadata
    assert (metadata.finish_reason, metadata.finish_reason_raw) == ("stop", "end_turn")
    assert metadata.usage is not None
    assert metadata.usage.output_tokens == 4
    assert (b"x-api-key", b"k") in rig.sent[0].request.headers


def test_m14_omlx_keepalive_never_becomes_the_model() -> None:
    keepalive = sse({"id": "k", "model": "keepalive", "choices": [{"index": 0, "delta": {"content": ""}}]})
    events = play(keepalive, content("Hi"), finish("stop"), DONE)
    assert completed(events).metadata.provider_model == "used-1"
    assert events[0] == StreamContent("Hi")


def test_b01_b02_failure_is_an_exception_with_the_evidence() -> None:
    failure = failure_of(failed(play(content("a"), finish("length"), DONE)))
    assert isinstance(failure, StreamFailed)
    assert (failure.text, failure.reason) == ("a", R.INCOMPLETE_COMPLETION)
    assert failure.stream_metrics.first_token_kind == "content"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(429), RateLimited),
        (refused(401), AuthError),
        (refused(403), AuthError),
        (refused(400), BadRequest),
        (refused(504), TimedOut),
        (unreachable(), Unreachable),
    ],
)
def test_b04_typed_errors_whose_message_is_a_string(answer: Answer, kind: type[StromError]) -> None:
    failure = failure_of(failed(Rig([answer]).play()))
    assert isinstance(failure, kind)
    assert isinstance(failure, StreamFailed)
    assert isinstance(failure.message, str)
    assert failure.message
    assert failure.metadata.attempts[0].outcome == failure.code


def test_b05_empty_key_is_the_providers_variable() -> None:
    rig = Rig([text_answer()], name="openai/gpt", model={"environ": {"OPENAI_API_KEY": "sk-env"}})
    rig.play()
    assert (b"authorization", b"Bearer sk-env") in rig.sent[0].request.headers


def test_b05_no_key_anywhere_is_told_before_a_request() -> None:
    rig = Rig([], name="openai/gpt")
    with pytest.raises(AuthError, match="OPENAI_API_KEY"):
        rig.open()


def test_b06_forward_deltas_or_buffer_them_into_a_result() -> None:
    sink: list[StreamEvent] = []
    rig = Rig([text_answer("one two")])
    rig.open()
    for event in rig.finish():
        sink.append(event)  # a step forwards what it likes
    assert rig.run.reply is not None  # and ends with the folded answer
    assert rig.run.reply.text == "one two"
    assert sink[-1].type == "completed"


def test_b07_agent_loop_until_the_model_answers() -> None:
    answers = [calls_answer(call(f"c{turn}", "shout", '{"text":"x"}')) for turn in range(3)]
    rig = Rig([*answers, text_answer("done")])
    metadata = completed(rig.play(tools=[shout])).metadata
    assert (rig.rounds, metadata.requests) == (3, 4)
    assert metadata.usage is not None
    assert metadata.usage.output_tokens == 28  # of all requests


def test_b08_image_audio_video_on_a_streaming_request() -> None:
    message = strom.Message.user(
        "What is this?",
        Image.from_bytes(b"png", "image/png"),
        Audio.from_bytes(b"wav", "audio/wav"),
        Video.from_url("https://example.org/v.mp4"),
    )
    rig = Rig([text_answer()])
    completed(rig.play(message))
    parts = rig.bodies()[0]["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "input_audio", "video_url"]


def test_b08_what_a_provider_cannot_take_is_refused_before_a_request() -> None:
    rig = Rig([], name="ollama/m")
    with pytest.raises(Unsupported):
        rig.open(strom.Message.user(Video.from_url("https://example.org/v.mp4")))
    with pytest.raises(Unsupported):
        rig.open(strom.Message.user(Audio.from_bytes(b"x", "audio/mpeg")))


def test_n01_any_base_url_with_bearer_and_slashes_in_the_name() -> None:
    options: ModelOptions = {
        "provider": "noris",
        "base_url": "https://ai.example/v1",
        "api_key": "sk",
    }
    rig = Rig([text_answer()], name="vllm/release/gpt-oss-120b", model=options)
    rig.play()
    request = rig.sent[0].request
    assert request.target == "/v1/chat/completions"
    assert (b"authorization", b"Bearer sk") in request.headers
    assert rig.bodies()[0]["model"] == "vllm/release/gpt-oss-120b"


def test_n02_n04_role_and_empty_deltas_are_no_events() -> None:
    events = play(
        chunk({"role": "assistant", "content": ""}), content(""), content("a"), content(""), finish("stop"), DONE
    )
    assert events[:-1] == [StreamContent("a")]


def test_n03_usage_on_the_finish_chunk() -> None:
    last = finish("stop", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})
    assert completed(play(content("a"), last, DONE)).metadata.usage == strom.Usage(1, 2)


def test_n05_after_a_break_the_partial_text_is_evidence() -> None:
    cut = TransportFailure("cut", "reset", sent=True)
    end = failed(Rig([Answer((content("half"),), cut=cut)]).play())
    assert (end.reason, end.metadata.text) == (R.INCOMPLETE_STREAM, "half")


def test_d_thinking_in_tags_split_over_frames() -> None:
    events = play(content("<thi"), content("nk>hm</th"), content("ink>yes"), finish("stop"), DONE)
    assert [event for event in events[:-1] if isinstance(event, StreamThinking)] == [StreamThinking("hm")]
    assert [event for event in events[:-1] if isinstance(event, StreamContent)] == [StreamContent("yes")]


def test_d_length_while_reasoning_says_so() -> None:
    end = failed(play(chunk({"reasoning_content": "hm"}), finish("length"), DONE))
    assert "reasoning" in end.detail
    assert end.metadata.thinking == "hm"


def test_l04_a_missing_terminator_is_never_success() -> None:
    for reads in ((content("a"),), (content("a"), finish("stop")), ()):
        assert failed(play(*reads)).reason == R.INCOMPLETE_STREAM
