"""A step that streams: every delta is an event of the run, the buffered whole ends it, and cancelling closes the upstream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from workflows import Context, Workflow, step
from workflows.errors import WorkflowCancelledByUser
from workflows.events import Event, StartEvent, StopEvent

import strom
from strom.workflow import Answered, PartialValue, TextDelta, ThinkingDelta, ToolCalled, ToolReturned, answer, forward
from strom.workflow.events import plain, published
from tests.patience import PATIENCE_S, until
from tests.workflow.conftest import Stubborn


class Ask(StartEvent):
    prompt: str


class Telling(Workflow):
    """One step; `sink` in place of the run's own stream."""

    def __init__(self, model: strom.AsyncModel, sink: Any = None, **options: Any) -> None:
        super().__init__(timeout=None)
        self._model, self._to, self._options = model, sink, options

    @step
    async def tell(self, ctx: Context, ev: Ask) -> Answered:
        return await answer(self._model.stream(ev.prompt, **self._options), self._to or ctx)


async def test_deltas_reach_the_runs_stream_and_the_whole_is_its_stop_event(model: strom.AsyncModel) -> None:
    handler = Telling(model).run(prompt="once upon a time")
    seen = [event async for event in handler.stream_events()]
    texts = [event.text for event in seen if isinstance(event, TextDelta)]
    assert texts == ["once ", "upon ", "a ", "time "]
    last = seen[-1]
    assert isinstance(last, Answered)
    assert isinstance(last, StopEvent)
    assert (last.text, last.finish_reason, last.model) == ("once upon a time ", "stop", "used-1")
    assert last.usage is not None
    assert last.usage["output_tokens"] == 7
    assert last.timing is not None
    assert last.timing["first_token_kind"] == "content"
    assert await handler == last
    assert last.model_dump_json()  # a durable runtime can keep it


async def test_a_delta_leaves_before_the_answer_is_complete(model: strom.AsyncModel, backend: Stubborn) -> None:
    handler = Telling(model).run(prompt="hang")
    async with asyncio.timeout(PATIENCE_S):
        first = await anext(handler.stream_events())
    assert isinstance(first, TextDelta)
    assert first.text == "first"
    assert backend.open == 1
    await handler.cancel_run()


async def test_cancelling_the_run_closes_the_upstream(model: strom.AsyncModel, backend: Stubborn) -> None:
    handler = Telling(model).run(prompt="hang")
    await anext(handler.stream_events())
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    await until(lambda: backend.open == 0)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_any_function_may_be_the_sink(model: strom.AsyncModel, kind: str) -> None:
    got: list[Event] = []

    async def put(event: Event) -> None:
        got.append(event)

    handler = Telling(model, got.append if kind == "sync" else put).run(prompt="one two")
    seen = [event async for event in handler.stream_events()]
    assert [event.text for event in got if isinstance(event, TextDelta)] == ["one ", "two "]
    assert [type(event) for event in seen] == [Answered]


async def test_without_a_workflow(model: strom.AsyncModel) -> None:
    got: list[Event] = []
    reply = await forward(model.stream("one two"), got.append)
    assert (reply.text, len(got)) == ("one two ", 2)


async def test_no_stop_event_without_a_complete_answer(model: strom.AsyncModel) -> None:
    handler = Telling(model).run(prompt="refuse")
    with pytest.raises(strom.StreamFailed) as failed:
        await handler
    assert failed.value.reason is strom.StreamErrorReason.REQUEST_FAILED
    stop = [event async for event in handler.stream_events()]
    assert not any(isinstance(event, Answered) for event in stop)


async def test_a_failing_sink_closes_the_upstream(model: strom.AsyncModel, backend: Stubborn) -> None:
    def full(_: Event) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await forward(model.stream("hang"), full)
    await until(lambda: backend.open == 0)


async def test_tools_that_the_library_runs_are_published(model: strom.AsyncModel) -> None:
    def f(a: int) -> str:
        return f"result {a}"

    handler = Telling(model, tools=[f]).run(prompt="go")
    seen = [event async for event in handler.stream_events()]
    called = next(event for event in seen if isinstance(event, ToolCalled))
    returned = next(event for event in seen if isinstance(event, ToolReturned))
    assert (called.name, called.arguments) == ("f", {"a": 1})
    assert (returned.call_id, returned.value, returned.error) == (called.call_id, "result 1", None)


# --- the two kinds of events ---------------------------------------------------------------------


@dataclass
class Person:
    name: str


@pytest.mark.parametrize(
    ("event", "made"),
    [
        (strom.StreamContent("a"), TextDelta(text="a")),
        (strom.StreamThinking("a"), ThinkingDelta(text="a")),
        (strom.StreamPartial({"a": 1}), PartialValue(value={"a": 1})),
        (
            strom.StreamToolCall(strom.ToolCall("c", "f", {"a": 1})),
            ToolCalled(call_id="c", name="f", arguments={"a": 1}),
        ),
        (
            strom.StreamToolResult("c", Person("Ann"), "f"),
            ToolReturned(call_id="c", name="f", value={"name": "Ann"}),
        ),
        (strom.StreamCompleted(strom.CompletionMetadata()), None),
        (strom.StreamError(strom.StreamErrorReason.CANCELLED, "x", strom.CompletionMetadata()), None),
    ],
)
def test_each_event_of_the_library_has_its_own_of_the_workflow(event: strom.StreamEvent, made: Event | None) -> None:
    found = published(event)
    assert found == made
    assert not isinstance(event, Event)


def test_values_become_plain() -> None:
    from pydantic import BaseModel

    class Model(BaseModel):
        name: str

    assert plain({"a": Model(name="x"), "b": Person("y"), "c": 1 + 2j}) == {
        "a": {"name": "x"},
        "b": {"name": "y"},
        "c": "(1+2j)",
    }
