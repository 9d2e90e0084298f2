"""Spans and metrics as the SDK's in-memory exporters get them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import strom
import strom.otel
from tests.client.loopback import Loopback
from tests.client.rig import Answer, Rig, call, calls_answer, content, refused, text_answer
from tests.patience import until, wait_until

SECRETS = ("secret question", "secret answer", "secret result", "secret argument")


class Stage:
    """A rig whose tracer is exported into memory."""

    def __init__(self, *answers: Answer, tracer_text: bool = False, exported_text: bool = False) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.tracer = strom.Tracer(include_text=tracer_text)
        strom.otel.export(self.tracer, tracer_provider=self.provider, meter_provider=meters, include_text=exported_text)
        self.rig = Rig(answers, model={"tracer": self.tracer})

    def finished(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())

    def one(self) -> tuple[ReadableSpan, dict[str, Any]]:
        (span,) = self.finished()
        return span, dict(span.attributes or {})

    def points(self) -> dict[str, list[tuple[float, dict[str, Any]]]]:
        """Sum and attributes of every histogram point, by metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: [(point.sum, dict(point.attributes or {})) for point in _histogram(metric.data)]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def _histogram(data: object) -> Sequence[HistogramDataPoint]:
    assert isinstance(data, Histogram)
    return data.data_points


def f(a: str) -> str:
    """A tool."""
    return f"secret result {a}"


@pytest.fixture
def backend() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


def test_a_call_is_a_client_span_with_the_conventions_names() -> None:
    stage = Stage(text_answer())
    stage.rig.play("question", correlation_id="c-1")
    span, attributes = stage.one()
    assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.CLIENT, StatusCode.UNSET)
    first = attributes.pop("gen_ai.response.time_to_first_chunk")
    assert first == pytest.approx(0.2)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "generic",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "used-1",
        "gen_ai.response.id": "c1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 7,
        "server.address": "upstream",
        "server.port": 1,
        "http.response.status_code": 200,
        "strom.correlation_id": "c-1",
        "strom.status": "completed",
        "strom.first_token_kind": "content",
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "strom"


def test_metrics_of_a_call() -> None:
    stage = Stage(text_answer())
    stage.rig.play("question")
    points = stage.points()
    assert set(points) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
    }
    ((seconds, attributes),) = points["gen_ai.client.operation.duration"]
    assert seconds == pytest.approx(0.5)
    assert attributes["gen_ai.response.model"] == "used-1"
    assert "strom.correlation_id" not in attributes  # metrics have few dimensions
    usage = {attributes["gen_ai.token.type"]: total for total, attributes in points["gen_ai.client.token.usage"]}
    assert usage == {"input": 5, "output": 7}


def test_what_was_not_reported_is_not_there() -> None:
    stage = Stage(refused(500))
    stage.rig.play("question")
    span, attributes = stage.one()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes["error.type"] == "request_failed"
    assert attributes["http.response.status_code"] == 500
    assert not [name for name in attributes if name.startswith(("gen_ai.usage", "gen_ai.response"))]
    assert set(stage.points()) == {"gen_ai.client.operation.duration"}


def test_a_cancelled_call_is_no_error() -> None:
    stage = Stage(Answer((content("a"),), silent=True))
    stage.rig.open()
    stage.rig.step()
    stage.rig.run.cancel(stage.rig.now)
    span, attributes = stage.one()
    assert (span.status.status_code, attributes["strom.status"]) == (StatusCode.UNSET, "cancelled")


def test_a_span_ends_when_its_reader_leaves() -> None:
    stage = Stage(Answer((content("a"),), silent=True))
    stage.rig.open()
    stage.rig.step()
    assert stage.finished() == []
    stage.rig.run.close(stage.rig.now)
    span, attributes = stage.one()
    assert attributes["strom.status"] == "left"
    assert "error.type" not in attributes
    assert span.end_time is not None
    assert set(stage.points()) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
    }


def test_tools_are_spans_between_the_calls() -> None:
    calls = call("c1", "f", '{"a":"x"}') + call("c2", "f", '{"a":1}', 1)
    stage = Stage(calls_answer(calls), text_answer())
    stage.rig.play("question", tools=[f], correlation_id="c-1")
    spans = stage.finished()
    assert [span.name for span in spans] == ["chat m", "execute_tool f", "execute_tool f", "chat m"]
    good, bad = spans[1:3]
    assert dict(good.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "f",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "strom.correlation_id": "c-1",
    }
    assert dict(bad.attributes or {})["error.type"] == "tool_error"
    assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert dict(spans[0].attributes or {})["strom.status"] == "tool_calls"


@pytest.mark.parametrize(("concurrency", "begins"), [(1, [0, 1, 3]), (2, [0, 0, 1]), (0, [0, 0, 0])])
def test_tools_are_laid_into_the_time_of_their_batch(concurrency: int, begins: list[int]) -> None:
    stage = Stage()
    for name, ms in (("a", 1000.0), ("b", 2000.0), ("c", 1000.0)):
        stage.tracer.record(strom.TraceTool(10.0, "id", name, name, ms, False))
    duration = {1: 4000.0, 2: 2000.0, 0: 2000.0}[concurrency]
    stage.tracer.record(strom.TraceBatch(10.0, "id", ("a", "b", "c"), concurrency, duration))
    start = 10.0 - duration / 1000.0
    begun = [(span.start_time or 0) / 1e9 - start for span in stage.finished()]
    assert begun == pytest.approx(begins)


