"""OpenAI Chat Completions, judged.

Order of a stream: a chunk with the role; chunks with deltas; a chunk with the finish reason; with include_usage one chunk
with `choices: []` and the usage; `data: [DONE]`.
Source: OpenAI API reference, "Chat: streaming", "The chat completion chunk object"; openai-python's stream accumulator
(tool deltas without an index raise TypeError).
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

_REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
_REASONING = ("reasoning_content", "reasoning")


class _Choice:
    """The state of one choice. `roles`: in how many of its `chunks` a role stands."""

    def __init__(self) -> None:
        self.chunks = 0
        self.roles = 0
        self.finish: str | None = None


class StreamJudge:
    """One stream. `usage_asked`: the request had `stream_options.include_usage`."""

    def __init__(self, *, usage_asked: bool) -> None:
        self.reading = Reading()
        self._usage_asked = usage_asked
        self._choices: dict[object, _Choice] = {}
        self._calls: dict[object, int] = {}
        self._constant: Object = {}
        self._chunks: list[Object] = []
        self._done = 0

    def read(self, framing: Framing) -> Reading:
        self.reading.begin(framing)
        for frame in framing.frames:
            self.reading.need(not self._done, "terminator", "a frame comes after [DONE]")
            if frame.data.strip() == "[DONE]":
                self._done += 1
                continue
            self.reading.remark(frame.event, "framing", f"frames have an event name ({frame.event})")
            chunk = parse_object(self.reading, frame)
            if chunk is not None:
                self._chunk(chunk, frame.at_ms)
        self._end()
        return self.reading

    def _chunk(self, chunk: Object, at_ms: float) -> None:
        reading = self.reading
        reading.need(reading.error is None, "terminator", "a data frame comes after the error")
        if chunk.get("error") is not None:
            reading.error = message_in(chunk["error"])
            reading.need(isinstance(chunk["error"], dict), "shape", "error is no object with a message")
            return
        self._chunks.append(chunk)
        reading.need(chunk.get("object") == "chat.completion.chunk", "shape", "object is not chat.completion.chunk")
        reading.need(isinstance(chunk.get("choices"), list), "shape", "choices is no list")
        self._constants(chunk)
        for choice in objects_at(chunk, "choices"):
            self._choice(choice, at_ms)

    def _constants(self, chunk: Object) -> None:
        reading = self.reading
        reading.need(text_at(chunk, "id"), "constants", "a chunk has no id that is text")
        reading.need(isinstance(chunk.get("model"), str), "constants", "a chunk has no model")
        reading.need(isinstance(chunk.get("created"), int), "constants", "created is no integer")
        reading.model = reading.model or text_at(chunk, "model")
        for name in ("id", "model"):
            same = self._constant.setdefault(name, chunk.get(name)) == chunk.get(name)
            reading.need(same, "constants", f"{name} changes within the stream")
        changed = self._constant.setdefault("created", chunk.get("created")) != chunk.get("created")
        reading.remark(changed, "constants", "created changes within the stream")

    def _choice(self, choice: Object, at_ms: float) -> None:
        reading, index = self.reading, choice.get("index", 0)
        reading.remark("index" not in choice, "shape", "a choice has no index")
        reading.remark("finish_reason" not in choice, "shape", "finish_reason is missing instead of null")
        state = self._choices.setdefault(index, _Choice())
        delta, reason = object_at(choice, "delta"), choice.get("finish_reason")
        self._role(state, delta)
        carries = [name for name in ("content", *_REASONING, "tool_calls") if delta.get(name)]
        late = state.finish is not None and (carries or reason is not None)
        reading.need(not late, "finish", "a delta or a second reason comes after finish_reason")
        reading.remark(reason is not None and carries, "finish", "finish_reason shares a chunk with a delta")
        state.chunks += 1
        if isinstance(reason, str):
            state.finish = reason
            reading.remark(reason not in _REASONS, "finish", f"finish_reason {reason!r} is none of OpenAI's")
        reading.need(reason is None or isinstance(reason, str), "finish", "finish_reason is no string")
        if index == 0:
            self._deltas(delta, at_ms)

    def _role(self, state: _Choice, delta: Object) -> None:
        role = delta.get("role")
        if role is not None:
            state.roles += 1
            self.reading.need(role == "assistant", "role", f"the role is {role!r}, not assistant")
            self.reading.need(state.roles == 1, "role", "the role is sent more than once")
            self.reading.remark(
                state.chunks == 0 and delta.get("content"), "role", "the role shares its chunk with content"
            )
        if state.chunks == 0:
            self.reading.need(role is not None, "role", "the first chunk has no role")

    def _deltas(self, delta: Object, at_ms: float) -> None:
        reading = self.reading
        thought = next((delta[name] for name in _REASONING if delta.get(name)), None)
        reading.remark(
            thought and not delta.get("reasoning_content"), "thinking", "thinking stands in `reasoning` alone"
        )
        reading.remark(thought and reading.text, "thinking", "thinking comes after the answer has begun")
        reading.add("thinking", thought, at_ms)
        reading.add("content", delta.get("content"), at_ms)
        for part in objects_at(delta, "tool_calls"):
            self._tool_delta(part, at_ms)

    def _tool_delta(self, part: Object, at_ms: float) -> None:
        reading, index, function = self.reading, part.get("index"), object_at(part, "function")
        reading.need(isinstance(index, int), "tools", "a tool delta has no index")
        if index not in self._calls:
            reading.need(text_at(part, "id"), "tools", "the first delta of a call has no id that is text")
            reading.need(part.get("type") == "function", "tools", "the first delta of a call has no type function")
            reading.need(text_at(function, "name"), "tools", "the first delta of a call has no name")
            reading.need(index in (len(self._calls), None), "tools", "indices of calls do not rise by one from 0")
            self._calls[index] = open_call(reading, part.get("id"), function.get("name"))
        else:
            repeated = part.get("id") or function.get("name")
            reading.need(not repeated, "tools", "id or name is repeated in a later delta of a call")
        arguments = function.get("arguments")
        reading.add("tool_call", arguments, at_ms)
        reading.calls[self._calls[index]].arguments += arguments if isinstance(arguments, str) else ""

    def _end(self) -> None:
        reading = self.reading
        if reading.error is not None:
            reading.remark(self._done, "terminator", "[DONE] comes after an error, as if the answer were complete")
            return
        first = self._choices.get(0)
        conclude(reading, first.finish if first else None)
        reading.need(self._choices, "shape", "no chunk has a choice")
        reading.need(all(call.arguments for call in reading.calls), "tools", "arguments are empty instead of {}")
        unfinished = any(choice.finish is None for choice in self._choices.values())
        reading.need(self._choices and not unfinished, "finish", "no finish_reason")
        reading.need(self._done == 1, "terminator", "no [DONE]" if not self._done else "[DONE] comes more than once")
        self._usage()

    def _usage(self) -> None:
        reading = self.reading
        carriers = [at for at, chunk in enumerate(self._chunks) if chunk.get("usage")]
        empty = [at for at, chunk in enumerate(self._chunks) if chunk.get("choices") == []]
        for at in carriers[-1:]:
            read_usage(reading, object_at(self._chunks[at], "usage"))
        reading.need(len(carriers) <= 1, "usage", "usage comes more than once: clients that sum count it double")
        if not self._usage_asked:
            reading.need(not empty, "usage", "a chunk with empty choices, which was not asked for")
            return
        if reading.need(carriers, "usage", "asked for with include_usage, but no chunk has usage"):
            last = carriers[-1]
            reading.need(self._chunks[last].get("choices") == [], "usage", "the chunk with usage has choices")
            reading.need(last == len(self._chunks) - 1, "usage", "the chunk with usage is not the last")
            silent = any("usage" not in chunk for chunk in self._chunks[:last])
            reading.remark(silent, "usage", "earlier chunks lack usage: null")


def judge_reply(body: Object) -> Reading:
    reading = Reading()
    reading.need(body.get("object") == "chat.completion", "shape", "object is not chat.completion")
    reading.need(text_at(body, "id"), "constants", "no id that is text")
    reading.need(isinstance(body.get("created"), int), "constants", "created is no integer")
    reading.need(isinstance(body.get("model"), str), "constants", "no model")
    reading.model = text_at(body, "model")
    choices = objects_at(body, "choices")
    reading.need(choices, "shape", "no choices")
    choice = choices[0] if choices else {}
    message = object_at(choice, "message")
    reading.need(message.get("role") == "assistant", "role", "message.role is not assistant")
    reading.add("thinking", next((message[name] for name in _REASONING if message.get(name)), None))
    reading.add("content", message.get("content"))
    for part in objects_at(message, "tool_calls"):
        function = object_at(part, "function")
        reading.need(text_at(part, "id") and part.get("type") == "function", "tools", "a call has no id or type")
        call = reading.calls[open_call(reading, part.get("id"), function.get("name"))]
        reading.need(isinstance(function.get("arguments"), str), "tools", "arguments are no string")
        call.arguments = text_at(function, "arguments")
        reading.need(call.arguments, "tools", "arguments are empty instead of {}")
    reason = choice.get("finish_reason")
    reading.need(isinstance(reason, str), "finish", "no finish_reason")
    conclude(reading, reason if isinstance(reason, str) else None)
    if reading.need(isinstance(body.get("usage"), dict), "usage", "no usage"):
        read_usage(reading, object_at(body, "usage"))
    return reading


def conclude(reading: Reading, reason: str | None) -> None:
    reading.finish = reason
    reading.limited = reason == "length"
    reading.ended_for_tools = reason in ("tool_calls", "function_call")


def open_call(reading: Reading, identity: object, name: object) -> int:
    """The place of a new call."""
    reading.calls.append(Call(identity, name))
    return len(reading.calls) - 1


def read_usage(reading: Reading, usage: Object) -> None:
    reading.input_tokens = count_at(usage, "prompt_tokens")
    reading.output_tokens = count_at(usage, "completion_tokens")
    counted = reading.input_tokens is not None and reading.output_tokens is not None
    if reading.need(counted, "usage", "prompt_tokens or completion_tokens is no count"):
        total = count_at(usage, "total_tokens")
        expected = (reading.input_tokens or 0) + (reading.output_tokens or 0)
        reading.need(total == expected, "usage", f"total_tokens is {json.dumps(total)}, not {expected}")
