"""The order of a Responses event stream, judged from the bytes alone. Knows nothing of the codec.

Source: streams.md section 2; OpenAI's streaming reference for Responses; openai-python 3.57.0 types/responses.
"""

from __future__ import annotations

import json
from typing import Any

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
TEXTS = {
    "response.output_text": "text",
    "response.refusal": "refusal",
    "response.reasoning_summary_text": "text",
    "response.reasoning_text": "text",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
"""Events with .delta and .done, and the member that holds the whole in the latter."""
EMPTY = {"function_call": "arguments", "custom_tool_call": "input"}
DEMANDED = ("id", "object", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools", "status")


class GrammarBroken(AssertionError):
    pass


def need(holds: object, rule: str) -> None:
    if not holds:
        raise GrammarBroken(rule)


class Item:
    """An output item while it is open. `parts`: open (True) or closed, by (of a summary, index)."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.id, self.type = item.get("id"), item["type"]
        self.parts: dict[tuple[bool, int], bool] = {}
        self.sent: dict[tuple[str, int], str] = {}
        self.done: dict[str, Any] | None = None


class Seen:
    """What a client makes of the stream. `strict`: every frame was written by us, not relayed."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.types: list[str] = []
        self.items: list[Item] = []
        self.response: dict[str, Any] = {}
        self.error: dict[str, Any] | None = None
        self.keepalives = 0
        self.comments = 0
        self.identity: str | None = None

    def text(self, *kinds: str) -> str:
        """The deltas of these types, in order."""
        return "".join(
            text for item in self.items for (kind, _), text in item.sent.items() if kind.split(".")[1] in kinds
        )

    @property
    def kinds(self) -> list[str]:
        return [item.type for item in self.items]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        done = [item.done for item in self.items if item.type in EMPTY and item.done]
        return [(call["call_id"], call["name"], call[EMPTY[call["type"]]]) for call in done]


def read(body: bytes, *, strict: bool = True, complete: bool = True) -> Seen:
    """Raises GrammarBroken. `complete`: a terminal event is demanded."""
    seen = Seen(strict=strict)
    need(not body or body.endswith((b"\n\n", b"\r\n\r\n")), "body ends inside an event")
    number = 0
    for block in body.decode().replace("\r\n", "\n").split("\n\n")[:-1]:
        lines = block.split("\n")
        if all(line.startswith(":") for line in lines):
            seen.comments += 1
            continue
        if lines[0].startswith("id: "):
            need(lines.pop(0) == f"id: {number + 1}", f"the id is not {number + 1}: {block!r}")
        need(len(lines) == 2, f"not one event line and one data line: {block!r}")
        need(lines[0].startswith("event: ") and lines[1].startswith("data: "), f"malformed lines: {block!r}")
        data = json.loads(lines[1][6:])
        need(data["type"] == lines[0][7:], "the event line is not the type")
        need(data.get("sequence_number") == number, f"sequence_number is not {number}: {block!r}")
        need(not any(kind in TERMINAL for kind in seen.types), "event after the terminal one")
        number += 1
        _event(seen, data)
    if complete:
        need(seen.types[-1:] and seen.types[-1] in TERMINAL, "last event is not terminal")
    return seen


def _event(seen: Seen, data: dict[str, Any]) -> None:
    kind = data["type"]
    need((kind == "response.created") == (not seen.types) or not seen.strict, "response.created not first and once")
    seen.types.append(kind)
    if kind == "keepalive":
        seen.keepalives += 1
    elif kind == "error":
        need(
            data["message"] == data["error"]["message"] and data["code"] == data["error"]["code"], "error shapes differ"
        )
        seen.error = data["error"]
    elif "response" in data:
        _lifecycle(seen, kind, data["response"])
    elif kind == "response.output_item.added":
        _added(seen, data)
    elif kind == "response.output_item.done":
        _done(seen, data)
    else:
        _within(seen, kind, data)


def _lifecycle(seen: Seen, kind: str, response: dict[str, Any]) -> None:
    need(all(response.get(name) is not None for name in DEMANDED), f"{kind} lacks {DEMANDED}: {response}")
    need(response["object"] == "response", "object is not response")
    need(seen.identity in (None, response["id"]), "the response's id changes")
    seen.identity = response["id"]
    if kind not in TERMINAL:
        need(response["output"] == [], "output before the end")
        return
    seen.response = response
    need(response["status"] == kind.split(".")[1], "status does not match the terminal event")
    need((response.get("error") is not None) == (kind == "response.failed"), "error without failure, or the reverse")
    usage = response["usage"]
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        need(isinstance(usage[name], int), f"usage without {name}")
    for name, part in (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")):
        need(not seen.strict or isinstance(usage[name][part], int), f"usage without {part}")
    finished = [item.done for item in seen.items]
    if kind != "response.failed":
        need(None not in finished, "terminal event while an item is open")
        need(response["output"] == finished, "output differs from the items that were streamed")


def _added(seen: Seen, data: dict[str, Any]) -> None:
    item = data["item"]
    need(data["output_index"] == len(seen.items), "output_index does not rise by one")
    need(all(earlier.done for earlier in seen.items) or not seen.strict, "item added while another is open")
    need(not seen.strict or item.get("id"), "item without id")
    need(item.get("id") not in [earlier.id for earlier in seen.items], "item id used twice")
    for member in ("arguments", "input", "content", "summary"):
        need(not item.get(member) or item["type"] not in (*EMPTY, "message", "reasoning"), f"{member} at the start")
    seen.items.append(Item(item))


def _done(seen: Seen, data: dict[str, Any]) -> None:
    item, finished = seen.items[data["output_index"]], data["item"]
    need(item.done is None, "item done twice")
    need(finished["type"] == item.type and finished.get("id") == item.id, "the item's identity changes")
    need(not any(item.parts.values()), "item done while a part is open")
    texts = _texts(finished)
    sent = "".join(item.sent.values())
    need(texts is None or texts == sent or (texts == "{}" and not sent), f"item differs from its deltas: {finished}")
    item.done = finished


def _texts(item: dict[str, Any]) -> str | None:
    match item["type"]:
        case "message":
            return "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
        case "reasoning":
            return "".join(part["text"] for part in (item.get("content") or item["summary"]))
        case "function_call" | "custom_tool_call":
            text: str = item[EMPTY[item["type"]]]
            return text
    return None


def _within(seen: Seen, kind: str, data: dict[str, Any]) -> None:
    """An event of a part of an item."""
    item = seen.items[data["output_index"]]
    need(item.done is None, f"{kind} after its item was done")
    need(data.get("item_id") == item.id, "item_id is not the item's")
    index = data.get("summary_index", data.get("content_index", 0))
    of_summary = ".reasoning_summary_" in kind
    part = (of_summary, index)
    stem, _, end = kind.rpartition(".")
    if kind.endswith("part.added"):
        need(part not in item.parts, "part added twice")
        item.parts[part] = True
    elif kind.endswith("part.done"):
        need(item.parts.get(part), "part done without added")
        item.parts[part] = False
    elif stem in TEXTS:
        in_part = item.type in ("message", "reasoning") and stem != "response.reasoning_text"
        need(not in_part or item.parts.get(part), f"{kind} outside an open part")
        before = item.sent.get((stem, index), "")
        if end == "delta":
            need(data["delta"], "empty delta")
            need(stem != "response.output_text" or data["logprobs"] == [], "text delta without logprobs")
            item.sent[stem, index] = before + data["delta"]
        else:
            whole = data[TEXTS[stem]]
            need(whole == before or (whole == "{}" and not before), f"{kind} differs from its deltas")
