"""Running tools: whatever happens inside of one becomes its outcome; the order of outcomes is the order of calls.

Sync streams run functions in the thread that reads the stream (several at once: in threads), coroutines on the background
loop; async streams await coroutines and run functions in threads. Both keep the context variables of the reader.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from strom.client.evidence import ToolCall
from strom.client.schemas import ShapeError
from strom.client.signals import RunTools, ToolOutcome
from strom.client.tools import Tool, ToolContext, ToolOutput, model_text
from strom.core.errors import StromError

Await = Callable[[Coroutine[Any, Any, Any]], Any]


class ToolBox:
    """The tools of a run. `context` is the caller's own, `clock` times the calls for the tracer."""

    def __init__(
        self, tools: Mapping[str, Tool], correlation_id: str, context: Any, clock: Callable[[], float]
    ) -> None:
        self.tools = tools
        self._correlation_id = correlation_id
        self._context = context
        self._clock = clock

    def begin(self, call: ToolCall) -> Running:
        return Running(call, self._clock)

    def bind(self, call: ToolCall) -> tuple[Tool, dict[str, Any]]:
        """Raises ShapeError, worded for the model, for a call that cannot be run."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            raise ShapeError(f"there is no tool {call.name!r}; known are {known}")
        if call.invalid:
            raise ShapeError(call.invalid)
        context = ToolContext(call.id, call.name, self._correlation_id, self._context)
        return tool, tool.bind(call.arguments, context)

    # -- the two ways

    def run(self, wanted: RunTools, wait_for: Await) -> list[ToolOutcome]:
        """In this thread, or in several at once. `wait_for` runs a coroutine to its end."""
        if wanted.concurrency == 1 or len(wanted.calls) == 1:
            return [self._run_one(call, wait_for) for call in wanted.calls]
        with ThreadPoolExecutor(wanted.concurrency or len(wanted.calls), thread_name_prefix="strom-tool") as pool:
            copies = [contextvars.copy_context() for _ in wanted.calls]
            jobs = [
                pool.submit(copy.run, self._run_one, call, wait_for)
                for copy, call in zip(copies, wanted.calls, strict=True)
            ]
            return [job.result() for job in jobs]

    async def run_async(self, wanted: RunTools) -> list[ToolOutcome]:
        gate = asyncio.Semaphore(wanted.concurrency or len(wanted.calls))

        async def one(call: ToolCall) -> ToolOutcome:
            async with gate:
                return await self._run_one_async(call)

        return list(await asyncio.gather(*(one(call) for call in wanted.calls)))

    def _run_one(self, call: ToolCall, wait_for: Await) -> ToolOutcome:
        with self.begin(call) as running:
            tool, arguments = self.bind(call)
            running.exits = tool.exits
            result = tool(**arguments)
            running.result = wait_for(result) if asyncio.iscoroutine(result) else result
        return running.outcome()

    async def _run_one_async(self, call: ToolCall) -> ToolOutcome:
        with self.begin(call) as running:
            tool, arguments = self.bind(call)
            running.exits = tool.exits
            if tool.is_async:
                running.result = await tool(**arguments)
            else:
                result = await asyncio.to_thread(tool, **arguments)
                running.result = await result if asyncio.iscoroutine(result) else result
        return running.outcome()


class Running:
    """Around one call: an exception inside becomes the outcome. A cancellation is no Exception and passes."""

    __slots__ = ("_call", "_clock", "_ended_at", "_error", "_started_at", "exits", "result")

    def __init__(self, call: ToolCall, clock: Callable[[], float]) -> None:
        self._call = call
        self._clock = clock
        self._error: Exception | None = None
        self.result: Any = None
        self.exits = False
        self._started_at = self._ended_at = 0.0

    def __enter__(self) -> Running:
        self._started_at = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._ended_at = self._clock()
        if isinstance(error, Exception):
            self._error = error
            return True
        return False

    def outcome(self) -> ToolOutcome:
        start, end = self._started_at, self._ended_at
        error = self._error
        if error is not None:
            words = _words_for(error)
            return ToolOutcome(self._call, None, words, words, started_at=start, ended_at=end)
        result = self.result
        if not isinstance(result, ToolOutput):
            result = ToolOutput(result)
        seen = result.for_model if result.for_model is not None else model_text(result.data)
        return ToolOutcome(self._call, result.data, seen, exits=self.exits, started_at=start, ended_at=end)


def _words_for(error: Exception) -> str:
    """What the model is told."""
    if isinstance(error, ShapeError):
        return f"invalid arguments: {error}"
    if isinstance(error, StromError):
        return error.message
    return f"{type(error).__name__}: {error}"
