"""The thirty golden vectors (source-features.md section 8): what each stream must amount to. `C` is a content event."""

from __future__ import annotations

import pytest

from strom.client.async_model import AsyncModel
from strom.client.events import StreamCompleted, StreamContent, StreamError, StreamErrorReason, StreamThinking
from strom.core.errors import ContextOverflow
from tests.client.rig import (
    DONE,
    NDJSON,
    Answer,
    Rig,
    chunk,
    completed,
    content,
    failed,
    finish,
    line,
    play,
    play_ollama,
    said,
    sse,
    text_answer,
    tool_delta,
    usage,
)

R = StreamErrorReason
HI = content("Hi")
C = StreamContent("Hi")


def test_vector_01_content_stop_usage_done() -> None:
    events = play(HI, finish("stop"), usage(), DONE)
    assert events[:-1] == [C]
    metadata = completed(events).metadata
    assert metadata.usage is not None
    assert (metadata.usage.input_tokens, metadata.usage.output_tokens) == (5, 7)
    assert (metadata.finish_reason, metadata.provider_model) == ("stop", "used-1")


def test_vector_02_content_length_done() -> None:
    events = play(HI, finish("length"), DONE)
    end = failed(events)
    assert events[:-1] == [C]
    assert end.reason == R.INCOMPLETE_COMPLETION
    assert (end.metadata.finish_reason, end.metadata.provider_model) == ("length", "used-1")


def test_vector_03_content_stop_eof() -> None:
    events = play(HI, finish("stop"))
    end = failed(events)
    assert events[:-1] == [C]
    assert end.reason == R.INCOMPLETE_STREAM
    assert (end.metadata.finish_reason, end.metadata.provider_model) == ("stop", "used-1")


def test_vector_04_content_done_without_finish() -> None:
    events = play(HI, DONE)
    end = failed(events)
    assert events[:-1] == [C]
    assert end.reason == R.INCOMPLETE_COMPLETION
    assert (end.metadata.finish_reason, end.metadata.provider_model) == (None, "used-1")


def test_vector_05_last_finish_wins() -> None:
    end = failed(play(HI, finish("stop"), finish("length"), DONE))
    assert (end.reason, end.metadata.finish_reason) == (R.INCOMPLETE_COMPLETION, "length")


def test_vector_06_content_after_finish() -> None:
    events = play(finish("stop"), HI, DONE)
    assert events[:-1] == [C]
    completed(events)


def test_vector_07_content_filter() -> None:
    assert failed(play(HI, finish("content_filter"), DONE)).reason == R.INCOMPLETE_COMPLETION


def test_vector_08_finish_tool_calls_without_a_call() -> None:
    assert failed(play(HI, finish("tool_calls"), DONE)).reason == R.INCOMPLETE_COMPLETION


@pytest.mark.parametrize(
    "frame",
    [
        tool_delta(call_id="c1", name="f", arguments="{}"),
        chunk({"function_call": {"name": "f", "arguments": "{}"}}),
    ],
    ids=["tool_calls", "function_call"],
)
def test_vector_09_unexpected_tool_calls(frame: bytes) -> None:
    end = failed(play(HI, frame, finish("tool_calls"), DONE))
    assert end.reason == R.UNEXPECTED_TOOL_CALLS
    assert end.metadata.text == "Hi"


def test_vector_10_chunk_without_finish_reason() -> None:
    frame = sse({"id": "c1", "model": "used-1", "choices": [{"index": 0, "delta": {"content": "Hi"}}]})
    assert play(frame, finish("stop"), DONE)[0] == C


def test_vector_11_comments_events_blanks() -> None:
    events = play(b": keep-alive\n\n", b"event: message\n" + HI, b"\n\n", finish("stop"), DONE)
    assert events[:-1] == [C]
    completed(events)


def test_vector_12_done_without_space() -> None:
    completed(play(HI, finish("stop"), b"data:[DONE]\n\n"))


def test_vector_13_two_choices() -> None:
    choices = [{"index": index, "delta": {"content": "Hi"}, "finish_reason": None} for index in (0, 1)]
    frame = sse({"id": "c1", "model": "used-1", "choices": choices})
    assert failed(play(frame, finish("stop"), DONE)).reason == R.INVALID_STREAM_EVENT


def test_vector_14_no_choices() -> None:
    assert failed(play(HI, sse({"unknown": True}), finish("stop"), DONE)).reason == R.INVALID_STREAM_EVENT


