"""The order of an Ollama stream, judged from the bytes alone. Knows nothing of the codec.

Source: streams.md section 2; ollama-python 0.6.3, ChatResponse and GenerateResponse (which members are demanded).
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any


class GrammarBroken(AssertionError):
    pass


def need(holds: object, rule: str) -> None:
    if not holds:
        raise GrammarBroken(rule)


class Seen:
    """What a client makes of the stream. `last`: the object of the done line. `idle`: lines that say nothing."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[tuple[str | None, str, dict[str, Any]]] = []
        self.kinds: list[str] = []
        self.last: dict[str, Any] = {}
        self.error: str | None = None
        self.idle = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def thinking(self) -> str:
        return "".join(self.thoughts)

    @property
    def finish(self) -> str | None:
        reason = self.last.get("done_reason")
        return reason if isinstance(reason, str) else None


def read(body: bytes, *, form: str = "chat", strict: bool = True, complete: bool = True) -> Seen:
    """Raises GrammarBroken. `strict`: every line was written by us. `complete`: a done line or an error is demanded."""
    seen = Seen()
    need(not body or body.endswith(b"\n"), "body ends inside a line")
    text = body.decode()
    need(not strict or len(text.splitlines()) == text.count("\n"), "a character at which str.splitlines breaks")
    for line in text.split("\n")[:-1]:
        need(line.strip(), "blank line")
        value = json.loads(line)
        need(isinstance(value, dict), "line is no object")
        need(not seen.last and seen.error is None, "line after the end")
        _line(seen, value, form, strict=strict)
    need(not complete or seen.last or seen.error is not None, "no done line")
    return seen


def _line(seen: Seen, value: dict[str, Any], form: str, *, strict: bool) -> None:
    if "error" in value:
        need(isinstance(value["error"], str) and value["error"], "error is no text")
        need(not strict or list(value) == ["error"], "error with companions")
        seen.error = value["error"]
        return
    need(isinstance(value.get("model"), str), "line without model")
    datetime.fromisoformat(value["created_at"])
    need(isinstance(value.get("done"), bool), "done is no boolean")
    kinds = _contents(seen, _message(value, form), form)
    need(not strict or len(kinds) <= 1, "a line of several kinds")
    seen.kinds += kinds
    if value["done"]:
        need(isinstance(value.get("done_reason"), str) and value["done_reason"], "done line without done_reason")
        need(not strict or not kinds, "the done line says something")
        seen.last = value
    else:
        need("done_reason" not in value, "done_reason before the end")
        seen.idle += not kinds
    numbers = [value[name] for name in value if name.endswith(("_count", "_duration"))]
    need(all(isinstance(number, int) for number in numbers), "a count or duration is no integer")
    need(not numbers or value["done"], "counts before the done line")


def _message(value: dict[str, Any], form: str) -> dict[str, Any]:
    if form == "generate":
        need("message" not in value, "a message in a line of /api/generate")
        return {"content": value.get("response"), **value}
    need("response" not in value, "a response in a line of /api/chat")
    message = value.get("message")
    if not isinstance(message, dict):
        raise GrammarBroken("line without message")
    need(message.get("role") == "assistant", "message without role")
    return message


def _contents(seen: Seen, message: dict[str, Any], form: str) -> list[str]:
    kinds = []
    need(isinstance(message.get("content"), str), f"a line of /api/{form} without its text")
    if thinking := message.get("thinking"):
        seen.thoughts.append(thinking)
        kinds.append("thinking")
    if message["content"]:
        seen.pieces.append(message["content"])
        kinds.append("text")
    for call in message.get("tool_calls") or ():
        function = call["function"]
        need(function.get("name") and isinstance(function.get("arguments"), dict), "call without name or object")
        need("id" not in call or isinstance(call["id"], str), "id of a call is no text")
        seen.calls.append((call.get("id"), function["name"], function["arguments"]))
        kinds.append("call")
    return kinds
