"""A ready agent: a model, its tools, and a loop between them as steps of a workflow.

    AgentStart ─▶ begin ─▶ Think ─▶ think ─┬─ an answer ──────────────▶ AgentAnswered
                             ▲             └─ tool calls ─▶ Act ─▶ act ─┬─ an exit tool ─▶ AgentAnswered
                             └──────────────────────────────────────────┘

Each request and each round of tools is a step, so a run may be stopped at any point, kept as JSON, and resumed: a request that
was cut is asked anew, a tool that had returned does not run again. After `max_rounds` rounds one more request, without tools.
State changes only at the end of `begin` and `act`, and both may run twice without harm.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from typing import Any, TypedDict, Unpack

import msgspec
from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.context import JsonSerializer
from workflows.errors import ContextSerdeError
from workflows.events import Event, StartEvent
from workflows.handler import WorkflowHandler
from workflows.runtime.types.plugin import Runtime

from strom.client.async_model import AsyncModel
from strom.client.evidence import ToolCall, add_usage
from strom.client.journal import Journal
from strom.client.messages import message_from_json, message_to_json, results_message
from strom.client.options import CallOptions
from strom.client.reply import Reply
from strom.client.signals import RunTools, ToolOutcome
from strom.client.tool_running import ToolBox
from strom.client.tools import Tool, ToolLike, as_tool
from strom.core.errors import BadRequest
from strom.core.messages import Message, TextPart
from strom.core.usage import Usage
from strom.workflow.events import Answered, ToolReturned, plain
from strom.workflow.forwarding import Sink, forward, writer

Json = dict[str, Any]


class AgentOptions(TypedDict, total=False):
    tools: Iterable[ToolLike]
    """Functions; one that is `tool(exits=True)` ends the run with its result."""
    system: str
    max_rounds: int | None
    """Rounds of tool calls, default 10; None: no limit."""
    parallel_tools: int
    """How many calls of one round run at once; 1 by default, 0: all."""
    tool_context: Any
    call: CallOptions
    """Further options of every request: config, retry, into …"""
    sink: Sink
    """Where events go; by default the run's own event stream."""
    timeout_s: float | None
    """Of a whole run; none by default."""
    runtime: Runtime
    """The engine's runtime, a durable one for instance."""


class AgentStart(StartEvent):
    """`state`: that of an earlier AgentAnswered, to go on with its conversation."""

    prompt: str
    state: str = ""


class AgentAnswered(Answered):
    """`value`: what an exit tool returned, or the object of `into=`. `usage` is that of the whole run.

    `state`: the conversation with this answer, as JSON for the next AgentStart.
    """

    rounds: int = 0
    state: str = ""


class Think(Event):
    """Ask the model."""

    round: int


class Act(Event):
    """Run these calls. `added`: the messages of the model that hold them."""

    round: int
    calls: list[Json]
    added: list[Json]
    usage: Json | None = None


class Outcome(BaseModel):
    """What a call gave, before the round is over."""

    data: Any = None
    for_model: str = ""
    error: str | None = None
    exits: bool = False


class AgentState(BaseModel):
    """What a run knows. `outcomes`: of calls of the present round, by their place in it."""

    correlation_id: str = ""
    messages: list[Json] = []
    rounds: int = 0
    usage: Json | None = None
    outcomes: dict[str, Outcome] = {}


