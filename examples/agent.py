"""An agent: tools until the work is done, a typed result at the end, words as they come. See docs/tutorial/agent.md."""

from dataclasses import dataclass

from models import model

import strom


@dataclass
class Stop:
    place: str
    hour: int


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}, 21 degrees"


async def opening_hours(place: str) -> strom.ToolOutput:
    """When a place is open."""
    hours = {"Forum": (9, 19), "Pantheon": (8, 20)}.get(place, (10, 18))
    return strom.ToolOutput(data=hours, for_model=f"{place} is open from {hours[0]} to {hours[1]}")


@strom.tool(exits=True)
def finish(stops: list[Stop]) -> list[Stop]:
    """Hand in the finished plan."""
    return stops


def run(prompt: str) -> list[Stop]:
    stream = model().stream(
        prompt,
        system="Plan visits. Look up what you need, then call finish.",
        tools=[weather, opening_hours, finish],
        parallel_tools=0,
        max_rounds=5,
    )
    with stream:
        for event in stream:
            match event:
                case strom.StreamContent(text=text):
                    print(text, end="", flush=True)
                case strom.StreamToolCall(call=call):
                    print(f"\n[{call.name}]", end="")
                case strom.StreamToolResult(result=result, error=error):
                    print(f"\n  -> {error or result}", end="")
                case strom.StreamCompleted(value=plan):
                    print()
                    return plan or []  # None: the model said goodbye without calling finish
        print("\nno plan:", stream.failure.detail if stream.failure else "")
    return []


for stop in run("Plan a morning in Rome."):
    print(f"{stop.hour}:00 {stop.place}")
