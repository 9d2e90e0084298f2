"""A tool from a function; the answer streams before and after it runs."""

from models import model

import strom


def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: where
    """
    return f"sunny and 21 degrees in {city}"


for event in model().stream("What is the weather in Rome?", tools=[weather]):
    match event:
        case strom.StreamContent(text=text):
            print(text, end="", flush=True)
        case strom.StreamToolCall(call=call):
            print(f"[{call.name} {call.arguments}]")
        case strom.StreamToolResult(result=result, error=error):
            print(f"[{error or result}]")
        case strom.StreamError(detail=detail):
            print(f"[no complete answer: {detail}]")
print()
