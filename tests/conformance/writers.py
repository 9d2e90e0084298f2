"""Frames and whole replies as each protocol's reference has them. Written by hand: no codec takes part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conformance.good import Plan

Object = dict[str, Any]
NAME, ARGUMENTS = "get_weather", '{"city": "Paris"}'


def counts(plan: Plan) -> tuple[int, int]:
    return 12, 7 if plan.called else len(plan.tokens)


# --- OpenAI Chat ---------------------------------------------------------------------------------


def chat_stream(plan: Plan) -> Iterator[bytes]:
    def chunk(delta: Object | None, finish: str | None = None, usage: Object | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        body: Object = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": plan.model}
        return _data({**body, "choices": choices, **({"usage": usage} if plan.usage_asked else {})})

    yield chunk({"role": "assistant", "content": ""})
    if plan.thinking:
        yield chunk({"reasoning_content": plan.thinking})
    for token in plan.tokens:
        yield chunk({"content": token})
    if plan.called:
        call = {"id": "call_1", "type": "function", "function": {"name": NAME, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": 0, **call}]})
        for piece in (ARGUMENTS[:5], ARGUMENTS[5:]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield chunk({}, _openai_reason(plan))
    if plan.usage_asked:
        yield chunk(None, usage=chat_usage(plan))
    yield b"data: [DONE]\n\n"


def chat_whole(plan: Plan) -> Object:
    message: Object = {"role": "assistant", "content": "".join(plan.tokens)}
    if plan.thinking:
        message["reasoning_content"] = plan.thinking
    if plan.called:
        function = {"name": NAME, "arguments": ARGUMENTS}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": _openai_reason(plan)}
    body: Object = {"id": "c-1", "object": "chat.completion", "created": 7, "model": plan.model}
    return {**body, "choices": [choice], "usage": chat_usage(plan)}


def chat_usage(plan: Plan) -> Object:
    sent, made = counts(plan)
    return {"prompt_tokens": sent, "completion_tokens": made, "total_tokens": sent + made}


def _openai_reason(plan: Plan) -> str:
    return "stop" if plan.finish == "stop_sequence" else plan.finish


def openai_error(status: int, message: str) -> Object:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


# --- OpenAI Responses ----------------------------------------------------------------------------


def responses_stream(plan: Plan) -> Iterator[bytes]:
    number = 0

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        data = {"type": kind, "sequence_number": number, **fields}
        number += 1
        return _named(kind, data)

    whole = responses_whole(plan)
    yield event("response.created", response={**whole, "status": "in_progress", "output": [], "usage": None})
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        begun = {**item, "content": [], "summary": [], "arguments": ""}
        yield event("response.output_item.added", output_index=at, item=begun)
        yield from _item_events(event, place, item, plan)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event(f"response.{whole['status']}", response=whole)


def _item_events(event: Callable[..., bytes], place: Object, item: Object, plan: Plan) -> Iterator[bytes]:
    if item["type"] == "reasoning":
        part = {**place, "summary_index": 0}
        yield event("response.reasoning_summary_part.added", **part, part={"type": "summary_text", "text": ""})
        yield event("response.reasoning_summary_text.delta", **part, delta=plan.thinking)
        yield event("response.reasoning_summary_text.done", **part, text=plan.thinking)
        yield event("response.reasoning_summary_part.done", **part, part=item["summary"][0])
    elif item["type"] == "message":
        part = {**place, "content_index": 0}
        yield event("response.content_part.added", **part, part={"type": "output_text", "text": ""})
        for token in plan.tokens:
            yield event("response.output_text.delta", **part, delta=token)
        yield event("response.output_text.done", **part, text="".join(plan.tokens))
        yield event("response.content_part.done", **part, part=item["content"][0])
    else:
        for piece in (ARGUMENTS[:5], ARGUMENTS[5:]):
            yield event("response.function_call_arguments.delta", **place, delta=piece)
        yield event("response.function_call_arguments.done", **place, arguments=ARGUMENTS)


def responses_whole(plan: Plan) -> Object:
    sent, made = counts(plan)
    cut = plan.finish == "length"
    status = "incomplete" if cut else "completed"
    output: list[Object] = []
    if plan.thinking:
        output.append({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": plan.thinking}]})
    if plan.called:
        call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": NAME, "arguments": ARGUMENTS}
        output.append({**call, "status": "completed"})
    else:
        part = {"type": "output_text", "text": "".join(plan.tokens), "annotations": []}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
        output.append({**message, "status": status})
    usage: Object = {"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    body: Object = {"id": "resp_1", "object": "response", "created_at": 7, "model": plan.model, "status": status}
    details = {"reason": "max_output_tokens"} if cut else None
    return {**body, "output": output, "error": None, "incomplete_details": details, "usage": usage}


# --- Anthropic Messages --------------------------------------------------------------------------


def anthropic_stream(plan: Plan) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return _named(kind, {"type": kind, **fields})

    whole = anthropic_whole(plan)
    begun = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 12, "output_tokens": 1}}
    yield event("message_start", message=begun)
    yield event("ping")
    for index, block in enumerate(whole["content"]):
        kind = block["type"]
        empty = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {**block, "input": {}},
        }
        yield event("content_block_start", index=index, content_block={"type": kind, **empty[kind]})
        for delta in _anthropic_deltas(kind, plan):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": counts(plan)[1]})
    yield event("message_stop")


def _anthropic_deltas(kind: str, plan: Plan) -> list[Object]:
    match kind:
        case "text":
            return [{"type": "text_delta", "text": token} for token in plan.tokens]
        case "thinking":
            thought: Object = {"type": "thinking_delta", "thinking": plan.thinking}
            return [thought, {"type": "signature_delta", "signature": "c2ln"}]
        case _:
            return [{"type": "input_json_delta", "partial_json": piece} for piece in (ARGUMENTS[:5], ARGUMENTS[5:])]


def anthropic_whole(plan: Plan) -> Object:
    sent, made = counts(plan)
    content: list[Object] = []
    if plan.thinking:
        content.append({"type": "thinking", "thinking": plan.thinking, "signature": "c2ln"})
    if plan.called:
        content.append({"type": "tool_use", "id": "toolu_1", "name": NAME, "input": json.loads(ARGUMENTS)})
    else:
        content.append({"type": "text", "text": "".join(plan.tokens)})
    reasons = {"stop": "end_turn", "stop_sequence": "stop_sequence", "length": "max_tokens", "tool_calls": "tool_use"}
    body: Object = {"id": "msg_1", "type": "message", "role": "assistant", "model": plan.model, "content": content}
    usage = {"input_tokens": sent, "output_tokens": made}
    return {**body, "stop_reason": reasons[plan.finish], "stop_sequence": None, "usage": usage}


def anthropic_error(status: int, message: str) -> Object:
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


# --- Ollama --------------------------------------------------------------------------------------


def ollama_stream(plan: Plan) -> Iterator[bytes]:
    if plan.thinking:
        yield _line({**_ollama(plan, "", thinking=plan.thinking), "done": False})
    for token in plan.tokens:
        yield _line({**_ollama(plan, token), "done": False})
    if plan.called:
        yield _line({**_ollama(plan, "", tool_calls=_ollama_calls()), "done": False})
    yield _line({**_ollama(plan, ""), **_ollama_end(plan)})


def ollama_whole(plan: Plan) -> Object:
    more: Object = {"tool_calls": _ollama_calls()} if plan.called else {}
    if plan.thinking:
        more["thinking"] = plan.thinking
    return {**_ollama(plan, "".join(plan.tokens), **more), **_ollama_end(plan)}


def generate_stream(plan: Plan) -> Iterator[bytes]:
    head = {"model": plan.model, "created_at": "2026-01-01T00:00:00Z"}
    for token in plan.tokens:
        yield _line({**head, "response": token, "done": False})
    yield _line({**head, "response": "", **_ollama_end(plan)})


def _ollama(plan: Plan, content: str, **more: Any) -> Object:
    message = {"role": "assistant", "content": content, **more}
    return {"model": plan.model, "created_at": "2026-01-01T00:00:00Z", "message": message}


def _ollama_calls() -> list[Object]:
    return [{"function": {"name": NAME, "arguments": json.loads(ARGUMENTS)}}]


def _ollama_end(plan: Plan) -> Object:
    sent, made = counts(plan)
    reason = "length" if plan.finish == "length" else "stop"
    durations = dict.fromkeys(("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"), 1)
    return {"done": True, "done_reason": reason, **durations, "prompt_eval_count": sent, "eval_count": made}


def ollama_error(status: int, message: str) -> Object:
    return {"error": message}


def _data(body: Object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _named(kind: str, body: Object) -> bytes:
    return f"event: {kind}\n".encode() + _data(body)


def _line(body: Object) -> bytes:
    return json.dumps(body).encode() + b"\n"


WRITERS: dict[str, Callable[[Plan], Iterator[bytes]]] = {
    "openai-chat": chat_stream,
    "openai-responses": responses_stream,
    "anthropic": anthropic_stream,
    "ollama": ollama_stream,
    "generate": generate_stream,
}
WHOLES: dict[str, Callable[[Plan], Object]] = {
    "openai-chat": chat_whole,
    "openai-responses": responses_whole,
    "anthropic": anthropic_whole,
    "ollama": ollama_whole,
    "generate": ollama_whole,
}
ERRORS: dict[str, Callable[[int, str], Object]] = {
    "openai-chat": openai_error,
    "openai-responses": openai_error,
    "anthropic": anthropic_error,
    "ollama": ollama_error,
    "generate": ollama_error,
}