class Agent(Workflow):
    """Run it with a prompt; its events are those of `strom.workflow.events`, its result an AgentAnswered.

    agent = Agent(strom.AsyncModel("ollama/qwen3:8b"), tools=[weather])
    handler = agent.run(prompt="What is the weather in Rome?")
    async for event in handler.stream_events():
        ...
    answered = await handler
    """

    def __init__(self, model: AsyncModel, **options: Unpack[AgentOptions]) -> None:
        """Raises BadRequest for a tool without a function, or two of one name."""
        engine: dict[str, Any] = {"runtime": options["runtime"]} if "runtime" in options else {}
        super().__init__(timeout=options.get("timeout_s"), **engine)
        self._model = model
        self._tools = _by_name(options.get("tools", ()))
        self._system = options.get("system", "")
        self._max_rounds = options.get("max_rounds", 10)
        self._parallel = options.get("parallel_tools", 1)
        self._tool_context = options.get("tool_context")
        self._call: CallOptions = options.get("call", {})
        self._sink = options.get("sink")

    def snapshot(self, handler: WorkflowHandler) -> str:
        """A run as it stands, as JSON, finished or not."""
        return msgspec.json.encode(handler.ctx.to_dict(serializer=_SERIALIZER)).decode()

    def resume(self, snapshot: str | bytes) -> WorkflowHandler:
        """Goes on with a run where its snapshot was taken. Raises BadRequest for what is no snapshot of a running one."""
        try:
            saved = msgspec.json.decode(snapshot, type=dict[str, Any])
            context = Context.from_dict(self, saved, serializer=_SERIALIZER)
        except (msgspec.DecodeError, ContextSerdeError, KeyError) as error:
            raise BadRequest(f"This is no snapshot of an agent's run: {error}") from None
        if not context.is_running:
            raise BadRequest("This is no snapshot of an agent's run that could go on: it had ended.")
        return self.run(ctx=context)

    # -- steps

    @step
    async def begin(self, ctx: Context[AgentState], ev: AgentStart) -> Think:
        before = _load(ev.state) if ev.state else self._fresh()
        prompt = message_to_json(Message("user", (TextPart(ev.prompt),)))
        async with ctx.store.edit_state() as state:
            state.correlation_id = uuid.uuid4().hex
            state.messages = [*before, prompt]
        return Think(round=0)

    @step
    async def think(self, ctx: Context[AgentState], ev: Think) -> Act | AgentAnswered:
        state = await ctx.store.get_state()
        messages = [message_from_json(message) for message in state.messages]
        stream = self._model.stream(messages, **self._options(state, ev.round))
        reply = await forward(stream, self._sink or ctx)
        added = [message_to_json(message) for message in reply.messages]
        if not reply.tool_calls:
            return self._answered(state, reply, added)
        calls = [msgspec.to_builtins(call) for call in reply.tool_calls]
        return Act(round=ev.round, calls=calls, added=added, usage=plain(reply.usage))

    @step
    async def act(self, ctx: Context[AgentState], ev: Act) -> Think | AgentAnswered:
        if (await ctx.store.get_state()).rounds > ev.round:
            return Think(round=ev.round + 1)  # it had been done when the run was stopped
        calls = tuple(msgspec.convert(call, ToolCall) for call in ev.calls)
        outcomes = await self._run(ctx, calls)
        added = [*ev.added, message_to_json(results_message(outcomes))]
        usage = _usage(ev.usage)
        for outcome in outcomes:
            if outcome.exits and outcome.error is None:
                return self._exited(await ctx.store.get_state(), outcome, added, usage)
        async with ctx.store.edit_state() as state:
            state.messages = [*state.messages, *added]
            state.usage = plain(add_usage(_usage(state.usage), usage))
            state.rounds = ev.round + 1
            state.outcomes = {}
        return Think(round=ev.round + 1)

    # -- inside

    def _fresh(self) -> list[Json]:
        return [message_to_json(Message("system", (TextPart(self._system),)))] if self._system else []

    def _options(self, state: AgentState, rounds: int) -> CallOptions:
        """`max_rounds` 0: no tool may be called any more."""
        options: CallOptions = {
            **self._call,
            "tools": list(self._tools.values()),
            "run_tools": False,
            "correlation_id": state.correlation_id,
        }
        if self._max_rounds is not None and rounds >= self._max_rounds:
            options["max_rounds"] = 0
        return options

    async def _run(self, ctx: Context[AgentState], calls: tuple[ToolCall, ...]) -> list[ToolOutcome]:
        """In call order. Each outcome is kept as soon as it is there."""
        state = await ctx.store.get_state()
        box = ToolBox(self._tools, state.correlation_id, self._tool_context, time.monotonic)
        put = writer(self._sink or ctx)
        gate = asyncio.Semaphore(self._parallel or len(calls))
        fresh: list[ToolOutcome] = []

        async def one(index: int, call: ToolCall) -> ToolOutcome:
            kept = state.outcomes.get(str(index))
            if kept is not None:
                return ToolOutcome(call, kept.data, kept.for_model, kept.error, kept.exits)
            async with gate:
                (outcome,) = await box.run_async(RunTools((call,), 1))
            fresh.append(outcome)
            await _keep(ctx, index, outcome)
            await put(ToolReturned(call_id=call.id, name=call.name, value=plain(outcome.data), error=outcome.error))
            return outcome

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(index, call)) for index, call in enumerate(calls)]
        Journal(self._model.tracer, state.correlation_id).tools(RunTools(calls, self._parallel), fresh)
        return [task.result() for task in tasks]

    def _answered(self, state: AgentState, reply: Reply, added: list[Json]) -> AgentAnswered:
        answered = AgentAnswered.of(reply)
        answered.rounds = state.rounds
        answered.usage = plain(add_usage(_usage(state.usage), reply.usage))
        answered.state = _dump([*state.messages, *added])
        return answered

    def _exited(self, state: AgentState, outcome: ToolOutcome, added: list[Json], usage: Usage | None) -> AgentAnswered:
        return AgentAnswered(
            text=outcome.for_model,
            value=plain(outcome.data),
            finish_reason="tool_calls",
            rounds=state.rounds + 1,
            usage=plain(add_usage(_usage(state.usage), usage)),
            state=_dump([*state.messages, *added]),
        )


_SERIALIZER = JsonSerializer(allowed_types=[AgentStart, AgentAnswered, AgentState, Think, Act, Outcome])
"""A snapshot names types; no others are made from one."""


async def _keep(ctx: Context[AgentState], index: int, outcome: ToolOutcome) -> None:
    async with ctx.store.edit_state() as state:
        kept = Outcome(data=plain(outcome.data), for_model=outcome.for_model, error=outcome.error, exits=outcome.exits)
        state.outcomes = {**state.outcomes, str(index): kept}


def _by_name(given: Iterable[ToolLike]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in map(as_tool, given):
        if tool.function is None:
            raise BadRequest(f"The tool {tool.name!r} has no function to run.", param="tools")
        if tool.name in found:
            raise BadRequest(f"Two tools have the same name, {tool.name!r}.", param="tools")
        found[tool.name] = tool
    return found


def _usage(saved: Json | None) -> Usage | None:
    return None if saved is None else msgspec.convert(saved, Usage)


def _dump(messages: list[Json]) -> str:
    return msgspec.json.encode({"version": 1, "messages": messages}).decode()


def _load(state: str) -> list[Json]:
    """Raises BadRequest."""
    try:
        saved = msgspec.json.decode(state)
        messages = [message_to_json(message_from_json(message)) for message in saved["messages"]]
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise BadRequest(f"This is no state of an agent: {error}", param="state") from None
    return messages
