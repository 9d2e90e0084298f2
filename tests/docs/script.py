"""What the model says to the pages of the documentation."""

from __future__ import annotations

from tests.agreement.turns import Asked, Call, Turn

SAYS = {
    "Tell me about the sea.": Turn("The sea is wide. The sea is deep."),
    "Think, then say yes.": Turn("Yes.", thinking="I was told to think. "),
    "Tell me a very long story.": Turn("Once upon a time there was a ", reason="length"),
    "Tell me a story that breaks off.": Turn("Once upon a ", cut=True),
    "Say nothing more.": Turn("First ", silent=True),
    "My name is Ann.": Turn("Hello Ann."),
    "What is my name?": Turn("Your name is Ann."),
    "Fail.": Turn(status=503),
}
OBJECTS = {
    "Invent a person.": '{"name": "Ada", "age": 36}',
    "Invent somebody old.": '{"name": "Ada", "age": "very old"}',
    "Name three seas.": '{"value": ["Baltic", "Black", "Red"]}',
}
STOPS = [{"place": "Forum", "hour": 9}, {"place": "Pantheon", "hour": 11}]
"""The plan that an agent hands in."""


def script(asked: Asked) -> Turn:
    if asked.schema and asked.prompt in OBJECTS:
        return Turn(OBJECTS[asked.prompt])
    if asked.tools and (turn := _with_tools(asked)) is not None:
        return turn
    if asked.prompt.startswith("Continue exactly where"):
        return Turn("time there was a sea.")
    return SAYS.get(asked.prompt) or Turn(f"You said: {asked.prompt}")


def _with_tools(asked: Asked) -> Turn | None:
    match asked.prompt, len(asked.results):
        case "What is the weather in Rome?", 0:
            return Turn("I look it up. ", calls=(Call("weather", {"city": "Rome"}),))
        case "What is the weather in Rome?", _:
            return Turn(f"It is {asked.results[-1]}.")
        case "Plan a morning in Rome.", 0:
            places = tuple(Call("opening_hours", {"place": place}) for place in ("Forum", "Pantheon"))
            return Turn("Let me look. ", calls=(Call("weather", {"city": "Rome"}), *places))
        case "Plan a morning in Rome.", _:
            return Turn(calls=(Call("finish", {"stops": STOPS}),))
        case _:
            return None
