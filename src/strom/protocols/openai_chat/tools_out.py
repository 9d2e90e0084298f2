"""Tools, their names and the choice among them, in a Chat upstream's words.

Names must be of `[A-Za-z0-9_-]`, 64 characters at most, and unique: others get a legal one, the same in tools, choice and
history, and `tool_names` gives the client's back. A namespace becomes a prefix. A free-text tool goes out as a function
with one string field `input`, unless the request came in Chat. Tools only another protocol can run are left out and named.
Source: protocol-facts.md sections 1.1 and 6.2.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from strom.core.messages import Request, Tool, ToolChoice
from strom.protocols.codec import Quirks, ToolName
from strom.protocols.openai_chat.turns_out import Dropped
from strom.wire.splice import join

MAX_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_EMPTY_SCHEMA = b'{"type":"object","properties":{}}'
_SCHEMA = msgspec.json.Decoder(dict[str, msgspec.Raw])
JSON = msgspec.json.Encoder().encode


class ToolNames:
    """Outgoing names, made once per name. `changed`: upstream's name → the client's, where they differ."""

    def __init__(self, tools: tuple[Tool, ...], *, native_custom: bool) -> None:
        self.changed: dict[str, ToolName] = {}
        self.native_custom = native_custom
        self._names: dict[tuple[str, str], str] = {}
        self._used = {tool.name for tool in tools if not tool.namespace and _is_legal(tool.name)}
        for tool in tools:
            if tool.opaque is None:
                self._add(tool.name, tool.namespace, custom=tool.custom)

    def outgoing(self, name: str, namespace: str = "") -> str:
        """The upstream's name for a tool; a name only the history knows is made legal as well."""
        return self._names.get((name, namespace)) or self._add(name, namespace, custom=False)

    def _add(self, name: str, namespace: str, *, custom: bool) -> str:
        flat = f"{namespace}__{name}" if namespace else name
        legal = flat if not namespace and _is_legal(flat) else self._make(flat)
        self._names[(name, namespace)] = legal
        unwrapped = custom and not self.native_custom
        if legal != name or namespace or unwrapped:
            self.changed[legal] = ToolName(name, namespace, custom=unwrapped)
        return legal

    def _make(self, flat: str) -> str:
        legal = _ILLEGAL.sub("_", flat)
        if not legal or len(legal) > MAX_NAME or legal in self._used:
            digest = hashlib.sha256(flat.encode("utf-8", "surrogatepass")).hexdigest()[:8]
            legal = f"{legal[: MAX_NAME - 9]}_{digest}"
        self._used.add(legal)
        return legal


