"""An answer reduced to what a client makes of it, with every rule it breaks.

Foreign JSON is looked at as plain values, not through structs: a struct would refuse the very mistakes that have to be
named. `object_at` and `objects_at` give empty ones where something else stands, so that a reader never stumbles.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from strom.conformance.framing import Frame, Framing

Object = dict[str, Any]
Topic = Literal["framing", "shape", "order", "role", "constants", "finish", "terminator", "usage", "tools", "thinking"]
Kind = Literal["content", "thinking", "tool_call"]


class Token(msgspec.Struct, frozen=True):
    kind: Kind
    text: str
    at_ms: float


class Call:
    """A tool call; its arguments are collected as text."""

    def __init__(self, identity: object, name: object) -> None:
        self.id = identity
        self.name = name
        self.arguments = ""


class Reading:
    """`input_tokens`, `output_tokens`: None when not reported. `limited`: it says that the limit of tokens ended it."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.calls: list[Call] = []
        self.model: str | None = None
        self.finish: str | None = None
        self.limited = False
        self.ended_for_tools: bool | None = None
        """None: this protocol has no reason of its own for tool calls."""
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = None
        self.heartbeats = 0
        self.broken: list[tuple[Topic, str]] = []
        self.odd: list[tuple[Topic, str]] = []
        """Legal or tolerated, but somebody may stumble over it."""

    def need(self, holds: object, topic: Topic, text: str) -> bool:
        """Notes a broken rule, once. Returns whether the rule holds."""
        if not holds:
            self.fault(topic, text)
        return bool(holds)

    def fault(self, topic: Topic, text: str) -> None:
        if (topic, text) not in self.broken:
            self.broken.append((topic, text))

    def remark(self, odd: object, topic: Topic, text: str) -> None:
        if odd and (topic, text) not in self.odd:
            self.odd.append((topic, text))

    def add(self, kind: Kind, text: object, at_ms: float = 0.0) -> None:
        """Empty text is no token. Anything but text is a broken shape."""
        if text is None or text == "":
            return
        if self.need(isinstance(text, str), "shape", f"{kind} is no string"):
            self.tokens.append(Token(kind, str(text), at_ms))

    def said(self, kind: Kind) -> str:
        return "".join(token.text for token in self.tokens if token.kind == kind)

    @property
    def text(self) -> str:
        return self.said("content")

    @property
    def thinking(self) -> str:
        return self.said("thinking")

    def begin(self, framing: Framing) -> None:
        self.heartbeats = len(framing.heartbeats)
        for flaw in framing.flaws:
            self.fault("framing", flaw)


def parse_object(reading: Reading, frame: Frame) -> Object | None:
    """The JSON object in a frame; None, and a broken rule, where there is none."""
    try:
        found = json.loads(frame.data)
    except ValueError:
        found = None
    if reading.need(isinstance(found, dict), "framing", f"a frame is no JSON object: {frame.data[:60]}"):
        return object_at({"": found}, "")
    return None


def parse_body(body: bytes) -> Object | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def object_at(value: Object, name: str) -> Object:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def objects_at(value: Object, name: str) -> list[Object]:
    found = value.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text_at(value: Object, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def count_at(value: Object, name: str) -> int | None:
    """A number of tokens."""
    found = value.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def message_in(error: object) -> str:
    """The words of an error, in whatever shape it came."""
    if isinstance(error, dict):
        inner = error.get("message") or error.get("error") or error.get("detail")
        return message_in(inner) if inner is not None else json.dumps(error)[:200]
    return str(error)[:200]
