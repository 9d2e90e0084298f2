"""Rows M-67, M-68 and section 6 J: what is recorded, and what never is."""

from __future__ import annotations

import pytest

import strom
from strom.client.tracer import TraceEvent
from tests.client.rig import Answer, Rig, call, calls_answer, content, failed, refused, text_answer


def f(a: int) -> str:
    return f"secret result {a}"


def traced(*answers: Answer, **options: bool) -> tuple[Rig, strom.Tracer]:
    ticks = iter(range(1000))
    tracer = strom.Tracer(wall=lambda: float(next(ticks)), **options)
    return Rig(answers, model={"tracer": tracer}), tracer


def test_m67_call_at_the_start_and_response_at_the_end() -> None:
    rig, tracer = traced(text_answer())
    rig.open("question")
    assert tracer.events() == []
    rig.step()
    assert [type(event).__name__ for event in tracer.events()] == ["TraceCall", "TraceResponse"]


def test_m67_response_of_a_failure_has_the_evidence() -> None:
    rig, tracer = traced(Answer((content("half"),)), include_text=True)
    failed(rig.play("question"))
    sent, response = tracer.events()
    assert isinstance(sent, strom.TraceCall)
    assert isinstance(response, strom.TraceResponse)
    assert (sent.text, response.status, response.metadata.text) == ("question", "incomplete_stream", "half")
    assert response.metadata.request_duration_ms == pytest.approx(100)
    assert response.detail


def test_m67_an_early_stop_has_a_call_and_no_response() -> None:
    rig, tracer = traced(Answer((content("a"),), silent=True))
    rig.open()
    rig.step()
    rig.run.close(rig.now)
    assert [type(event) for event in tracer.events()] == [strom.TraceCall]


def test_sinks_are_told_when_a_reader_left() -> None:
    left: list[tuple[int, float | None]] = []
    rig, tracer = traced(Answer((content("a"),), silent=True), text_answer())
    tracer.add_sink(lambda _: None, on_left=lambda number, timing: left.append((number, timing.request_duration_ms)))
    rig.open(correlation_id="c")
    rig.step()
    rig.run.close(rig.now)
    rig.run.close(rig.now)
    (called,) = tracer.events(strom.TraceCall)
    assert [number for number, _ in left] == [called.number]
    assert left[0][1] == pytest.approx(100)
    rig.play()
    rig.run.close(rig.now)
    assert len(left) == 1


def test_a_call_says_where_it_went() -> None:
    rig, tracer = traced(text_answer(), include_text=True)
    rig.play("question")
    (sent,) = tracer.events(strom.TraceCall)
    assert isinstance(sent, strom.TraceCall)
    assert (sent.server, sent.port, sent.streamed) == ("upstream", 1, True)
    assert [message.text for message in sent.conversation] == ["question"]


def test_m67_filters() -> None:
    rig, tracer = traced(text_answer(), refused(500))
    rig.play(correlation_id="first")
    rig.play(correlation_id="second")
    assert [event.at for event in tracer.events()] == [0, 1, 2, 3]
    assert len(tracer.events(strom.TraceCall)) == 2
    assert [event.at for event in tracer.events(since=1, until=2)] == [1, 2]
    assert {event.correlation_id for event in tracer.events(correlation_id="second")} == {"second"}
    assert len(tracer.events(where=lambda event: "500" not in event.summary() and event.at > 2)) == 1


def test_m68_tools_and_batches_share_the_correlation_id() -> None:
    calls = call("c1", "f", '{"a":1}') + call("c2", "f", '{"a":"x"}', 1)
    rig, tracer = traced(calls_answer(calls), text_answer())
    rig.play("secret question", tools=[f], correlation_id="id-1")
    kinds = [type(event).__name__ for event in tracer.events()]
    assert kinds == [
        "TraceCall", "TraceResponse", "TraceTool", "TraceTool", "TraceBatch", "TraceCall", "TraceResponse",
    ]  # fmt: skip
    responses = [event for event in tracer.events() if isinstance(event, strom.TraceResponse)]
    assert [(event.status, event.metadata.usage) for event in responses] == [
        ("tool_calls", strom.Usage(5, 7)),
        ("completed", strom.Usage(5, 7)),
    ]
    assert {event.correlation_id for event in tracer.events()} == {"id-1"}
    tools = [event for event in tracer.events() if isinstance(event, strom.TraceTool)]
    assert [tool.failed for tool in tools] == [False, True]
    assert all(event.summary() for event in tracer.events())


def test_m68_no_text_by_default() -> None:
    rig, tracer = traced(calls_answer(call("c1", "f", '{"a":1}')), text_answer("secret answer"))
    rig.play("secret question", tools=[f])
    assert "secret" not in repr(tracer.events())
    rig, tracer = traced(calls_answer(call("c1", "f", '{"a":1}')), text_answer("secret answer"), include_text=True)
    rig.play("secret question", tools=[f])
    for text in ("secret question", "secret result", "secret answer"):
        assert text in repr(tracer.events())


def test_m68_correlation_id_is_made_when_none_is_given() -> None:
    rig, tracer = traced(text_answer())
    rig.play()
    assert len(tracer.events()[0].correlation_id) == 32


def test_sinks_clear_disable_capacity() -> None:
    seen: list[TraceEvent] = []
    tracer = strom.Tracer(capacity=2)
    tracer.add_sink(seen.append)
    Rig([text_answer(), text_answer(), text_answer()], model={"tracer": tracer}).play()
    rig = Rig([text_answer(), text_answer()], model={"tracer": tracer})
    rig.play()
    assert (len(tracer.events()), len(seen)) == (2, 4)
    tracer.clear()
    tracer.enabled = False
    rig.play()
    assert tracer.events() == []
    assert len(seen) == 4
