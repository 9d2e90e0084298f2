"""Error texts for records: upstreams quote what they were sent ("Invalid: 'my secret'"), and a record holds no message text.

The client sees its own words in its own error; the record shows where they stood. Whole texts of the request are found, and
single lines of them; a quotation of a few words out of a line is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from strom.core.messages import (
    DocumentPart,
    Part,
    RefusalPart,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

SHORTEST = 8
"""A shorter text is no secret and may be a word of the error itself."""
LONGEST_ERROR = 1000
PLACE = "[message text]"


def without_echoes(message: str, request: Request) -> str:
    """`message` without the texts of `request`, and not endlessly long."""
    if len(message) > SHORTEST:
        found = {text for text in _texts(request) if text in message}
        for text in sorted(found, key=len, reverse=True):
            message = message.replace(text, PLACE)
    return message if len(message) <= LONGEST_ERROR else message[:LONGEST_ERROR] + "…"


def _texts(request: Request) -> Iterator[str]:
    for message in request.messages:
        for part in message.parts:
            for text in _part_texts(part):
                stripped = text.strip()
                if len(stripped) >= SHORTEST:
                    yield stripped
                    yield from (line for line in map(str.strip, stripped.splitlines()) if len(line) >= SHORTEST)


def _part_texts(part: Part) -> Iterator[str]:
    match part:
        case TextPart(text) | RefusalPart(text):
            yield text
        case ThinkingPart() | DocumentPart():
            yield part.text
        case ToolCallPart():
            yield part.arguments
        case ToolResultPart():
            for inner in part.content:
                yield from _part_texts(inner)
        case _:
            pass
