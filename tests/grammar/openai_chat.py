"""Judges a Chat stream by its own reading of the protocol: shares nothing with the codec.

`check(data, asked=…, strict=…)` returns the broken rules. `strict` is for streams the gateway wrote itself; in relayed ones the
layout of single frames is the upstream's. Source: streams.md section 2.
"""

from __future__ import annotations

import json
from typing import Any

Chunk = dict[str, Any]
PAYLOADS = ("content", "reasoning_content", "tool_calls", "refusal")


class ChatGrammar:
    """Reads frames one after the other; `broken` collects what is wrong, `text` and the like what a client would see."""

    def __init__(self, *, asked: bool, strict: bool) -> None:
        self.asked = asked
        self.strict = strict
        self.broken: list[str] = []
        self.text = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.error: Any = None
        self.done = 0
        self.chunks: list[Chunk] = []
        self._seen: dict[int, dict[str, Any]] = {}

    def need(self, holds: object, rule: str) -> None:
        if not holds and rule not in self.broken:
            self.broken.append(rule)

    def read(self, data: bytes) -> None:
        self.need(data.endswith(b"\n\n"), "the body ends inside an event")
        for block in data.decode().replace("\r\n", "\n").split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if lines:
                self.need(all(line.startswith("data:") for line in lines), "a line that is neither data nor a comment")
                self._event("\n".join(line[5:].removeprefix(" ") for line in lines))
        self._end()

    def _event(self, data: str) -> None:
        self.need(self.done == 0, "an event after [DONE]")
        self.need(self.error is None, "an event after the error")
        if data.strip() == "[DONE]":
            self.done += 1
            return
        chunk = json.loads(data)
        self.chunks.append(chunk)
        if chunk.get("error") is not None:
            self.error = chunk["error"]
            members = {"message", "type", "param", "code"}
            self.need(isinstance(self.error, dict) and self.error.keys() == members, "the error lacks a member")
            return
        self._envelope(chunk)
        for choice in chunk.get("choices") or []:
            self._choice(choice)

    def _envelope(self, chunk: Chunk) -> None:
        first = next(c for c in self.chunks if "error" not in c or c["error"] is None)
        self.need(chunk.get("object") == "chat.completion.chunk", "object is wrong")
        self.need(isinstance(chunk.get("choices"), list), "choices is no list")
        self.need(isinstance(chunk.get("id"), str) and chunk["id"], "no id")
        self.need(type(chunk.get("created")) is int, "created is no integer")
        for name in ("id", "model", "created") if self.strict else ("id", "model"):
            self.need(isinstance(chunk.get(name), int | str), f"no {name}")
            self.need(chunk.get(name) == first.get(name), f"{name} changes")

    def _choice(self, choice: Chunk) -> None:
        index, delta, reason = choice.get("index", 0), choice.get("delta"), choice.get("finish_reason")
        self.need(isinstance(delta, dict), "delta is no object")
        delta = delta or {}
        seen = self._seen.setdefault(index, {"frames": 0, "finish": None, "role": False})
        carried = [name for name in PAYLOADS if delta.get(name)]
        self.need(not (seen["finish"] and (carried or reason)), "something after the finish reason")
        self.need(not (seen["role"] and delta.get("role")), "the role is said twice")
        if self.strict:
            self._layout(delta, reason, carried, first=not seen["frames"])
        seen["frames"] += 1
        seen["role"] = seen["role"] or bool(delta.get("role"))
        seen["finish"] = seen["finish"] or reason
        if index == 0:
            self._content(delta, reason)

    def _layout(self, delta: Chunk, reason: str | None, carried: list[str], *, first: bool) -> None:
        alone = not carried and reason is None and delta.get("role") == "assistant"
        self.need(alone if first else "role" not in delta, "the role does not stand in the first frame, alone")
        self.need(len(carried) <= 1, "one frame carries several kinds")
        self.need(not reason or delta == {}, "the finish frame carries something")
        self.need(first or reason or carried, "an empty frame")

    def _content(self, delta: Chunk, reason: str | None) -> None:
        self.finish = self.finish or reason
        self.text += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for part in delta.get("tool_calls") or []:
            self._call(part)

    def _call(self, part: Chunk) -> None:
        index = part.get("index")
        contents = part.get("function") or part.get("custom") or {}
        self.need(type(index) is int and 0 <= index <= len(self.calls), "a tool index is missing or jumps")
        if index == len(self.calls):
            self.need(isinstance(part.get("id"), str) and part["id"], "a call without id")
            self.need(
                part.get("type") in ("function", "custom") and contents.get("name"), "a call without type or name"
            )
            self.calls.append({"id": part.get("id"), "name": contents.get("name"), "arguments": ""})
        else:
            self.need(not part.get("id") and not contents.get("name"), "id or name repeated")
        piece = contents.get("arguments", contents.get("input"))
        self.need(piece is None or isinstance(piece, str), "arguments are no string")
        if self.calls and isinstance(index, int) and isinstance(piece, str):
            self.calls[min(index, len(self.calls) - 1)]["arguments"] += piece

    def _end(self) -> None:
        if self.error is not None:
            self.need(not self.done, "[DONE] after the error")
            return
        self.need(self.done == 1, f"[DONE] stands {self.done} times")
        self.need(self._seen and all(seen["finish"] for seen in self._seen.values()), "a choice without finish reason")
        ids = [call["id"] for call in self.calls]
        self.need(len(set(ids)) == len(ids), "two calls have one id")
        self._usage()
        carriers = [n for n, chunk in enumerate(self.chunks) if "strom" in chunk]
        self.need(carriers in ([], [len(self.chunks) - 1]), "the routing block is not on the last frame alone")

    def _usage(self) -> None:
        carriers = [n for n, chunk in enumerate(self.chunks) if chunk.get("usage")]
        self.need(len(carriers) <= 1, "usage stands more than once")
        bare = [n for n, chunk in enumerate(self.chunks) if chunk.get("choices") == []]
        if not self.asked:
            self.need(not bare, "a frame with empty choices that nobody asked for")
            self.need(all(self._finishes(n) for n in carriers), "usage outside the finish frame")
        else:
            self.need(carriers == [len(self.chunks) - 1] == bare[-1:], "the usage frame is not the last, or not alone")
            if self.strict:
                self.need(all("usage" in chunk for chunk in self.chunks), "an earlier frame lacks usage: null")
        self.usage = self.chunks[carriers[-1]]["usage"] if carriers else None

    def _finishes(self, number: int) -> bool:
        return any(choice.get("finish_reason") for choice in self.chunks[number]["choices"])


def read(data: bytes, *, asked: bool = False, strict: bool = True) -> ChatGrammar:
    grammar = ChatGrammar(asked=asked, strict=strict)
    grammar.read(data)
    return grammar
