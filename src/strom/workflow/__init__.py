"""Models inside event-driven workflows: streams forwarded from a step, and a ready agent. Extra: `strom[workflow]`.

The engine is LlamaIndex Workflows (package `llama-index-workflows`), with its own runtimes, durable ones included:

    class Story(Workflow):
        @step
        async def write(self, ctx: Context, ev: StartEvent) -> Answered:
            return await answer(model.stream("Tell me a story"), ctx)

Events of the library and events of a workflow stay separate types: the first are what a model's stream says, the second what
a run publishes, may store and send elsewhere.
"""

from strom.workflow.agent import Agent, AgentAnswered, AgentOptions, AgentStart
from strom.workflow.events import Answered, PartialValue, TextDelta, ThinkingDelta, ToolCalled, ToolReturned
from strom.workflow.forwarding import Sink, answer, forward

__all__ = [
    "Agent",
    "AgentAnswered",
    "AgentOptions",
    "AgentStart",
    "Answered",
    "PartialValue",
    "Sink",
    "TextDelta",
    "ThinkingDelta",
    "ToolCalled",
    "ToolReturned",
    "answer",
    "forward",
]