def test_vector_15_choices_not_a_list() -> None:
    end = failed(play(sse({"id": "c1", "choices": 1}), DONE))
    assert end.reason == R.INVALID_STREAM_EVENT
    assert end.metadata.request_duration_ms is not None


def test_vector_16_reasoning_then_content() -> None:
    events = play(chunk({"reasoning_content": "hm"}), HI, finish("stop"), DONE)
    assert events[:-1] == [StreamThinking("hm"), C]
    assert completed(events).metadata.first_token_kind == "thinking"


def test_vector_17_error_frame_keeps_evidence() -> None:
    end = failed(play(HI, usage(), sse({"error": {"message": "overheated", "code": 500}})))
    assert end.reason == R.PROVIDER_ERROR
    assert "overheated" in end.detail
    assert end.metadata.usage is not None
    assert (end.metadata.text, end.metadata.provider_model) == ("Hi", "used-1")


def test_vector_18_null_error_is_none() -> None:
    completed(play(content("Hi", error=None), finish("stop", error=None), DONE))


def test_vector_19_empty_data_line() -> None:
    completed(play(HI, b"data:\n\n", b"data: \n\n", finish("stop"), DONE))


def test_vector_20_name_is_no_token_and_thinking_goes_first() -> None:
    frames = (tool_delta(call_id="c1", name="f", arguments=""), chunk({"content": "a", "reasoning_content": "b"}))
    rig = Rig([Answer((*frames, finish("stop"), DONE), gap_s=0.5)])
    rig.open(tools=[{"name": "f"}])
    end = rig.finish()[-1]
    assert isinstance(end, StreamCompleted | StreamError)
    assert end.metadata.first_token_kind == "thinking"


def test_vector_21_field_reasoning_is_a_token() -> None:
    events = play(chunk({"reasoning": "hm"}), HI, finish("stop"), DONE)
    assert completed(events).metadata.first_token_kind == "thinking"
    assert events[0] == StreamThinking("hm")


def test_vector_22_ollama_empty_arguments_are_a_token() -> None:
    called = line(
        message={"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        done=False,
    )
    events = play_ollama(called, line(done=True, done_reason="stop"), tools=[{"name": "f"}])
    assert completed(events).metadata.first_token_kind == "tool_call"


def test_vector_23_done_with_trailing_space() -> None:
    completed(play(HI, finish("stop"), b"data: [DONE] \n\n"))


def test_vector_24_missing_delta_in_the_finish_chunk() -> None:
    completed(play(HI, chunk(None, "stop"), DONE))


def test_vector_25_ollama_content_on_the_last_line() -> None:
    events = play_ollama(
        said("Hi"), said(" you", done=True, done_reason="stop", prompt_eval_count=3, eval_count=4, eval_duration=9)
    )
    assert events[:-1] == [C, StreamContent(" you")]
    metadata = completed(events).metadata
    assert metadata.usage is not None
    assert (metadata.usage.input_tokens, metadata.usage.output_tokens) == (3, 4)
    assert metadata.metadata["eval_duration"] == 9


def test_vector_26_ollama_length() -> None:
    end = failed(play_ollama(said("Hi"), said("", done=True, done_reason="length")))
    assert (end.reason, end.metadata.finish_reason) == (R.INCOMPLETE_COMPLETION, "length")


def test_vector_27_ollama_done_without_reason() -> None:
    assert failed(play_ollama(said("Hi"), said("", done=True))).reason == R.INCOMPLETE_COMPLETION


def test_vector_28_ollama_reason_on_an_earlier_line() -> None:
    assert failed(play_ollama(said("Hi", done_reason="stop"), said("", done=True))).reason == R.INCOMPLETE_COMPLETION


def test_vector_29_ollama_eof() -> None:
    rig = Rig([Answer((said("Hi"),), headers=NDJSON)], name="ollama/m")
    end = failed(rig.play())
    assert (end.reason, end.metadata.provider_model) == (R.INCOMPLETE_STREAM, "used-1")


def test_vector_30_session_closed_early_leaves_no_trace() -> None:
    rig = Rig([text_answer()])
    session = rig.model.session(system="Be brief.")
    stream = session.stream("first")
    stream._run.close(rig.now)
    assert [message.role for message in session.messages] == ["system"]
    window = session.history.window(rig.model.canonical("second"))
    assert [message.role for message in window] == ["system", "user"]


def test_vector_31_system_prompt_above_max_context() -> None:
    session = AsyncModel("m", base_url="http://upstream:1").session(system="x" * 4000, max_context=100)
    with pytest.raises(ContextOverflow) as caught:
        session.stream("Hello")
    assert caught.value.limit == 100
