"""Ollama, judged: /api/chat and /api/generate.

Order of a stream: lines with `done: false`; one line with `done: true`, `done_reason` and the counts, last.
Source: github.com/ollama/ollama, docs/api.md; api/types.go (done_reason, counts are left out when 0).
"""

from __future__ import annotations

import json

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

_REASONS = ("stop", "length", "load", "unload")


class StreamJudge:
    """One stream. `field`: where the answer stands, `message` (chat) or `response` (generate)."""

    def __init__(self, field: str = "message") -> None:
        self.reading = Reading()
        self._field = field
        self._done = 0
        self._model: object = None

    def read(self, framing: Framing) -> Reading:
        reading = self.reading
        reading.begin(framing)
        for frame in framing.frames:
            reading.need(not self._done and reading.error is None, "terminator", "a line comes after the end")
            line = parse_object(reading, frame)
            if line is None:
                continue
            if "error" in line:
                reading.error = message_in(line["error"])
                reading.need(isinstance(line["error"], str), "shape", "error is no string")
                continue
            self._line(line, frame.at_ms)
        if reading.error is None:
            missing = "no line with done: true" if not self._done else "done: true comes more than once"
            reading.need(self._done == 1, "terminator", missing)
        return reading

    def _line(self, line: Object, at_ms: float) -> None:
        reading = self.reading
        judge_line(reading, line, self._field)
        self._model = self._model or line.get("model")
        reading.need(line.get("model") == self._model, "constants", "model changes within the stream")
        before = len(reading.tokens)
        read_message(reading, line, self._field, at_ms)
        if line.get("done") is True:
            self._done += 1
            finish(reading, line)
        elif len(reading.tokens) == before:
            reading.heartbeats += 1


def judge_reply(body: Object) -> Reading:
    return _judge_whole(body, "message")


def judge_generated(body: Object) -> Reading:
    return _judge_whole(body, "response")


def _judge_whole(body: Object, field: str) -> Reading:
    reading = Reading()
    judge_line(reading, body, field)
    read_message(reading, body, field, 0.0)
    reading.need(body.get("done") is True, "finish", "done is not true")
    finish(reading, body)
    return reading


def judge_line(reading: Reading, line: Object, field: str) -> None:
    reading.model = text_at(line, "model")
    reading.need(isinstance(line.get("model"), str), "constants", "a line has no model")
    reading.need(text_at(line, "created_at"), "constants", "a line has no created_at")
    reading.need(isinstance(line.get("done"), bool), "shape", "done is no boolean")
    if field == "message":
        message = line.get("message")
        if reading.need(isinstance(message, dict), "shape", "a line has no message"):
            assistant = object_at(line, "message").get("role") == "assistant"
            reading.need(assistant, "role", "message.role is not assistant")
    else:
        reading.need(isinstance(line.get(field), str), "shape", f"a line has no {field}")


def read_message(reading: Reading, line: Object, field: str, at_ms: float) -> None:
    message = object_at(line, "message") if field == "message" else line
    reading.remark(message.get("thinking") and reading.text, "thinking", "thinking comes after the answer has begun")
    reading.add("thinking", message.get("thinking"), at_ms)
    reading.add("content", message.get("content" if field == "message" else field), at_ms)
    for part in objects_at(message, "tool_calls"):
        function = object_at(part, "function")
        reading.need(text_at(function, "name"), "tools", "a call has no name")
        whole = isinstance(function.get("arguments"), dict)
        reading.need(whole, "tools", "arguments are no object")
        call = Call(part.get("id"), function.get("name"))
        call.arguments = json.dumps(function.get("arguments"))
        reading.calls.append(call)
        reading.add("tool_call", call.arguments, at_ms)


def finish(reading: Reading, line: Object) -> None:
    reason = line.get("done_reason")
    if reading.need(isinstance(reason, str), "finish", "the line with done: true has no done_reason"):
        reading.finish = str(reason)
        reading.limited = reason == "length"
        reading.remark(reason not in _REASONS, "finish", f"done_reason {reason!r} is none of Ollama's")
    for name in ("prompt_eval_count", "eval_count"):
        legal = name not in line or count_at(line, name) is not None
        reading.need(legal, "usage", f"{name} is no count")
        reading.remark(name not in line, "usage", f"no {name}")
    for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
        legal = name not in line or count_at(line, name) is not None
        reading.need(legal, "usage", f"{name} is no whole number of nanoseconds")
    reading.input_tokens, reading.output_tokens = count_at(line, "prompt_eval_count"), count_at(line, "eval_count")
