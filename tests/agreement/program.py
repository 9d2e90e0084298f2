"""The program whose text is the same everywhere, and what it sees: a stream, tools, structured answers, a session."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

import strom
from strom.client.events import StreamEvent
from tests.agreement.turns import Asked, Call, Turn

Seen = list[tuple[object, ...]]


class Person(msgspec.Struct):
    name: str
    age: int


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def script(asked: Asked) -> Turn:
    """What the backend answers to this program."""
    match asked.prompt:
        case "person":
            return Turn('{"name": "Ann", "age": 30}')
        case "refuse":
            return Turn(status=503)
        case "cut":
            return Turn("half an ans", cut=True)
        case "long":
            return Turn("too long to", reason="length")
        case "think":
            return Turn("Yes.", thinking="Let me see. ")
        case "one city" | "two cities" if asked.tools and not asked.results:
            cities = ("Rome", "Oslo")[: 1 if asked.prompt == "one city" else 2]
            return Turn("I look it up. ", calls=tuple(Call("weather", {"city": city}) for city in cities))
        case "one city" | "two cities":
            return Turn("It is " + " and ".join(asked.results) + ".")
        case prompt:
            return Turn(f"You said {prompt}.")


def run(model: strom.Model) -> dict[str, Seen]:
    session = model.session(system="Be brief.")
    return {
        "stream": seen(model.stream("hello")),
        "thinking": seen(model.stream("think")),
        "tool": seen(model.stream("one city", tools=[weather])),
        "tools": seen(model.stream("two cities", tools=[weather], parallel_tools=0)),
        "structured": seen(model.stream("person", into=Person)),
        "whole": [("reply", model.complete("person", into=Person).value, model.complete("hello").text)],
        "session": [*seen(session.stream("one city", tools=[weather])), ("said", session.send("and now").text)],
        "roles": [tuple(message.role for message in session.messages)],
        "cut": seen(model.stream("cut")),
        "length": seen(model.stream("long")),
        "refused": seen(model.stream("refuse")),
    }


async def run_async(model: strom.AsyncModel) -> dict[str, Seen]:
    async def read(stream: strom.AsyncStream) -> Seen:
        return seen([event async for event in stream])

    return {
        "stream": await read(model.stream("hello")),
        "tools": await read(model.stream("two cities", tools=[weather], parallel_tools=0)),
        "structured": await read(model.stream("person", into=Person)),
        "cut": await read(model.stream("cut")),
    }


def seen(events: Iterable[StreamEvent]) -> Seen:
    """Every event, without ids, times and the words of errors.

    Partial values come once per read of the network, so only the last of each series is compared.
    """
    views = [_view(event) for event in events]
    following = [*views[1:], ("end",)]
    return [view for view, after in zip(views, following, strict=True) if (view[0], after[0]) != ("partial", "partial")]


def _view(event: StreamEvent) -> tuple[object, ...]:
    match event:
        case strom.StreamContent(text) | strom.StreamThinking(text):
            return event.type, text
        case strom.StreamToolCall(call):
            return "call", call.name, call.arguments
        case strom.StreamToolResult():
            return "result", event.result, event.error
        case strom.StreamPartial(value):
            return "partial", value
        case strom.StreamCompleted():
            usage = event.metadata.usage
            return "completed", event.value, event.metadata.finish_reason, usage and usage.output_tokens
        case strom.StreamError():
            return "error", event.reason.value, event.metadata.finish_reason, event.metadata.text


def _texts(*pieces: str) -> Seen:
    return [("content", piece) for piece in pieces]


_ASKS = _texts("I ", "look ", "it ", "up. ")
_ROME, _OSLO = (("call", "weather", {"city": city}) for city in ("Rome", "Oslo"))
_STOP = ("completed", None, "stop", 7)
_STOP_AFTER_TOOLS = ("completed", None, "stop", 14)
_ONE_CITY: Seen = [
    *_ASKS, _ROME, ("result", "sunny in Rome", None), *_texts("It ", "is ", "sunny ", "in ", "Rome."), _STOP_AFTER_TOOLS,
]  # fmt: skip

EXPECTED: dict[str, Seen] = {
    "stream": [*_texts("You ", "said ", "hello."), _STOP],
    "thinking": [("thinking", "Let me see. "), *_texts("Yes."), _STOP],
    "tool": _ONE_CITY,
    "tools": [
        *_ASKS, _ROME, _OSLO, ("result", "sunny in Rome", None), ("result", "sunny in Oslo", None),
        *_texts("It ", "is ", "sunny ", "in ", "Rome ", "and ", "sunny ", "in ", "Oslo."), _STOP_AFTER_TOOLS,
    ],
    "structured": [("partial", {"name": "Ann", "age": 30}), ("completed", Person("Ann", 30), "stop", 7)],
    "whole": [("reply", Person("Ann", 30), "You said hello.")],
    "session": [*_ONE_CITY, ("said", "You said and now.")],
    "roles": [("system", "user", "assistant", "user", "assistant", "user", "assistant")],
    "cut": [*_texts("half ", "an ", "ans"), ("error", "incomplete_stream", None, "half an ans")],
    "length": [*_texts("too ", "long ", "to"), ("error", "incomplete_completion", "length", "too long to")],
    "refused": [("error", "request_failed", None, "")],
}  # fmt: skip

BEHIND_A_GATEWAY: dict[str, Seen] = {
    **EXPECTED,
    "cut": [*_texts("half ", "an ", "ans"), ("error", "provider_error", None, "half an ans")],
}
"""The one difference: the gateway ends its own stream by the protocol's rules, with an error that says what happened."""
