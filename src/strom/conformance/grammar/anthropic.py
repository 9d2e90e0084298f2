"""Anthropic Messages, judged.

Order of a stream: message_start; blocks one after the other, each content_block_start, deltas, content_block_stop, with
indices from 0; message_delta; message_stop. `ping` anywhere after the start; `error` ends the stream.
Source: docs.claude.com, "Streaming Messages", "Errors"; anthropic-python (ignores events without a name; message_start and
message_delta without usage raise AttributeError).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from strom.conformance.framing import Framing
from strom.conformance.reading import (
    Call,
    Object,
    Reading,
    count_at,
    message_in,
    object_at,
    objects_at,
    parse_object,
    text_at,
)

_FITTING = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
    "server_tool_use": ("input_json_delta",),
}
_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)


class StreamJudge:
    """One stream. `_open`: the type of the block that is open, None between blocks."""

    def __init__(self) -> None:
        self.reading = Reading()
        self._seen: list[str] = []
        self._open: str | None = None
        self._blocks = 0
        self._signed = False
        self._usage: Object = {}
        self._handlers: dict[str, Callable[[Object, float], None]] = {
            "message_start": self._start,
            "content_block_start": self._block_start,
            "content_block_delta": self._delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._stop,
            "error": self._error,
        }

    def read(self, framing: Framing) -> Reading:
        self.reading.begin(framing)
        for frame in framing.frames:
            data = parse_object(self.reading, frame)
            if data is None:
                continue
            kind = text_at(data, "type")
            self.reading.need(frame.event, "framing", "an event has no name (no `event:` line)")
            same = not frame.event or frame.event == kind
            self.reading.need(same, "framing", f"the event {frame.event} has the type {kind}")
            self._event(kind, data, frame.at_ms)
        self._end()
        return self.reading

    def _event(self, kind: str, data: Object, at_ms: float) -> None:
        reading = self.reading
        over = self._seen[-1:] in (["message_stop"], ["error"])
        reading.need(not over, "terminator", f"{kind} comes after the end")
        if kind == "ping":
            reading.heartbeats += 1
            reading.need(self._seen, "order", "ping comes before message_start")
            return
        if kind != "error":
            first = not self._seen
            reading.need((kind == "message_start") == first, "order", "message_start is not first and once")
        self._seen.append(kind)
        handler = self._handlers.get(kind)
        reading.remark(handler is None, "order", f"unknown event {kind}")
        if handler is not None:
            handler(data, at_ms)

    def _start(self, data: Object, _: float) -> None:
        reading, message = self.reading, object_at(data, "message")
        reading.need(text_at(message, "id"), "constants", "message_start has no id")
        reading.need(isinstance(message.get("model"), str), "constants", "message_start has no model")
        reading.need(message.get("type") == "message", "shape", "message_start.message has no type message")
        reading.need(message.get("role") == "assistant", "role", "the role in message_start is not assistant")
        reading.need(message.get("content") == [], "shape", "message_start has content")
        reading.need(message.get("stop_reason") is None, "finish", "message_start has a stop_reason")
        reading.model = text_at(message, "model")
        usage = object_at(message, "usage")
        counted = count_at(usage, "input_tokens") is not None and count_at(usage, "output_tokens") is not None
        reading.need(counted, "usage", "message_start has no usage with input_tokens and output_tokens")
        self._usage.update(usage)

    def _block_start(self, data: Object, _: float) -> None:
        reading, block = self.reading, object_at(data, "content_block")
        kind = text_at(block, "type")
        reading.need(self._open is None, "order", "a block opens while another is open")
        reading.need(data.get("index") == self._blocks, "order", "indices of blocks do not rise by one from 0")
        reading.need(kind, "shape", "content_block_start has no type")
        self._open, self._blocks, self._signed = kind, self._blocks + 1, False
        if kind in ("tool_use", "server_tool_use"):
            reading.need(text_at(block, "id") and text_at(block, "name"), "tools", "tool_use has no id or name")
            reading.need(block.get("input") == {}, "tools", "tool_use does not start with input: {}")
            reading.calls.append(Call(block.get("id"), block.get("name")))
        reading.remark(kind == "thinking" and reading.text, "thinking", "thinking comes after the answer has begun")

    def _delta(self, data: Object, at_ms: float) -> None:
        reading, delta = self.reading, object_at(data, "delta")
        kind = text_at(delta, "type")
        belongs = self._open is not None and data.get("index") == self._blocks - 1
        if not reading.need(belongs, "order", "a delta for a block that is not open"):
            return
        fitting = _FITTING.get(self._open or "")
        reading.need(fitting is None or kind in fitting, "order", f"{kind} in a block of type {self._open}")
        match kind:
            case "text_delta":
                reading.add("content", delta.get("text"), at_ms)
            case "thinking_delta":
                reading.add("thinking", delta.get("thinking"), at_ms)
            case "signature_delta":
                self._signed = True
            case "input_json_delta":
                reading.add("tool_call", delta.get("partial_json"), at_ms)
                if reading.calls:
                    reading.calls[-1].arguments += text_at(delta, "partial_json")

    def _block_stop(self, data: Object, _: float) -> None:
        belongs = self._open is not None and data.get("index") == self._blocks - 1
        self.reading.need(belongs, "order", "content_block_stop for a block that is not open")
        unsigned = self._open == "thinking" and not self._signed
        self.reading.remark(unsigned, "thinking", "a thinking block has no signature")
        self._open = None

    def _message_delta(self, data: Object, _: float) -> None:
        reading = self.reading
        reading.need(self._open is None, "order", "message_delta comes while a block is open")
        reason = object_at(data, "delta").get("stop_reason")
        if reading.need(isinstance(reason, str), "finish", "message_delta has no stop_reason"):
            conclude(reading, str(reason))
        usage = object_at(data, "usage")
        counted = count_at(usage, "output_tokens") is not None
        reading.need(counted, "usage", "message_delta has no usage.output_tokens")
        self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _stop(self, _: Object, __: float) -> None:
        return

    def _error(self, data: Object, _: float) -> None:
        self.reading.error = message_in(data.get("error"))
        self.reading.need(text_at(object_at(data, "error"), "type"), "shape", "error has no type")

    def _end(self) -> None:
        reading = self.reading
        read_usage(reading, self._usage)
        if reading.error is not None:
            return
        deltas = self._seen.count("message_delta")
        reading.need(deltas == 1, "finish", "no message_delta" if not deltas else "message_delta comes more than once")
        reading.need(self._seen[-1:] == ["message_stop"], "terminator", "no message_stop at the end")


def judge_reply(body: Object) -> Reading:
    reading = Reading()
    reading.need(text_at(body, "id"), "constants", "no id")
    reading.need(isinstance(body.get("model"), str), "constants", "no model")
    reading.need(body.get("type") == "message", "shape", "type is not message")
    reading.need(body.get("role") == "assistant", "role", "role is not assistant")
    reading.need(isinstance(body.get("content"), list), "shape", "content is no list of blocks")
    reading.model = text_at(body, "model")
    for block in objects_at(body, "content"):
        reading.add("content", block.get("text") if block.get("type") == "text" else None)
        reading.add("thinking", block.get("thinking"))
        if block.get("type") == "tool_use":
            reading.need(text_at(block, "id") and text_at(block, "name"), "tools", "tool_use has no id or name")
            reading.need(isinstance(block.get("input"), dict), "tools", "tool_use has no input object")
            call = Call(block.get("id"), block.get("name"))
            call.arguments = json.dumps(block.get("input"))
            reading.calls.append(call)
    reason = body.get("stop_reason")
    if reading.need(isinstance(reason, str), "finish", "no stop_reason"):
        conclude(reading, str(reason))
    usage = object_at(body, "usage")
    counted = count_at(usage, "input_tokens") is not None and count_at(usage, "output_tokens") is not None
    reading.need(counted, "usage", "no usage with input_tokens and output_tokens")
    read_usage(reading, usage)
    return reading


def conclude(reading: Reading, reason: str) -> None:
    reading.finish = reason
    reading.limited = reason == "max_tokens"
    reading.ended_for_tools = reason == "tool_use"
    reading.remark(reason not in _REASONS, "finish", f"stop_reason {reason!r} is none of Anthropic's")


def read_usage(reading: Reading, usage: Object) -> None:
    """The whole prompt: cached tokens are left out of input_tokens here."""
    plain = count_at(usage, "input_tokens")
    cached = [count_at(usage, name) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    reading.input_tokens = None if plain is None else plain + sum(cached)
    reading.output_tokens = count_at(usage, "output_tokens")
