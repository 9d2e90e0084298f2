"""Tool names on their way to an upstream and back.

`plan_names` gives every tool a name its upstream takes: namespaces are flattened as `ns__name`, illegal and over-long names
are replaced, and no two tools end up with the same one. `ToolNameFilter` puts the client's names back on a stream and
unwraps custom tools: these go out as functions with one string field `input`, so their arguments `{"input": "…"}` come back
as JSON, which is turned into the raw text piece by piece, as it comes. Source: protocol-facts.md section 6.2.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from strom.core.events import ArgumentsDelta, BlockEnded, BlockStarted, Event
from strom.core.messages import Tool

WRAPPER_SCHEMA = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
"""Parameters of a custom tool that goes out as a function."""


class ClientName(Protocol):
    """What a name upstream stands for at the client (`ToolName` of the codec contract)."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def custom(self) -> bool: ...


# --- out -----------------------------------------------------------------------------------------

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def plan_names(tools: Iterable[Tool], max_length: int) -> dict[tuple[str, str], str]:
    """(namespace, name) → name upstream, for all tools but opaque ones. Deterministic in the tools' order."""
    declared = [tool for tool in tools if tool.opaque is None]
    taken = {
        tool.name for tool in declared if upstream_name("", tool.name, max_length) == tool.name and not tool.namespace
    }
    plan: dict[tuple[str, str], str] = {}
    for tool in declared:
        name = upstream_name(tool.namespace, tool.name, max_length)
        if name != tool.name or tool.namespace:
            while name in taken:
                name = _with_digest(name, f"{tool.namespace}\x00{tool.name}\x00{name}", max_length)
            taken.add(name)
        plan[tool.namespace, tool.name] = name
    return plan


def upstream_name(namespace: str, name: str, max_length: int) -> str:
    """The legal name of a tool, also of one that is only mentioned in the history."""
    full = f"{namespace}__{name}" if namespace else name
    legal = _ILLEGAL.sub("_", full) or "_"
    if legal == full and len(full) <= max_length:
        return full
    return _with_digest(legal, full, max_length)


def _with_digest(name: str, source: str, max_length: int) -> str:
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: max_length - 9]}_{digest}"


# --- back ----------------------------------------------------------------------------------------


class ToolNameFilter:
    """An event filter, between a decoder and whoever wants the client's names. `names`: upstream name → client's."""

    __slots__ = ("_names", "_open")

    def __init__(self, names: Mapping[str, ClientName]) -> None:
        self._names = names
        self._open: dict[int, InputUnwrapper] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """The events with names restored; the same list when nothing had to change."""
        if not self._names:
            return events
        if not self._open and not any(type(event) is BlockStarted for event in events):
            return events
        out: list[Event] = []
        for event in events:
            self._take(event, out)
        return out

    def _take(self, event: Event, out: list[Event]) -> None:
        match event:
            case BlockStarted(index, block) if block.kind == "tool_call" and block.name in self._names:
                known = self._names[block.name]
                if known.custom:
                    self._open[index] = InputUnwrapper()
                renamed = msgspec.structs.replace(
                    block, name=known.name, namespace=known.namespace, custom=known.custom or block.custom
                )
                out.append(BlockStarted(index, renamed))
            case ArgumentsDelta(index, text) if index in self._open:
                if raw := self._open[index].feed(text):
                    out.append(ArgumentsDelta(index, raw))
            case BlockEnded(index) if index in self._open:
                if raw := self._open.pop(index).finish():
                    out.append(ArgumentsDelta(index, raw))
                out.append(event)
            case _:
                out.append(event)


_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HEAD_SKELETON = '{"input":"'
_LONGEST_HEAD = 1000  # white space included; keeps the work linear
_STRING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HIGH_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_PENDING_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


class InputUnwrapper:
    """`{"input": "…"}` in pieces → the text in pieces. What is no such object comes out unchanged.

    States: head (nothing decided yet), string (inside the value), done (behind it), plain (no wrapper: text as it is),
    whole (an object with other members first: read at the end).
    """

    __slots__ = ("_pieces", "_rest", "_state")

    def __init__(self) -> None:
        self._state = "head"
        self._rest = ""
        self._pieces: list[str] = []

    def feed(self, text: str) -> str:
        match self._state:
            case "head":
                return self._feed_head(self._rest + text)
            case "string":
                return self._feed_string(self._rest + text)
            case "whole":
                self._pieces.append(text)
                return ""
            case "plain":
                return text
            case _:
                return ""

    def finish(self) -> str:
        """What is left when the call ends."""
        match self._state:
            case "head":
                return "" if self._rest.strip() in ("{}", "") else self._rest
            case "whole":
                return _read_whole("".join(self._pieces))
            case "string":
                return _unescape(self._rest) if _STRING.fullmatch(self._rest) else ""
            case _:
                return ""

    def _feed_head(self, text: str) -> str:
        found = _HEAD.match(text)
        if found is not None:
            self._state, self._rest = "string", ""
            return self._feed_string(text[found.end() :])
        squeezed = "".join(text.split())
        if len(text) < _LONGEST_HEAD and (_HEAD_SKELETON.startswith(squeezed) or squeezed == "{}"):
            self._rest = text
            return ""
        if squeezed.startswith("{"):
            self._state, self._pieces = "whole", [text]
            return ""
        self._state, self._rest = "plain", ""
        return text

    def _feed_string(self, text: str) -> str:
        found = _STRING.match(text)
        end = found.end() if found is not None else 0
        rest = text[end:]
        if rest.startswith('"'):
            self._state, self._rest = "done", ""
            return _unescape(text[:end])
        if rest and _PENDING_ESCAPE.fullmatch(rest) is None:
            self._state, self._rest = "plain", ""  # an escape that is none: the rest is passed on as it is
            return _unescape(text[:end]) + rest
        pair = _HIGH_SURROGATE.search(text, max(0, end - 6), end)
        if pair is not None:  # its other half may come next
            end = pair.start()
        self._rest = text[end:]
        return _unescape(text[:end])


def _unescape(text: str) -> str:
    """The inside of a JSON string; half a surrogate pair becomes U+FFFD."""
    if "\\" not in text:
        return text
    value: str = json.loads(f'"{text}"', strict=False)
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_whole(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = value.get("input") if isinstance(value, dict) else None
    return found if isinstance(found, str) else text
