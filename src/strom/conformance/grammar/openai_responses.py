"""OpenAI Responses, judged.

Order of a stream: response.created; items, each output_item.added, its parts and deltas, output_item.done; one terminal
event whose `response` holds everything. sequence_number counts from 0 by one. No [DONE].
Source: OpenAI API reference, "Responses: streaming events"; openai-python (needs item and part before their deltas, takes
the result from the terminal event); Codex (takes items from output_item.done, needs full usage).
"""

from __future__ import annotations

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

_TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_PART_OF = {
    "response.output_text": "content_index",
    "response.refusal": "content_index",
    "response.reasoning_text": "content_index",
    "response.reasoning_summary_text": "summary_index",
}
_ARGUMENTS = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}


class _Item:
    """An output item under way. `parts`: open (True) or closed, by name of its index and number; `sent`: its deltas."""

    def __init__(self, item: Object) -> None:
        self.id = item.get("id")
        self.kind = text_at(item, "type")
        self.done = False
        self.parts: dict[tuple[str, object], bool] = {}
        self.sent: dict[tuple[str, object], str] = {}
        self.call: Call | None = None


class StreamJudge:
    def __init__(self) -> None:
        self.reading = Reading()
        self._items: dict[object, _Item] = {}
        self._number = 0
        self._ended = False
        self._id: object = None

    def read(self, framing: Framing) -> Reading:
        reading = self.reading
        reading.begin(framing)
        for frame in framing.frames:
            if frame.data.strip() == "[DONE]":
                reading.remark(frame, "terminator", "[DONE], which this protocol does not have")
                continue
            data = parse_object(reading, frame)
            if data is None:
                continue
            kind = text_at(data, "type")
            reading.need(frame.event, "framing", "an event has no name (no `event:` line)")
            same = not frame.event or frame.event == kind
            reading.need(same, "framing", f"the event {frame.event} has the type {kind}")
            self._sequence(kind, data)
            self._event(kind, data, frame.at_ms)
        if not self._ended and reading.error is None:
            reading.fault("terminator", "no terminal event")
        return reading

    def _sequence(self, kind: str, data: Object) -> None:
        reading = self.reading
        number = data.get("sequence_number")
        wrong = "an event has no sequence_number" if number is None else "sequence_number does not count 0, 1, 2 …"
        reading.need(number == self._number, "constants", wrong)
        reading.need(not self._ended, "terminator", f"{kind} comes after the terminal event")
        first = self._number == 0
        if kind != "error":
            reading.need((kind == "response.created") == first, "order", "response.created is not first and once")
        self._number += 1

    def _event(self, kind: str, data: Object, at_ms: float) -> None:
        response = object_at(data, "response")
        if response:
            self._id = self._id or response.get("id")
            self.reading.need(response.get("id") == self._id, "constants", "the response's id changes")
        stem, _, verb = kind.rpartition(".")
        if kind in _TERMINAL:
            self._terminal(kind, response)
        elif kind == "error":
            self.reading.error = message_in(data)
        elif kind == "keepalive":
            self.reading.heartbeats += 1
        elif kind == "response.created":
            self.reading.need(response.get("status") in ("in_progress", "queued"), "shape", "created has no status")
        elif kind == "response.output_item.added":
            self._added(data)
        elif kind == "response.output_item.done":
            self._done(data)
        elif stem in ("response.content_part", "response.reasoning_summary_part"):
            self._part(stem, verb, data)
        elif stem in _PART_OF or stem in _ARGUMENTS:
            self._content(stem, verb, data, at_ms)

    def _added(self, data: Object) -> None:
        reading, item = self.reading, _Item(object_at(data, "item"))
        place = data.get("output_index")
        missing = "an item has no output_index" if place is None else "output_index does not rise by one from 0"
        reading.need(place == len(self._items), "order", missing)
        reading.need(isinstance(item.id, str) and item.id, "shape", "an item has no id")
        reading.need(item.kind, "shape", "an item has no type")
        self._items[place] = item
        added = object_at(data, "item")
        if item.kind == "message":
            reading.need(added.get("role") == "assistant", "role", "the message's role is not assistant")
        if item.kind in ("function_call", "custom_tool_call"):
            named = text_at(added, "call_id") and text_at(added, "name")
            reading.need(named, "tools", "a call begins without call_id or name")
            item.call = Call(added.get("call_id"), added.get("name"))
            reading.calls.append(item.call)

    def _item(self, kind: str, data: Object) -> _Item | None:
        """The open item an event belongs to."""
        item = self._items.get(data.get("output_index"))
        if not self.reading.need(item is not None and not item.done, "order", f"{kind} outside an open item"):
            return None
        same = item is not None and data.get("item_id", item.id) == item.id
        self.reading.need(same, "constants", "item_id is not the id of its item")
        return item

    def _part(self, stem: str, verb: str, data: Object) -> None:
        item = self._item(f"{stem}.{verb}", data)
        if item is None:
            return
        index = "summary_index" if "summary" in stem else "content_index"
        part = (index, data.get(index))
        if verb == "added":
            self.reading.need(part not in item.parts, "order", "a part is added twice")
        else:
            self.reading.need(item.parts.get(part), "order", "a part is done that is not open")
        item.parts[part] = verb == "added"

    def _content(self, stem: str, verb: str, data: Object, at_ms: float) -> None:
        reading, item = self.reading, self._item(f"{stem}.{verb}", data)
        index = _PART_OF.get(stem, "")
        part = (index, data.get(index)) if index else ("", None)
        if item is not None and index and stem != "response.reasoning_text":
            reading.need(item.parts.get(part), "order", f"{stem}.{verb} outside an open part")
        if verb == "delta":
            self._delta(stem, data, at_ms)
            if item is not None:
                item.sent[part] = item.sent.get(part, "") + text_at(data, "delta")
                if item.call is not None:
                    item.call.arguments += text_at(data, "delta")
        elif verb == "done" and item is not None:
            name = _ARGUMENTS.get(stem, "refusal" if stem == "response.refusal" else "text")
            same = agrees(text_at(data, name), item.sent.get(part, ""), arguments=stem in _ARGUMENTS)
            reading.need(same, "shape", f"{stem}.done differs from its deltas")

    def _delta(self, stem: str, data: Object, at_ms: float) -> None:
        if stem in _ARGUMENTS:
            self.reading.add("tool_call", data.get("delta"), at_ms)
        elif stem in ("response.output_text", "response.refusal"):
            self.reading.add("content", data.get("delta"), at_ms)
        else:
            self.reading.add("thinking", data.get("delta"), at_ms)

    def _done(self, data: Object) -> None:
        reading, done = self.reading, object_at(data, "item")
        item = self._item("response.output_item.done", data)
        if item is None:
            return
        item.done = True
        reading.need(done.get("id") == item.id, "constants", "an item's id changes")
        reading.need(not any(item.parts.values()), "order", "an item is done while a part is open")
        if item.call is not None:
            whole = text_at(done, "arguments") or text_at(done, "input")
            same = agrees(whole, item.call.arguments, arguments=True) or not item.call.arguments
            reading.need(same, "shape", "a finished call differs from its deltas")
            item.call.arguments = whole or item.call.arguments
        if item.kind == "message":
            sent = "".join(item.sent.values())
            reading.need(text_of_item(done) == sent, "shape", "a finished message differs from its deltas")

    def _terminal(self, kind: str, response: Object) -> None:
        reading = self.reading
        self._ended = True
        status = kind.rpartition(".")[2]
        reading.need(response.get("status") == status, "finish", f"status is not {status} in {kind}")
        if kind == "response.failed":
            reading.error = message_in(response.get("error"))
            return
        open_items = any(not item.done for item in self._items.values())
        reading.need(not open_items, "order", "the terminal event comes while an item is open")
        streamed = [item.kind for item in self._items.values()]
        listed = [text_at(item, "type") for item in objects_at(response, "output")]
        reading.need(streamed == listed, "shape", "output in the terminal event is not what was streamed")
        whole = judge_reply(response)
        reading.need(whole.text == reading.text, "shape", "text in the terminal event is not what was streamed")
        reading.model, reading.finish, reading.limited = whole.model, whole.finish, whole.limited
        reading.input_tokens, reading.output_tokens = whole.input_tokens, whole.output_tokens
        for topic, text in whole.broken:
            reading.fault(topic, f"terminal event: {text}")


