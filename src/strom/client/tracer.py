"""What a program did with models, for whoever wants to look: calls, responses, tools, batches, tied by correlation ids.

A call is recorded when it is dispatched, its response when a terminal event came; a stream that was closed early has a call
and no response. No text of a message and no argument stands in an event unless `include_text` is set. Sinks get every event
as it is recorded; exporters hang on there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from strom.client.evidence import CompletionMetadata, StreamMetrics
from strom.core.messages import Message


class TraceCall(msgspec.Struct, frozen=True):
    """A request went out."""

    at: float
    """Unix seconds."""
    correlation_id: str
    provider: str
    model: str
    messages: int
    tools: tuple[str, ...] = ()
    text: str | None = None
    conversation: tuple[Message, ...] = ()
    """The messages themselves, only where text is included."""
    server: str = ""
    port: int | None = None
    streamed: bool = True
    """False: this upstream answers as a whole only."""
    number: int = 0
    """Of this request in its process: it ties call, response and tools together where a correlation id stands for several."""

    def summary(self) -> str:
        return f"{self.provider}/{self.model} called with {self.messages} messages, {len(self.tools)} tools"


class TraceResponse(msgspec.Struct, frozen=True):
    """A request ended. `status`: completed, tool_calls (another request follows), or the reason of the failure.

    `metadata` is that of this request alone, so that usage may be added up; texts in it are empty by default.
    """

    at: float
    correlation_id: str
    provider: str
    model: str
    status: str
    metadata: CompletionMetadata
    detail: str | None = None
    number: int = 0

    def summary(self) -> str:
        return f"{self.provider}/{self.model} {self.status} after {self.metadata.timing.request_duration_ms} ms"


class TraceTool(msgspec.Struct, frozen=True):
    at: float
    correlation_id: str
    call_id: str
    name: str
    ms: float
    failed: bool
    arguments: dict[str, Any] | None = None
    result: Any = None
    number: int = 0
    """Of the request whose answer called it."""

    def summary(self) -> str:
        return f"tool {self.name} {'failed' if self.failed else 'ran'} in {self.ms:.1f} ms"


class TraceBatch(msgspec.Struct, frozen=True):
    """The calls of one turn, run together."""

    at: float
    correlation_id: str
    names: tuple[str, ...]
    concurrency: int
    ms: float
    number: int = 0

    def summary(self) -> str:
        return f"{len(self.names)} tool calls in {self.ms:.1f} ms"


TraceEvent = TraceCall | TraceResponse | TraceTool | TraceBatch
EventT = TypeVar("EventT", TraceCall, TraceResponse, TraceTool, TraceBatch)
Sink = Callable[[TraceEvent], None]
OnLeft = Callable[[int, StreamMetrics], None]
"""Number and timing of a call whose reader left."""


class Tracer:
    """Keeps the last `capacity` events; appending is safe from several threads.

    >>> tracer = Tracer()
    >>> tracer.events(TraceCall)
    []
    """

    def __init__(
        self, *, include_text: bool = False, capacity: int = 10_000, wall: Callable[[], float] = time.time
    ) -> None:
        self.include_text = include_text
        self.enabled = True
        self.wall = wall
        self._events: deque[TraceEvent] = deque(maxlen=capacity)
        self._sinks: list[Sink] = []
        self._on_left: list[OnLeft] = []
        self._left: deque[tuple[int, StreamMetrics]] = deque()

    def record(self, event: TraceEvent) -> None:
        if not self.enabled:
            return
        if self._left:
            self.flush()
        self._events.append(event)
        for sink in self._sinks:
            sink(event)

    def add_sink(self, sink: Sink, *, on_left: OnLeft | None = None) -> None:
        """`sink` is called with every event, in the thread that records it; it should return soon and must not raise.

        `on_left` is told of a call that has no response because its reader closed the stream: what hangs on it may end.
        """
        self._sinks.append(sink)
        if on_left is not None:
            self._on_left.append(on_left)

    def leave(self, number: int, metrics: StreamMetrics) -> None:
        """The reader of a call left: no event, since nothing came, but sinks may let go of it."""
        if self.enabled:
            for on_left in self._on_left:
                on_left(number, metrics)

    def left_behind(self, number: int, metrics: StreamMetrics) -> None:
        """A stream was collected before its end. Only noted, since that may happen in the middle of anything: see `flush`."""
        self._left.append((number, metrics))

    def flush(self) -> None:
        """Tells sinks of streams that nobody holds any more; otherwise they are told soon, or with the next event."""
        while self._left:
            try:
                number, metrics = self._left.popleft()
            except IndexError:  # another thread was quicker
                return
            self.leave(number, metrics)

    def clear(self) -> None:
        self._events.clear()

    def events(
        self,
        kind: type[EventT] | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        correlation_id: str | None = None,
        where: Callable[[TraceEvent], bool] | None = None,
    ) -> list[TraceEvent]:
        """Recorded events that pass every filter, oldest first."""
        return [
            event
            for event in list(self._events)
            if (kind is None or isinstance(event, kind))
            and (since is None or event.at >= since)
            and (until is None or event.at <= until)
            and (correlation_id is None or event.correlation_id == correlation_id)
            and (where is None or where(event))
        ]