@pytest.mark.parametrize("switches", [(False, False), (True, False), (False, True)])
def test_no_text_unless_both_switches_are_on(switches: tuple[bool, bool]) -> None:
    tracer_text, exported_text = switches
    answers = calls_answer(call("c1", "f", '{"a":"secret argument"}')), text_answer("secret answer")
    stage = Stage(*answers, tracer_text=tracer_text, exported_text=exported_text)
    stage.rig.play("secret question", tools=[f])
    shown = "".join(span.to_json() for span in stage.finished())
    assert [secret for secret in SECRETS if secret in shown] == []


def test_text_in_the_conventions_form() -> None:
    answers = calls_answer(call("c1", "f", '{"a":"secret argument"}')), text_answer("secret answer")
    stage = Stage(*answers, tracer_text=True, exported_text=True)
    stage.rig.play("secret question", tools=[f], system="You are brief.")
    first, tool, last = (dict(span.attributes or {}) for span in stage.finished())
    called = {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"a": "secret argument"}}
    assert json.loads(str(first["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [called], "finish_reason": "tool_calls"}
    ]
    assert json.loads(str(tool["gen_ai.tool.call.arguments"])) == {"a": "secret argument"}
    assert json.loads(str(tool["gen_ai.tool.call.result"])) == "secret result secret argument"
    conversation = json.loads(str(last["gen_ai.input.messages"]))
    assert [message["role"] for message in conversation] == ["system", "user", "assistant", "tool"]
    assert conversation[3]["parts"] == [
        {"type": "tool_call_response", "id": "c1", "result": "secret result secret argument"}
    ]
    assert "secret answer" in str(last["gen_ai.output.messages"])


def test_media_stand_by_their_kind() -> None:
    stage = Stage(text_answer(), tracer_text=True, exported_text=True)
    stage.rig.play(strom.Message.user("Look:", strom.Image(b"\x89PNG", "image/png")))
    _, attributes = stage.one()
    parts = json.loads(attributes["gen_ai.input.messages"])[0]["parts"]
    assert parts == [{"type": "text", "content": "Look:"}, {"type": "image"}]


def test_the_parent_is_the_programs_own_span(backend: Loopback) -> None:
    stage = Stage()
    model = strom.Model("m", base_url=backend.url, tracer=stage.tracer)
    with stage.provider.get_tracer("program").start_as_current_span("mine") as mine:
        assert model.complete("Hello there").text == "Hello there "
    inner = next(span for span in stage.finished() if span.name == "chat m")
    assert inner.parent is not None
    assert inner.parent.span_id == mine.get_span_context().span_id
    assert (inner.start_time or 0) <= (inner.end_time or 0)


async def test_interleaved_async_streams_end_their_own_spans(backend: Loopback) -> None:
    stage = Stage()
    model = strom.AsyncModel("m", base_url=backend.url, tracer=stage.tracer)
    results = await model.map(["one two", "three", "refuse"], concurrency=0)
    assert [result.ok for result in results] == [True, True, False]
    states = sorted(str((span.attributes or {})["strom.status"]) for span in stage.finished())
    assert states == ["completed", "completed", "request_failed"]


async def test_calls_that_share_a_correlation_id_keep_their_own_spans(backend: Loopback) -> None:
    stage = Stage(tracer_text=True, exported_text=True)
    model = strom.AsyncModel("m", base_url=backend.url, tracer=stage.tracer)
    first = model.stream("one and more", correlation_id="job")
    await anext(first)
    assert (await model.complete("two", correlation_id="job")).text == "two "
    await first.reply()
    asked_and_answered = [
        (
            str(dict(span.attributes or {})["gen_ai.input.messages"]),
            str(dict(span.attributes or {})["gen_ai.output.messages"]),
        )
        for span in stage.finished()
    ]
    pairs = [("two" in asked, "two" in answered) for asked, answered in asked_and_answered]
    assert sorted(pairs) == [(False, False), (True, True)]


def test_the_span_of_a_dropped_stream_ends(backend: Loopback) -> None:
    stage = Stage()
    stream = strom.Model("m", base_url=backend.url, tracer=stage.tracer).stream("hang")
    next(stream)
    del stream
    gc.collect()
    wait_until(lambda: len(stage.finished()) == 1)
    span, attributes = stage.one()
    assert attributes["strom.status"] == "left"
    assert attributes["strom.first_token_kind"] == "content"
    assert span.status.status_code is StatusCode.UNSET


async def test_the_span_of_a_dropped_async_stream_ends(backend: Loopback) -> None:
    stage = Stage()
    stream = strom.AsyncModel("m", base_url=backend.url, tracer=stage.tracer).stream("hang")
    await anext(stream)
    del stream
    gc.collect()
    await until(stage.finished)
    assert stage.one()[1]["strom.status"] == "left"


def test_a_flush_ends_the_spans_of_dropped_streams() -> None:
    stage = Stage(Answer((content("a"),), silent=True))
    stage.rig.open("x")
    stage.rig.step()
    assert stage.rig.run.abandon(stage.rig.now) is stage.tracer
    assert stage.finished() == []
    stage.tracer.flush()
    assert stage.one()[1]["strom.status"] == "left"


def test_providers_have_the_conventions_names() -> None:
    stage = Stage(text_answer())
    stage.rig = Rig([text_answer()], name="mistral/m", model={"tracer": stage.tracer, "api_key": "k"})
    stage.rig.play()
    assert stage.one()[1]["gen_ai.provider.name"] == "mistral_ai"


def test_a_response_of_an_earlier_time_is_let_be() -> None:
    stage = Stage()
    stage.tracer.record(strom.TraceResponse(1.0, "unknown", "p", "m", "completed", strom.CompletionMetadata()))
    stage.tracer.leave(0, strom.StreamMetrics())
    assert stage.finished() == []


def test_the_library_does_not_need_it() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None; import strom; strom.Model('ollama/m', tracer=strom.Tracer())"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
