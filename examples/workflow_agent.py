"""A ready agent: it calls tools until it can answer. Its state is JSON, so that the conversation may go on later."""

import asyncio

from models import async_model

from strom.workflow import Agent, TextDelta, ToolCalled, ToolReturned


def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: where
    """
    return f"sunny and 21 degrees in {city}"


async def main() -> None:
    agent = Agent(async_model(), tools=[weather], system="You answer in one sentence.", max_rounds=3)
    handler = agent.run(prompt="What is the weather in Rome?")
    async for event in handler.stream_events():
        match event:
            case TextDelta():
                print(event.text, end="", flush=True)
            case ToolCalled():
                print(f"[{event.name} {event.arguments}]")
            case ToolReturned():
                print(f"[{event.error or event.value}]")
    answered = await handler
    print(f"\n[{answered.rounds} rounds, {len(answered.state)} characters of state]")
    await agent.run(prompt="And tomorrow?", state=answered.state)


asyncio.run(main())
