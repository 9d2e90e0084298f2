"""Messages as the conventions write them: JSON text for `gen_ai.input.messages` and `gen_ai.output.messages`.

Media stand there by their kind alone, not by their bytes; what only one protocol knows and encrypted reasoning are left out.
Source: opentelemetry.io/docs/specs/semconv/gen-ai, gen-ai-input-messages.json, gen-ai-output-messages.json, edition 1.41.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from strom.client.evidence import CompletionMetadata
from strom.core.messages import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

Json = dict[str, Any]


def input_messages(messages: Sequence[Message]) -> str:
    return json_text([{"role": _role(message), "parts": _parts(message.parts)} for message in messages])


def output_messages(metadata: CompletionMetadata) -> str:
    parts: list[Json] = []
    if metadata.thinking:
        parts.append({"type": "reasoning", "content": metadata.thinking})
    if metadata.text:
        parts.append({"type": "text", "content": metadata.text})
    for call in metadata.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return json_text([{"role": "assistant", "parts": parts, "finish_reason": metadata.finish_reason or "error"}])


def parts_json(role: str, parts: Sequence[Part], finish_reason: str) -> str:
    """One message of an answer."""
    return json_text([{"role": role, "parts": _parts(parts), "finish_reason": finish_reason}])


def json_text(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _role(message: Message) -> str:
    results = bool(message.parts) and all(isinstance(part, ToolResultPart) for part in message.parts)
    return "tool" if results else message.role


def _parts(parts: Sequence[Part]) -> list[Json]:
    return [written for part in parts if (written := _part(part)) is not None]


def _part(part: Part) -> Json | None:
    match part:
        case TextPart(text) | RefusalPart(text):
            return {"type": "text", "content": text}
        case ThinkingPart(text):
            return {"type": "reasoning", "content": text} if text else None
        case ToolCallPart(call_id, name, arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResultPart(call_id, content):
            text = "".join(piece.text for piece in content if isinstance(piece, TextPart))
            return {"type": "tool_call_response", "id": call_id, "result": text}
        case ImagePart():
            return {"type": "image"}
        case AudioPart():
            return {"type": "audio"}
        case DocumentPart():
            return {"type": "document"}
        case OpaquePart():
            return None
