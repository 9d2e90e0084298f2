"""The agent: its loop, its cap, its exit, its events, and that a run may be stopped, kept as JSON and resumed."""

from __future__ import annotations

import asyncio
import json

import pytest
from workflows.errors import WorkflowCancelledByUser
from workflows.events import Event

import strom
from strom.workflow import Agent, AgentAnswered, TextDelta, ToolCalled, ToolReturned
from tests.patience import until
from tests.workflow.conftest import Stubborn


def f(a: int) -> str:
    """A tool."""
    return f"result {a}"


async def run(agent: Agent, prompt: str, state: str = "") -> tuple[list[Event], AgentAnswered]:
    handler = agent.run(prompt=prompt, state=state)
    seen = [event async for event in handler.stream_events()]
    answered = await handler
    assert isinstance(answered, AgentAnswered)
    return seen, answered


async def test_it_calls_tools_until_it_can_answer(model: strom.AsyncModel, backend: Stubborn) -> None:
    seen, answered = await run(Agent(model, tools=[f], system="Be brief."), "go")
    assert [type(event) for event in seen] == [ToolCalled, ToolReturned, TextDelta, TextDelta, AgentAnswered]
    assert (answered.text, answered.rounds, answered.finish_reason) == ("result 1 ", 1, "stop")
    assert answered.usage is not None
    assert (answered.usage["input_tokens"], answered.usage["output_tokens"]) == (10, 14)
    assert [message["role"] for message in backend.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert backend.requests[1]["messages"][3]["content"] == "result 1"


async def test_its_state_carries_the_conversation_on(model: strom.AsyncModel, backend: Stubborn) -> None:
    agent = Agent(model, tools=[f], system="Be brief.")
    _, first = await run(agent, "go")
    json.loads(first.state)
    _, second = await run(agent, "more", first.state)
    roles = [message["role"] for message in backend.requests[2]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert second.rounds == 1


async def test_the_cap_gives_one_more_request_without_tools(model: strom.AsyncModel, backend: Stubborn) -> None:
    seen, answered = await run(Agent(model, tools=[f], max_rounds=2), "again")
    assert (answered.rounds, answered.text) == (2, "at last ")
    assert ["tools" in body for body in backend.requests] == [True, True, False]
    assert sum(isinstance(event, ToolCalled) for event in seen) == 2


async def test_an_exit_tool_ends_the_run(model: strom.AsyncModel, backend: Stubborn) -> None:
    @strom.tool(name="f", exits=True)
    def done(a: int) -> dict[str, int]:
        return {"found": a}

    seen, answered = await run(Agent(model, tools=[done]), "again")
    assert (answered.value, answered.rounds, len(backend.requests)) == ({"found": 1}, 1, 1)
    assert isinstance(seen[-1], AgentAnswered)
    assert "found" in answered.state


async def test_a_tool_that_fails_is_told_to_the_model(model: strom.AsyncModel) -> None:
    def broken(a: int) -> str:
        raise ValueError("no luck")

    seen, answered = await run(Agent(model, tools=[strom.tool(name="f")(broken)]), "go")
    returned = next(event for event in seen if isinstance(event, ToolReturned))
    assert returned.error == "ValueError: no luck"
    assert "no luck" in answered.text


@pytest.mark.parametrize(("parallel", "most"), [(1, 1), (0, 2)])
async def test_several_calls_run_in_turn_or_at_once(
    model: strom.AsyncModel, backend: Stubborn, parallel: int, most: int
) -> None:
    running = peak = 0

    @strom.tool(name="f")
    async def slow(a: int) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01 / a)
        running -= 1
        return f"r{a}"

    await run(Agent(model, tools=[slow], parallel_tools=parallel), "two")
    assert peak == most
    results = [message["content"] for message in backend.requests[1]["messages"] if message["role"] == "tool"]
    assert results == ["r1", "r2"]  # in call order, whichever ended first


async def test_calls_and_tools_are_traced_under_one_id(backend: Stubborn) -> None:
    tracer = strom.Tracer()
    agent = Agent(strom.AsyncModel("m", base_url=backend.url, tracer=tracer), tools=[f])
    await run(agent, "go")
    kinds = [type(event).__name__ for event in tracer.events()]
    assert kinds == ["TraceCall", "TraceResponse", "TraceTool", "TraceBatch", "TraceCall", "TraceResponse"]
    assert len({event.correlation_id for event in tracer.events()}) == 1


async def test_any_sink(model: strom.AsyncModel) -> None:
    got: list[Event] = []
    seen, _ = await run(Agent(model, tools=[f], sink=got.append), "go")
    assert [type(event) for event in got] == [ToolCalled, ToolReturned, TextDelta, TextDelta]
    assert [type(event) for event in seen] == [AgentAnswered]


async def test_a_failed_request_fails_the_run(model: strom.AsyncModel) -> None:
    with pytest.raises(strom.StreamFailed):
        await Agent(model).run(prompt="refuse")


def test_what_cannot_be_run_is_refused(model: strom.AsyncModel) -> None:
    with pytest.raises(strom.BadRequest, match="no function"):
        Agent(model, tools=[{"name": "f"}])
    with pytest.raises(strom.BadRequest, match="same name"):
        Agent(model, tools=[f, f])


# --- stop, keep, resume --------------------------------------------------------------------------


async def stop_at(agent: Agent, prompt: str, kind: type[Event]) -> str:
    """The snapshot of a run that is cancelled after its first event of that kind."""
    handler = agent.run(prompt=prompt)
    async for event in handler.stream_events():
        if isinstance(event, kind):
            break
    snapshot = agent.snapshot(handler)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    return json.dumps(json.loads(snapshot))


async def test_a_cut_request_is_asked_anew(model: strom.AsyncModel, backend: Stubborn) -> None:
    snapshot = await stop_at(Agent(model), "hang", TextDelta)
    await until(lambda: backend.open == 0)
    handler = Agent(model).resume(snapshot)
    first = await anext(handler.stream_events())
    assert isinstance(first, TextDelta)
    assert first.text == "first"
    assert backend.requests[0] == backend.requests[1]
    await handler.cancel_run()


async def test_a_tool_that_had_returned_does_not_run_again(model: strom.AsyncModel, backend: Stubborn) -> None:
    ran: list[int] = []
    gate = asyncio.Event()

    @strom.tool(name="f")
    async def tool(a: int) -> str:
        ran.append(a)
        if a == 2:
            await gate.wait()
        return f"r{a}"

    snapshot = await stop_at(Agent(model, tools=[tool]), "two", ToolReturned)
    assert ran == [1, 2]
    gate.set()
    answered: object = await Agent(model, tools=[tool]).resume(snapshot)
    assert ran == [1, 2, 2]
    assert isinstance(answered, AgentAnswered)
    assert answered.rounds == 1
    results = [message["content"] for message in backend.requests[1]["messages"] if message["role"] == "tool"]
    assert results == ["r1", "r2"]


async def test_what_is_no_snapshot_or_state_is_refused(model: strom.AsyncModel) -> None:
    agent = Agent(model)
    for bad in ("", "[]", '{"a": 1}', "nonsense"):
        with pytest.raises(strom.BadRequest, match="no snapshot"):
            agent.resume(bad)
    with pytest.raises(strom.BadRequest, match="no state"):
        await agent.run(prompt="go", state="{}")


async def test_a_snapshot_cannot_name_foreign_types(model: strom.AsyncModel) -> None:
    agent = Agent(model)
    snapshot = await stop_at(agent, "hang", TextDelta)
    foreign = snapshot.replace("strom.workflow.agent.Think", "subprocess.Popen")
    assert foreign != snapshot
    with pytest.raises(strom.BadRequest, match="no snapshot"):
        agent.resume(foreign)


async def test_a_run_that_ended_cannot_be_resumed(model: strom.AsyncModel) -> None:
    agent = Agent(model)
    handler = agent.run(prompt="one two")
    await handler
    with pytest.raises(strom.BadRequest, match="had ended"):
        agent.resume(agent.snapshot(handler))
