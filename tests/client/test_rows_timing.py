"""Rows M-20 to M-30: the clock, on a clock that only the test moves. Reads come 100 ms apart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import strom
from strom.client.evidence import StreamMetrics
from strom.client.failures import failure_of
from strom.client.retry import Retry
from tests.client.rig import (
    DONE,
    Answer,
    Rig,
    call,
    calls_answer,
    chunk,
    completed,
    content,
    failed,
    finish,
    refused,
    said,
    sse,
    text_answer,
    tool_delta,
    unreachable,
)


def MS(milliseconds: float) -> Any:
    return pytest.approx(milliseconds)


def test_m20_three_fields_in_milliseconds_and_provider_durations_as_they_are() -> None:
    rig = Rig([Answer((said("a"), said("", done=True, done_reason="stop", eval_duration=5, total_duration=9)),
                      headers=[(b"content-type", b"application/x-ndjson")])], name="ollama/m")  # fmt: skip
    metadata = completed(rig.play()).metadata
    assert metadata.timing == StreamMetrics(MS(100), "content", MS(200))
    assert (metadata.metadata["eval_duration"], metadata.metadata["total_duration"]) == (5, 9)


def test_m21_clock_starts_at_dispatch_not_at_construction() -> None:
    rig = Rig([text_answer()])
    rig.open()
    rig.now += 60
    assert completed(rig.finish()).metadata.time_to_first_token_ms == MS(200)


def test_m22_retries_and_their_delays_are_inside() -> None:
    retry = Retry(base_delay_s=2, jitter=lambda: 1.0)
    rig = Rig([unreachable(), text_answer()])
    metadata = completed(rig.play(retry=retry)).metadata
    assert rig.pauses == [2]
    assert metadata.time_to_first_token_ms == MS(100 + 2000 + 200)


def test_m22_each_follow_up_after_tools_starts_afresh_and_tool_time_is_in_neither() -> None:
    def slow() -> str:
        rig.now += 30
        return "x"

    rig = Rig([calls_answer(call("c1", "slow", "{}")), text_answer()])
    metadata = completed(rig.play(tools=[slow])).metadata
    assert metadata.timing == StreamMetrics(MS(200), "content", MS(500))


def test_m22_an_exit_tool_does_not_stretch_the_duration() -> None:
    rig = Rig([calls_answer(call("c1", "done", "{}"))])

    @strom.tool(exits=True)
    def done() -> str:
        rig.now += 30
        return "bye"

    end = completed(rig.play(tools=[done]))
    assert (end.value, end.metadata.request_duration_ms) == ("bye", MS(500))


@pytest.mark.parametrize(
    "frame",
    [b": keep-alive\n\n", chunk({"role": "assistant"}), content(""), tool_delta(call_id="c", name="f", arguments="")],
    ids=["keepalive", "role", "empty", "tool name"],
)
def test_m23_what_is_no_token(frame: bytes) -> None:
    rig = Rig([Answer((frame, content("a"), finish("stop"), DONE))])
    rig.open(tools=[{"name": "f"}], run_tools=False)
    metadata = rig.finish()[-1].metadata  # type: ignore[union-attr]  # the terminal event
    assert metadata.first_token_kind == "content"


def test_m23_a_fragment_of_arguments_is_a_token() -> None:
    rig = Rig([calls_answer(call("c1", "f", '{"a":1}'))])
    metadata = completed(rig.play(tools=[{"name": "f"}])).metadata
    assert (metadata.first_token_kind, metadata.time_to_first_token_ms) == ("tool_call", MS(200))


def test_m24_precedence_within_the_first_frame() -> None:
    delta = {"content": "a", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    rig = Rig([Answer((chunk({**delta, "reasoning": "hm"}), finish("tool_calls"), DONE))])
    assert completed(rig.play(tools=[{"name": "f"}])).metadata.first_token_kind == "thinking"


def test_m24_later_frames_do_not_change_the_kind() -> None:
    frames = content("a") + chunk({"reasoning": "hm"})
    rig = Rig([Answer((frames, finish("stop"), DONE))])
    assert completed(rig.play()).metadata.first_token_kind == "content"


def test_m25_no_token_none_and_the_duration_stays() -> None:
    timing = failed(Rig([refused(500)]).play()).metadata.timing
    assert (timing.time_to_first_token_ms, timing.first_token_kind) == (None, None)
    assert timing.request_duration_ms == MS(100)


def test_m25_never_dispatched_all_none() -> None:
    rig = Rig([])
    rig.open()
    rig.run.cancel(rig.now)
    assert failed(rig.finish()).metadata.timing == StreamMetrics()


def test_m26_on_terminal_event_exception_and_model() -> None:
    rig = Rig([Answer((content("a"), finish("length"), DONE))])
    end = failed(rig.play())
    assert failure_of(end).stream_metrics == end.metadata.timing == rig.model.last_stream_metrics


def test_m27_close_keeps_timing_at_once() -> None:
    rig = Rig([Answer((content("a"),), silent=True)])
    rig.open()
    rig.step()
    rig.now += 1
    rig.run.close(rig.now)
    assert rig.model.last_stream_metrics == StreamMetrics(MS(100), "content", MS(1100))


def test_m27_an_unsent_stream_has_no_timing() -> None:
    rig = Rig([])
    rig.open()
    rig.run.close(rig.now)
    assert rig.model.last_stream_metrics == StreamMetrics()
    assert rig.finish() == []


def test_m28_interleaved_streams_have_clocks_of_their_own() -> None:
    first, second = Rig([text_answer(gap_s=1)]), Rig([text_answer(gap_s=5)], start=0)
    first.open()
    second.open()
    ends = [completed(second.finish()), completed(first.finish())]
    assert [end.metadata.request_duration_ms for end in ends] == [MS(25_000), MS(5000)]


def test_m29_an_invalid_frame_after_content_still_reports_content() -> None:
    timing = failed(Rig([Answer((content("a"), b"data: {\n\n"))]).play()).metadata.timing
    assert timing == StreamMetrics(MS(100), "content", MS(200))


def test_m29_an_argument_fragment_counts_before_a_later_failure() -> None:
    frame = tool_delta(call_id="c", name="f", arguments='{"a"')
    end = failed(Rig([Answer((frame,))]).play())
    assert end.metadata.first_token_kind == "tool_call"


def test_m30_tokens_after_the_proof_are_ignored() -> None:
    rig = Rig([Answer((finish("stop"), DONE + content("late")))])
    assert completed(rig.play()).metadata.timing == StreamMetrics(None, None, MS(200))


def test_a_measured_duration_proves_nothing() -> None:
    assert failed(Rig([Answer((content("a"), sse({"error": "x"})))]).play()).metadata.request_duration_ms == MS(200)


def test_first_token_and_idle_deadlines() -> None:
    late = failed(Rig([Answer(silent=True)]).play())
    assert (late.reason, late.metadata.request_duration_ms) == ("request_failed", MS(120_000))
    stuck = failed(Rig([Answer((content("a"), b": ping\n\n"), silent=True)]).play())
    assert stuck.metadata.request_duration_ms == MS(100 + 60_000)  # a keep-alive does not reset it
    assert "silent for 60 s" in stuck.detail


def test_tools_run_outside_of_the_clock_also_when_async() -> None:
    async def wait() -> str:
        await asyncio.sleep(0)
        rig.now += 9
        return "x"

    rig = Rig([calls_answer(call("c1", "wait", "{}")), text_answer()])
    assert completed(rig.play(tools=[wait])).metadata.request_duration_ms == MS(500)


def test_a_slow_reader_is_no_silence_of_the_upstream() -> None:
    rig = Rig([Answer((content("a"),), silent=True)])
    rig.open()
    rig.step()
    rig.now += 100
    rig.run.resumed(rig.now)
    rig.run.tick(rig.now)
    assert not rig.run.over
    rig.run.tick(rig.now + 60)
    assert rig.run.over