def _is_legal(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and _ILLEGAL.search(name) is None


# --- the list of tools -----------------------------------------------------------------------------


class _Function(msgspec.Struct, omit_defaults=True):
    name: str
    description: str = ""
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    strict: bool | None = None


class _Custom(msgspec.Struct, omit_defaults=True):
    name: str
    description: str = ""
    format: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Tool(msgspec.Struct, omit_defaults=True):
    type: str
    function: _Function | None = None
    custom: _Custom | None = None
    cache_control: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _NameOnly(msgspec.Struct):
    name: str


class _Choice(msgspec.Struct, omit_defaults=True):
    type: str
    function: _NameOnly | None = None
    custom: _NameOnly | None = None


class _Allowed(msgspec.Struct):
    mode: str
    tools: list[_Choice]


class _AllowedChoice(msgspec.Struct):
    type: str
    allowed_tools: _Allowed


class ToolsOut:
    """Encodes the tools of one request. `names` serves the history too."""

    def __init__(self, request: Request, quirks: Quirks, dropped: Dropped) -> None:
        self._request = request
        self._quirks = quirks
        self._dropped = dropped
        self._native = request.protocol == "openai-chat"
        self.names = ToolNames(request.tools, native_custom=self._native)

    def members(self) -> dict[str, bytes]:
        """`tools`, `tool_choice` and `parallel_tool_calls`, as far as they are to be sent."""
        choice = self._request.tool_choice
        encoded = [data for n, tool in enumerate(self._offered(choice)) if (data := self._tool(n, tool))]
        if not encoded:
            return {}
        members = {"tools": b"[" + b",".join(encoded) + b"]"}
        chosen = self._choice(choice) if choice is not None else b""
        if chosen and self._quirks.tool_choice:
            members["tool_choice"] = chosen
        elif choice is not None and choice.mode == "required":
            self._dropped.add("tool_choice")
        if self._request.parallel_tool_calls is not None:
            members["parallel_tool_calls"] = JSON(self._request.parallel_tool_calls)
        return members

    def _offered(self, choice: ToolChoice | None) -> tuple[Tool, ...]:
        """The tools that go out: the choice is imitated by the list where the upstream cannot be told, or takes no list."""
        tools = self._request.tools
        if choice is None:
            return tools
        if choice.mode == "allowed" and not self._native:
            return tuple(tool for tool in tools if tool.name in choice.allowed)
        if self._quirks.tool_choice:
            return tools
        match choice.mode:
            case "none":
                return ()
            case "named":
                return tuple(tool for tool in tools if tool.name == choice.name)
            case "allowed":
                return tuple(tool for tool in tools if tool.name in choice.allowed)
            case "auto" | "required":
                return tools

    def _tool(self, number: int, tool: Tool) -> bytes:
        if tool.opaque is not None:
            if tool.opaque.protocol == "openai-chat" and self._native:
                return tool.opaque.json.text.encode()
            self._dropped.add(f"tools[{number}] {tool.opaque.kind}")
            return b""
        name = self.names.outgoing(tool.name, tool.namespace)
        shape = self._custom(name, tool) if tool.custom else self._function(name, tool)
        if tool.cache_control is not None:
            if self._quirks.cache_control:
                shape.cache_control = msgspec.Raw(tool.cache_control.text.encode())
            else:
                self._dropped.add("cache_control")
        return JSON(shape)

    def _function(self, name: str, tool: Tool) -> _Tool:
        parameters = msgspec.Raw(object_schema(tool.parameters))
        return _Tool("function", _Function(name, tool.description, parameters, tool.strict))

    def _custom(self, name: str, tool: Tool) -> _Tool:
        wanted = tool.format.text.encode() if tool.format is not None else b""
        if self._native:
            custom = _Custom(name, tool.description, msgspec.Raw(wanted) if wanted else msgspec.UNSET)
            return _Tool("custom", custom=custom)
        about = "The whole input of the tool, as plain text."
        about += f" Its format: {wanted.decode()}" if wanted else ""
        field = b'{"input":{"type":"string","description":' + JSON(about) + b"}}"
        schema = b'{"type":"object","properties":' + field + b',"required":["input"]}'
        return _Tool("function", _Function(name, tool.description, msgspec.Raw(schema)))

    def _choice(self, choice: ToolChoice) -> bytes:
        match choice.mode:
            case "auto" | "none" | "required":
                return JSON(choice.mode)
            case "named":
                return JSON(self._named(choice.name)) if self._exists(choice.name) else b""
            case "allowed":
                mode = "required" if choice.required else "auto"
                if not self._native:
                    return JSON(mode)
                return JSON(_AllowedChoice("allowed_tools", _Allowed(mode, [self._named(n) for n in choice.allowed])))

    def _exists(self, name: str) -> bool:
        return any(tool.name == name and tool.opaque is None for tool in self._request.tools)

    def _named(self, name: str) -> _Choice:
        tool = next((tool for tool in self._request.tools if tool.name == name), Tool(name))
        only = _NameOnly(self.names.outgoing(name, tool.namespace))
        return _Choice("custom", custom=only) if tool.custom and self._native else _Choice("function", only)


def object_schema(parameters: str) -> bytes:
    """The schema of an object; strict backends refuse one without `properties`."""
    if not parameters:
        return _EMPTY_SCHEMA
    data = parameters.encode()
    try:
        members = _SCHEMA.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data
    if "properties" in members or bytes(members.get("type", msgspec.Raw(b'"object"'))) != b'"object"':
        return data
    if any(name in members for name in ("$ref", "anyOf", "oneOf", "allOf")):
        return data
    missing = {"type": b'"object"', "properties": b"{}"}
    return join({**{name: bytes(value) for name, value in members.items()}, **missing})