def judge_reply(body: Object) -> Reading:
    reading = Reading()
    reading.need(body.get("object") == "response", "shape", "object is not response")
    reading.need(text_at(body, "id"), "constants", "no id")
    reading.need(isinstance(body.get("created_at"), int | float), "constants", "created_at is no number")
    reading.need(isinstance(body.get("model"), str), "constants", "no model")
    reading.need(isinstance(body.get("output"), list), "shape", "output is no list")
    reading.model = text_at(body, "model")
    for item in objects_at(body, "output"):
        _read_item(reading, item)
    status = body.get("status")
    reason = object_at(body, "incomplete_details").get("reason")
    known = status in ("completed", "incomplete", "failed")
    reading.need(known, "finish", f"status is {status!r}")
    reading.need(status != "incomplete" or isinstance(reason, str), "finish", "incomplete without a reason")
    reading.finish = str(reason if status == "incomplete" else status)
    reading.limited = reason == "max_output_tokens"
    if status == "failed":
        reading.error = message_in(body.get("error"))
    _read_usage(reading, body)
    return reading


def _read_item(reading: Reading, item: Object) -> None:
    match item.get("type"):
        case "message":
            reading.need(item.get("role") == "assistant", "role", "the message's role is not assistant")
            reading.add("content", text_of_item(item))
        case "reasoning":
            for part in (*objects_at(item, "summary"), *objects_at(item, "content")):
                reading.add("thinking", part.get("text"))
        case "function_call" | "custom_tool_call":
            named = text_at(item, "call_id") and text_at(item, "name")
            reading.need(named, "tools", "a call has no call_id or name")
            call = Call(item.get("call_id"), item.get("name"))
            call.arguments = text_at(item, "arguments") or text_at(item, "input")
            empty = item.get("type") == "function_call" and not call.arguments
            reading.need(not empty, "tools", "arguments are empty instead of {}")
            reading.calls.append(call)


def _read_usage(reading: Reading, body: Object) -> None:
    usage = object_at(body, "usage")
    reading.input_tokens, reading.output_tokens = count_at(usage, "input_tokens"), count_at(usage, "output_tokens")
    counts = [count_at(usage, name) for name in ("input_tokens", "output_tokens", "total_tokens")]
    reading.need(None not in counts, "usage", "no usage with input_tokens, output_tokens and total_tokens")
    details = {"input_tokens_details": "cached_tokens", "output_tokens_details": "reasoning_tokens"}
    for name, count in details.items():
        there = count_at(object_at(usage, name), count) is not None
        reading.need(not usage or name not in usage or there, "usage", f"usage.{name} has no {count}")


def text_of_item(item: Object) -> str:
    return "".join(text_at(part, "text") or text_at(part, "refusal") for part in objects_at(item, "content"))


def agrees(whole: str, sent: str, *, arguments: bool) -> bool:
    """The whole is the sum of its deltas; a call without arguments may say {} only at its end."""
    return whole == sent or (arguments and not sent and whole == "{}")
