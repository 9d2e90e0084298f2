"""A rough count of the tokens of a request, from lengths alone: no text is read, so it costs a few additions a part.

It stands where a protocol demands a number before the upstream reported one; whoever shows it says that it is an estimate.
"""

from __future__ import annotations

from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    RefusalPart,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from strom.core.usage import estimate_tokens

MESSAGE_CHARACTERS = 16  # role and separators of a chat template
IMAGE_CHARACTERS = 6400  # 1600 tokens, what vision models charge at most for an image of common size
AUDIO_DATA_PER_CHARACTER = 64
DOCUMENT_DATA_PER_CHARACTER = 8


def request_tokens(request: Request) -> int:
    """Estimated prompt tokens of a request: at least 1."""
    characters = 0
    for message in request.messages:
        characters += MESSAGE_CHARACTERS
        for part in message.parts:
            characters += part_characters(part)
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(tool.parameters) + MESSAGE_CHARACTERS
    if request.response_format is not None:
        characters += len(request.response_format.schema)
    return max(1, estimate_tokens(characters))


def part_characters(part: Part) -> int:
    """Characters that the text form of a part would have."""
    match part:
        case TextPart(text) | RefusalPart(text):
            return len(text)
        case ToolCallPart():
            return len(part.name) + len(part.arguments) + MESSAGE_CHARACTERS
        case ToolResultPart():
            return MESSAGE_CHARACTERS + sum(part_characters(inner) for inner in part.content)
        case ThinkingPart():
            return len(part.text) or len(part.encrypted)
        case ImagePart():
            return IMAGE_CHARACTERS
        case DocumentPart():
            return len(part.text) or max(IMAGE_CHARACTERS, len(part.data) // DOCUMENT_DATA_PER_CHARACTER)
        case AudioPart():
            return len(part.data) // AUDIO_DATA_PER_CHARACTER
        case OpaquePart():
            return len(part.json.text)
