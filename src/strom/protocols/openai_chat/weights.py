"""What a delta weighs as evidence: the kind of its first token and its number of characters.

A token is non-empty text or a non-empty argument fragment; names, empty strings and keep-alives are none. Within a frame the
precedence is thinking, content, tool call. Source: streams.md section 7.
"""

from __future__ import annotations

from strom.protocols.openai_chat.schema import Delta, FunctionPart, Piece, ToolCallPart


def weigh(delta: Delta) -> tuple[str, int]:
    """("thinking" | "content" | "tool_call" | "", characters)."""
    thinking = len(delta.reasoning_content or delta.reasoning or "")
    content = len(delta.refusal or "")
    if isinstance(delta.content, str):
        content += len(delta.content)
    else:
        for piece in delta.content or ():
            thinking += _thinking(piece)
            content += len(piece.text or "")
    arguments = sum(_arguments(part) for part in delta.tool_calls or ()) or _characters(delta.function_call)
    kind = "thinking" if thinking else "content" if content else "tool_call" if arguments else ""
    return kind, thinking + content + arguments


def _thinking(piece: Piece) -> int:
    if isinstance(piece.thinking, str):
        return len(piece.thinking)
    return sum(len(inner.text or "") for inner in piece.thinking or ())


def _arguments(part: ToolCallPart) -> int:
    if part.custom is not None:
        return len(part.custom.input or "")
    return _characters(part.function)


def _characters(function: FunctionPart | None) -> int:
    """Near enough: bytes of the JSON, without the quotes."""
    raw = bytes(function.arguments) if function is not None else b""
    return 0 if raw == b"null" else max(0, len(raw) - 2) if raw[:1] == b'"' else len(raw)
