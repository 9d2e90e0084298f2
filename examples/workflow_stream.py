"""A step of a workflow that streams: each delta goes to the run's events, the whole answer ends the run."""

import asyncio

from models import async_model
from workflows import Context, Workflow, step
from workflows.events import StartEvent

from strom.workflow import Answered, TextDelta, answer


class Story(Workflow):
    @step
    async def write(self, ctx: Context, ev: StartEvent) -> Answered:
        return await answer(async_model().stream(f"Tell me a story about {ev.topic}."), ctx)


async def main() -> None:
    handler = Story(timeout=None).run(topic="a river")
    async for event in handler.stream_events():
        if isinstance(event, TextDelta):
            print(event.text, end="", flush=True)
    answered = await handler
    print(f"\n[{answered.finish_reason}, {len(answered.text)} characters]")


asyncio.run(main())
