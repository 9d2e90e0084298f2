"""Spans and metrics of the gateway's calls, as the SDK's in-memory exporters get them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from strom.otel.collector import Collector, TraceIds
from strom.otel.serving import CallTraces
from strom.protocols.table import CODECS
from strom.transport.memory import MemoryExchange, MemoryUpstream
from strom.transport.types import TransportFailure
from tests.gateway.rig import DONE, FINISH, JSON, KEY, PATHS, ROLE, SSE, USAGE, Rig, text

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = [(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode()), (b"tracestate", b"other=1")]
CUT = TransportFailure("cut", "", sent=True)


class Stage(Rig):
    """A gateway that is traced into memory."""

    def __init__(
        self, behind: str | tuple[str, ...] = "openai-chat", *, message_text: bool = False, **more: Any
    ) -> None:
        super().__init__(behind, **more)
        self.memory = InMemorySpanExporter()
        ids = TraceIds()
        tracers = TracerProvider(id_generator=ids)
        tracers.add_span_processor(SimpleSpanProcessor(self.memory))
        self.reader = InMemoryMetricReader()
        collector = Collector(tracers, MeterProvider([self.reader]), ids)
        self.traces = CallTraces(collector, lambda record: record.model_requested or "", message_text=message_text)
        self.services.observers.append(self.traces.observe)
        self.services.client = self.traces.client(self.services.client)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.memory.get_finished_spans() if span.kind is kind]

    @property
    def server(self) -> ReadableSpan:
        (span,) = self.spans(SpanKind.SERVER)
        return span

    def points(self) -> dict[str, dict[str, float]]:
        """Sum by error.type or token type, of every histogram."""
        found: dict[str, dict[str, float]] = {}
        data = self.reader.get_metrics_data()
        assert data is not None
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            assert isinstance(metric.data, Histogram)
            for point in metric.data.data_points:
                attributes = dict(point.attributes or {})
                key = str(attributes.get("error.type") or attributes.get("gen_ai.token.type") or "")
                found.setdefault(metric.name, {})[key] = point.sum
        return found


def sent_header(upstream: MemoryUpstream, name: bytes) -> list[str]:
    return [value.decode() for key, value in upstream.request.headers if key == name]


def answer(stage: Stage, *pieces: str) -> None:
    stage.upstream().response(200, SSE)
    stage.clock.advance(0.5)
    for piece in pieces or ("Hello", " you"):
        stage.upstream().read(ROLE, text(piece))
        stage.clock.advance(0.25)
    stage.upstream().end(FINISH, USAGE, DONE)


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def trace_of(span: ReadableSpan) -> str:
    return f"{context_of(span).trace_id:032x}"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_call_is_a_server_span_with_a_client_span_below() -> None:
    stage = Stage()
    stage.call()
    answer(stage)
    server, (client,) = stage.server, stage.spans(SpanKind.CLIENT)
    assert server.name == "chat m"
    assert client.name == "chat upstream-m"
    assert client.parent is not None
    assert client.parent.span_id == context_of(server).span_id
    assert server.parent is None
    assert trace_of(server) == trace_of(client) == stage.record.trace_id
    assert server.end_time is not None
    assert server.start_time is not None
    assert (server.end_time - server.start_time) / 1e9 == pytest.approx(1.0)
    for span in (server, client):
        found = attributes(span)
        assert found["gen_ai.operation.name"] == "chat"
        assert found["gen_ai.response.model"] == "real-m"
        assert found["gen_ai.usage.input_tokens"] == 9
        assert found["gen_ai.usage.output_tokens"] == 3
        assert found["gen_ai.response.finish_reasons"] == ("stop",)
        assert found["strom.endpoint_id"] == "e1"
        assert span.status.status_code is StatusCode.UNSET
    assert attributes(server)["gen_ai.request.model"] == "m"
    assert attributes(server)["http.response.status_code"] == 200
    assert attributes(server)["strom.status"] == "completed"
    assert attributes(client)["gen_ai.request.model"] == "upstream-m"
    assert attributes(client)["server.address"] == "127.0.0.1"


@pytest.mark.parametrize("front", sorted(PATHS))
def test_the_client_s_trace_goes_on_to_the_backend(front: str) -> None:
    stage = Stage()
    stage.call(front, headers=TRACEPARENT)
    answer(stage)
    server, (client,) = stage.server, stage.spans(SpanKind.CLIENT)
    assert trace_of(server) == TRACE
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT
    span_id = context_of(client).span_id
    assert sent_header(stage.upstream(), b"traceparent") == [f"00-{TRACE}-{span_id:016x}-01"]
    assert sent_header(stage.upstream(), b"tracestate") == ["other=1"]


def test_who_does_not_sample_is_heeded() -> None:
    stage = Stage()
    stage.call(headers=[(b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())])
    answer(stage)
    assert stage.memory.get_finished_spans() == ()
    (sent,) = sent_header(stage.upstream(), b"traceparent")
    assert sent.startswith(f"00-{TRACE}-")
    assert sent.endswith("-00")
    assert stage.record.status == "completed"


@pytest.mark.parametrize("garbage", [b"", b"00-zz", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"\xff" * 9000])
def test_a_header_that_is_none_begins_a_trace(garbage: bytes) -> None:
    stage = Stage()
    stage.call(headers=[(b"traceparent", garbage)])
    answer(stage)
    assert stage.server.parent is None
    assert trace_of(stage.server) == stage.record.trace_id


def test_the_body_is_not_touched() -> None:
    plain, traced = Rig(), Stage()
    for rig in (plain, traced):
        rig.call()
    assert plain.upstream().request.body == traced.upstream().request.body
    without = [field for field in traced.upstream().request.headers if field[0] != b"traceparent"]
    assert without == plain.upstream().request.headers


def test_every_attempt_has_a_span() -> None:
    stage = Stage(endpoints=2)
    stage.call()
    stage.clock.advance(2)
    stage.upstream().fail(CUT)
    answer(stage)
    first, second = stage.spans(SpanKind.CLIENT)
    assert [attributes(span)["strom.endpoint_id"] for span in (first, second)] == ["e1", "e2"]
    assert [attributes(span)["strom.outcome"] for span in (first, second)] == ["failed", "ok"]
    assert first.status.status_code is StatusCode.ERROR
    assert attributes(first)["error.type"]
    assert "gen_ai.usage.output_tokens" not in attributes(first)
    assert first.end_time is not None
    assert first.start_time is not None
    assert (first.end_time - first.start_time) / 1e9 == pytest.approx(2)
    assert second.start_time is not None
    assert second.start_time >= first.end_time
    assert stage.server.status.status_code is StatusCode.UNSET
    assert attributes(stage.server)["strom.attempts"] == 2


def test_a_failure_is_an_error_and_names_its_code() -> None:
    stage = Stage()
    stage.call()
    stage.upstream().response(500, JSON)
    stage.upstream().end(b'{"error":{"message":"SENTINEL"}}')
    assert stage.server.status.status_code is StatusCode.ERROR
    assert attributes(stage.server)["error.type"] == stage.record.error.code  # type: ignore[union-attr]
    assert attributes(stage.server)["strom.fault"] == "upstream"
    assert stage.points()["gen_ai.server.request.duration"].keys() == {stage.record.error.code}  # type: ignore[union-attr]
    everything = "".join(span.to_json() for span in stage.memory.get_finished_spans())
    assert "SENTINEL" not in everything


def test_a_client_that_left_is_no_error() -> None:
    stage = Stage()
    exchange = stage.call()
    stage.upstream().response(200, SSE)
    stage.upstream().read(ROLE, text("x"))
    exchange.disconnect()
    (client,) = stage.spans(SpanKind.CLIENT)
    for span in (client, stage.server):
        assert span.status.status_code is StatusCode.UNSET
    assert attributes(stage.server)["strom.status"] == "cancelled"


def test_a_refused_call_has_a_span_in_its_client_s_trace() -> None:
    stage = Stage()
    handle = stage.traces.watch(lambda exchange: stage.gateway.handle_call(exchange, CODECS["openai-chat"]))
    handle(MemoryExchange("POST", PATHS["openai-chat"], headers=TRACEPARENT, body=b"{}"))
    handle(MemoryExchange("POST", PATHS["openai-chat"], body=b"{}"))
    known, unknown = stage.spans(SpanKind.SERVER)
    assert trace_of(known) == TRACE
    assert trace_of(unknown) == stage.records.all[1].trace_id
    assert attributes(known)["strom.status"] == "rejected"
    assert known.status.status_code is StatusCode.UNSET


def test_the_metrics_of_a_server() -> None:
    stage = Stage()
    stage.call()
    answer(stage)
    points = stage.points()
    assert points["gen_ai.server.request.duration"][""] == pytest.approx(1.0)
    assert points["gen_ai.server.time_to_first_token"][""] == pytest.approx(0.5)
    assert points["gen_ai.server.time_per_output_token"][""] == pytest.approx(0.25)
    assert points["gen_ai.client.token.usage"] == {"input": 9, "output": 3}


def test_no_text_and_no_key_unless_asked_for() -> None:
    stage = Stage()
    stage.call(messages=[{"role": "user", "content": "SENTINEL question"}])
    answer(stage, "SENTINEL answer")
    everything = "".join(span.to_json() for span in stage.memory.get_finished_spans())
    assert "SENTINEL" not in everything
    assert KEY not in everything


@pytest.mark.parametrize("stream", [True, False])
def test_text_where_the_operator_wants_it(stream: bool) -> None:
    stage = Stage(message_text=True)
    exchange = stage.call(messages=[{"role": "user", "content": "a question"}], stream=stream)
    if stream:
        answer(stage, "an ", "answer")
    else:
        choice = {"index": 0, "message": {"role": "assistant", "content": "an answer"}, "finish_reason": "stop"}
        whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "real-m", "choices": [choice]}
        stage.upstream().response(200, JSON)
        stage.upstream().end(json.dumps(whole).encode())
    assert b"an" in exchange.body_out
    (client,) = stage.spans(SpanKind.CLIENT)
    found = attributes(client)
    assert json.loads(found["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "a question"}]
    (message,) = json.loads(found["gen_ai.output.messages"])
    assert message["parts"] == [{"type": "text", "content": "an answer"}]
    assert message["finish_reason"] == "stop"
    assert KEY not in client.to_json()
    assert "gen_ai.input.messages" not in attributes(stage.server)


def test_no_text_of_an_endpoint_that_retains_nothing() -> None:
    stage = Stage(message_text=True)
    for upstream in stage.gateway.state.router.upstreams.values():
        upstream.retention = "none"
    stage.call(messages=[{"role": "user", "content": "SENTINEL"}])
    answer(stage, "SENTINEL")
    assert "SENTINEL" not in "".join(span.to_json() for span in stage.memory.get_finished_spans())


@pytest.mark.parametrize("end", [b"data: {broken\n\n", b""])
def test_what_cannot_be_read_again_has_no_text_and_does_no_harm(end: bytes) -> None:
    stage = Stage(message_text=True)
    stage.call()
    stage.upstream().response(200, SSE)
    stage.upstream().end(end)
    assert "gen_ai.output.messages" not in attributes(stage.spans(SpanKind.CLIENT)[0])
    assert stage.record.status in ("failed", "incomplete")


def test_nothing_is_kept_of_calls_that_ended() -> None:
    stage = Stage(endpoints=2)
    for _ in range(3):
        exchange = stage.call()
        exchange.disconnect()
    assert stage.traces._open == {}
