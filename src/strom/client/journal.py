"""Writes a run into a tracer: one place that decides what may be shown."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from strom.client.evidence import CompletionMetadata, StreamMetrics
from strom.client.requests import Wish
from strom.client.signals import RunTools, ToolOutcome
from strom.client.tracer import TraceBatch, TraceCall, Tracer, TraceResponse, TraceTool
from strom.client.turn import Candidate

_NUMBERS = itertools.count(1)


class Journal:
    """Does nothing without a tracer. Requests of a run follow each other: `_number` is that of the latest."""

    __slots__ = ("_correlation_id", "_number", "_tracer")

    def __init__(self, tracer: Tracer | None, correlation_id: str) -> None:
        self._tracer = tracer
        self._correlation_id = correlation_id
        self._number = 0

    def call(self, candidate: Candidate, wish: Wish) -> None:
        tracer = self._tracer
        if tracer is None:
            return
        self._number = next(_NUMBERS)
        text = "\n".join(message.text for message in wish.messages) if tracer.include_text else None
        origin = candidate.upstream.base.origin
        tracer.record(
            TraceCall(
                at=tracer.wall(),
                correlation_id=self._correlation_id,
                provider=candidate.upstream.name,
                model=candidate.model,
                messages=len(wish.messages),
                tools=tuple(tool.name for tool in wish.tools),
                text=text,
                conversation=wish.messages if tracer.include_text else (),
                server=origin.host,
                port=origin.port,
                streamed=candidate.streams,
                number=self._number,
            )
        )

    def left(self, metrics: StreamMetrics) -> None:
        if self._tracer is not None:
            self._tracer.leave(self._number, metrics)

    def left_behind(self, metrics: StreamMetrics) -> Tracer | None:
        """The tracer, which is to be flushed where that is safe."""
        if self._tracer is not None:
            self._tracer.left_behind(self._number, metrics)
        return self._tracer

    def response(self, candidate: Candidate, status: str, metadata: CompletionMetadata, detail: str | None) -> None:
        tracer = self._tracer
        if tracer is None:
            return
        if not tracer.include_text:  # an upstream may quote the prompt in its errors
            metadata, detail = msgspec.structs.replace(metadata, text="", thinking="", tool_calls=()), None
        name, at, number = candidate.upstream.name, tracer.wall(), self._number
        tracer.record(TraceResponse(at, self._correlation_id, name, candidate.model, status, metadata, detail, number))

    def tools(self, wanted: RunTools, outcomes: Sequence[ToolOutcome]) -> None:
        tracer = self._tracer
        if tracer is None:
            return
        now, shown, number = tracer.wall(), tracer.include_text, self._number
        for outcome in outcomes:
            call = outcome.call
            arguments = call.arguments if shown else None
            result = outcome.data if shown else None
            ms = (outcome.ended_at - outcome.started_at) * 1000.0
            failed = outcome.error is not None
            tracer.record(
                TraceTool(now, self._correlation_id, call.id, call.name, ms, failed, arguments, result, number)
            )
        names = tuple(outcome.call.name for outcome in outcomes)
        start = min((outcome.started_at for outcome in outcomes), default=0.0)
        end = max((outcome.ended_at for outcome in outcomes), default=0.0)
        tracer.record(TraceBatch(now, self._correlation_id, names, wanted.concurrency, (end - start) * 1000.0, number))
