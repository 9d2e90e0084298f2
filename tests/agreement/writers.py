"""Turns as bytes and objects of each protocol. Written by hand from the protocols' references: no codec takes part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.agreement.turns import Object, Turn

MODEL = "scripted"
SENT, MADE = 5, 7
SSE, NDJSON = b"text/event-stream", b"application/x-ndjson"


def stream(protocol: str, turn: Turn) -> Iterator[bytes]:
    """The frames, one write each; a cut turn ends behind its text."""
    return _STREAMS[protocol](turn)


def whole(protocol: str, turn: Turn) -> Object:
    return _WHOLES[protocol](turn)


def content_type(protocol: str) -> bytes:
    return NDJSON if protocol == "ollama" else SSE


def ids(turn: Turn) -> list[str]:
    return [f"call_{number}" for number, _ in enumerate(turn.calls, 1)]


def _data(frame: Object) -> bytes:
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


def _named(frame: Object) -> bytes:
    return f"event: {frame['type']}\n".encode() + _data(frame)


# --- OpenAI Chat ---------------------------------------------------------------------------------


def _chat_reason(turn: Turn) -> str:
    return turn.reason or ("tool_calls" if turn.calls else "stop")


def _chat_usage() -> Object:
    return {"prompt_tokens": SENT, "completion_tokens": MADE, "total_tokens": SENT + MADE}


def _chat_stream(turn: Turn) -> Iterator[bytes]:
    base: Object = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}

    def chunk(delta: Object, finish: str | None = None) -> bytes:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    if turn.thinking:
        yield chunk({"reasoning_content": turn.thinking})
    for piece in turn.pieces:
        yield chunk({"content": piece})
    if turn.cut or turn.silent:
        return
    for index, (call_id, call) in enumerate(zip(ids(turn), turn.calls, strict=True)):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": json.dumps(call.arguments)}}]})
    yield chunk({}, _chat_reason(turn))
    yield _data({**base, "choices": [], "usage": _chat_usage()})
    yield b"data: [DONE]\n\n"


def _chat_whole(turn: Turn) -> Object:
    message: Object = {"role": "assistant", "content": turn.text or None}
    if turn.thinking:
        message["reasoning_content"] = turn.thinking
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call_id, call in zip(ids(turn), turn.calls, strict=True)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _chat_reason(turn)}
    base: Object = {"id": "c-1", "object": "chat.completion", "created": 1, "model": MODEL}
    return {**base, "choices": [choice], "usage": _chat_usage()}


# --- OpenAI Responses ----------------------------------------------------------------------------


def _responses_items(turn: Turn) -> list[Object]:
    items: list[Object] = []
    if turn.thinking:
        items.append({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": turn.thinking}]})
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        items.append({"id": "msg_1", "type": "message", "role": "assistant", "content": [part], "status": "completed"})
    for call_id, call in zip(ids(turn), turn.calls, strict=True):
        named = {"id": f"fc_{call_id}", "call_id": call_id, "name": call.name}
        items.append({"type": "function_call", **named, "arguments": json.dumps(call.arguments), "status": "completed"})
    return items


def _responses_whole(turn: Turn) -> Object:
    cut = turn.reason == "length"
    usage = {"input_tokens": SENT, "output_tokens": MADE, "total_tokens": SENT + MADE}
    details: Object = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "output": _responses_items(turn),
        "status": "incomplete" if cut else "completed", "error": None, "usage": {**usage, **details},
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
    }  # fmt: skip


def _responses_stream(turn: Turn) -> Iterator[bytes]:
    number = 0

    def event(kind: str, **fields: object) -> bytes:
        nonlocal number
        number += 1
        return _named({"type": kind, "sequence_number": number - 1, **fields})

    answer = _responses_whole(turn)
    yield event("response.created", response={**answer, "status": "in_progress", "output": [], "usage": None})
    for at, item in enumerate(answer["output"]):
        begun = {**item, "status": "in_progress", "content": [], "summary": [], "arguments": ""}
        yield event("response.output_item.added", output_index=at, item=begun)
        yield from _responses_item(event, at, item, turn)
        if item["type"] == "message" and (turn.cut or turn.silent):
            return
        yield event("response.output_item.done", output_index=at, item=item)
    yield event(f"response.{answer['status']}", response=answer)


def _responses_item(event: Callable[..., bytes], at: int, item: Object, turn: Turn) -> Iterator[bytes]:
    place: Object = {"output_index": at, "item_id": item["id"]}
    match item["type"]:
        case "reasoning":
            part = {**place, "summary_index": 0}
            yield event("response.reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
            yield event("response.reasoning_summary_text.delta", **part, delta=turn.thinking)
            yield event("response.reasoning_summary_text.done", **part, text=turn.thinking)
            yield event("response.reasoning_summary_part.done", **part, part=item["summary"][0])
        case "message":
            part = {**place, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **part, part=empty)
            for piece in turn.pieces:
                yield event("response.output_text.delta", **part, delta=piece)
            if not (turn.cut or turn.silent):
                yield event("response.output_text.done", **part, text=turn.text)
                yield event("response.content_part.done", **part, part=item["content"][0])
        case _:
            yield event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **place, arguments=item["arguments"])


# --- Anthropic Messages --------------------------------------------------------------------------

_ANTHROPIC_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def _anthropic_whole(turn: Turn) -> Object:
    blocks: list[Object] = []
    if turn.thinking:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "signed"})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    for call_id, call in zip(ids(turn), turn.calls, strict=True):
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": call.arguments})
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": blocks, "stop_sequence": None,
        "stop_reason": _ANTHROPIC_REASONS[_chat_reason(turn)], "usage": {"input_tokens": SENT, "output_tokens": MADE},
    }  # fmt: skip


def _anthropic_stream(turn: Turn) -> Iterator[bytes]:
    answer = _anthropic_whole(turn)
    begun = {**answer, "content": [], "stop_reason": None, "usage": {"input_tokens": SENT, "output_tokens": 1}}
    yield _named({"type": "message_start", "message": begun})
    for index, block in enumerate(answer["content"]):
        empty, deltas = _anthropic_block(block, turn)
        yield _named({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        if block["type"] == "text" and (turn.cut or turn.silent):
            return
        yield _named({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": ending, "usage": {"output_tokens": MADE}})
    yield _named({"type": "message_stop"})


def _anthropic_block(block: Object, turn: Turn) -> tuple[Object, list[Object]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in turn.pieces]
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": turn.thinking}
            return {**block, "thinking": "", "signature": ""}, [
                thought,
                {"type": "signature_delta", "signature": "signed"},
            ]
        case _:
            text = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


# --- Ollama --------------------------------------------------------------------------------------


def _line(message: Object, **fields: object) -> Object:
    said = {"role": "assistant", "content": "", **message}
    return {"model": MODEL, "created_at": "2026-01-01T00:00:00Z", "message": said, "done": False, **fields}


def _ollama_calls(turn: Turn) -> Object:
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in turn.calls]
    return {"tool_calls": calls} if calls else {}


def _ollama_end(turn: Turn) -> Object:
    return {
        "done": True,
        "done_reason": "length" if turn.reason == "length" else "stop",
        "prompt_eval_count": SENT,
        "eval_count": MADE,
    }


def _ollama_stream(turn: Turn) -> Iterator[bytes]:
    lines: list[Object] = []
    if turn.thinking:
        lines.append(_line({"thinking": turn.thinking}))
    lines += [_line({"content": piece}) for piece in turn.pieces]
    if not (turn.cut or turn.silent):
        lines += [_line(_ollama_calls(turn))] if turn.calls else []
        lines.append(_line({}, **_ollama_end(turn)))
    yield from (json.dumps(line).encode() + b"\n" for line in lines)


def _ollama_whole(turn: Turn) -> Object:
    thought = {"thinking": turn.thinking} if turn.thinking else {}
    return _line({"content": turn.text, **thought, **_ollama_calls(turn)}, **_ollama_end(turn))


_STREAMS: dict[str, Callable[[Turn], Iterator[bytes]]] = {
    "openai-chat": _chat_stream,
    "openai-responses": _responses_stream,
    "anthropic": _anthropic_stream,
    "ollama": _ollama_stream,
}
_WHOLES: dict[str, Callable[[Turn], Object]] = {
    "openai-chat": _chat_whole,
    "openai-responses": _responses_whole,
    "anthropic": _anthropic_whole,
    "ollama": _ollama_whole,
}
