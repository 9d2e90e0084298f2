"""Tools, tool choice and what hangs on them, in Anthropic's words.

Names: `[A-Za-z0-9_-]{1,128}`. A schema must describe an object. Custom (free-text) tools go out as functions with one string
field and are unwrapped on the way back. Source: protocol-facts.md section 6.2.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import Raw

from strom.core.messages import Json, Request, Tool, ToolChoice
from strom.core.tool_names import WRAPPER_SCHEMA, plan_names, upstream_name
from strom.protocols.anthropic_messages import schema
from strom.protocols.codec import ToolName

NAME = "anthropic"
MAX_NAME_LENGTH = 128
EMPTY_SCHEMA = b'{"type":"object","properties":{}}'


class _SchemaHead(msgspec.Struct, frozen=True):
    type: str = ""
    properties: dict[str, Raw] = {}


_SCHEMA_HEAD = msgspec.json.Decoder(_SchemaHead)
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


class ToolPlan:
    """The tools of one request: their names upstream, the list that is sent, and the way back."""

    def __init__(self, request: Request, dropped: list[str]) -> None:
        self._request = request
        self._dropped = dropped
        self._names = plan_names(request.tools, MAX_NAME_LENGTH)
        self.sent: list[schema.ToolOut | Raw] = [
            entry for at, tool in enumerate(request.tools) if (entry := self._entry(at, tool)) is not None
        ]

    def name(self, namespace: str, name: str) -> str:
        """The name upstream of a tool, declared or only mentioned."""
        return self._names.get((namespace, name)) or upstream_name(namespace, name, MAX_NAME_LENGTH)

    def named(self, name: str) -> str:
        """The name upstream of a tool that the tool choice names, wherever it was declared."""
        namespace = next((space for space, tool in self._names if tool == name), "")
        return self.name(namespace, name)

    def table(self) -> dict[str, ToolName]:
        """Names upstream that stand for something else at the client."""
        table: dict[str, ToolName] = {}
        for tool in self._request.tools:
            if tool.opaque is not None:
                continue
            name = self.name(tool.namespace, tool.name)
            if name != tool.name or tool.namespace or tool.custom:
                table[name] = ToolName(tool.name, tool.namespace, tool.custom)
        return table

    def choice(self) -> dict[str, object] | None:
        """tool_choice; None leaves it out."""
        choice, parallel = self._request.tool_choice, self._request.parallel_tool_calls
        if not self.sent:
            if choice is not None and choice.mode not in ("auto", "none"):
                self._dropped.append("tool_choice (no tools)")
            return None
        wire: dict[str, object] | None = self._chosen(choice) if choice is not None else None
        if parallel is not None and (wire or {}).get("type") != "none" and (parallel is False or self._native):
            wire = {**(wire or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
        return wire

    def _chosen(self, choice: ToolChoice) -> dict[str, object]:
        match choice.mode:
            case "auto":
                return {"type": "auto"}
            case "none":
                return {"type": "none"}
            case "required":
                return {"type": "any"}
            case "named":
                return {"type": "tool", "name": self.named(choice.name)}
            case "allowed":
                return {"type": "any" if choice.required else "auto"}
            case _:
                assert_never(choice.mode)

    @property
    def _native(self) -> bool:
        return self._request.protocol == NAME

    def _entry(self, at: int, tool: Tool) -> schema.ToolOut | Raw | None:
        if tool.opaque is not None:
            if tool.opaque.protocol == NAME:
                return Raw(tool.opaque.json.text.encode())
            self._dropped.append(f"tools[{at}] {tool.opaque.kind}")
            return None
        choice = self._request.tool_choice
        if choice is not None and choice.mode == "allowed" and tool.name not in choice.allowed:
            return None
        if self._native:
            strict = tool.strict
        else:
            strict = None
            self._name_losses(at, tool)
        name = self.name(tool.namespace, tool.name)
        marker = Raw(tool.cache_control.text.encode()) if tool.cache_control else None
        entry = schema.ToolOut(name, Raw(self._schema(at, tool)), _description(tool), strict, marker)
        return _with_extras(entry, tool.extras) if self._native and tool.extras else entry

    def _name_losses(self, at: int, tool: Tool) -> None:
        if tool.strict:
            self._dropped.append(f"tools[{at}].strict")
        self._dropped.extend(f"tools[{at}].{name}" for name, _ in tool.extras)

    def _schema(self, at: int, tool: Tool) -> bytes:
        if tool.custom:
            return WRAPPER_SCHEMA.encode()
        if not tool.parameters:
            return EMPTY_SCHEMA
        data = tool.parameters.encode()
        try:
            head = schema.read(_SCHEMA_HEAD, data)
        except ValueError:
            head = None
        if head is not None and head.type == "object":
            return data
        return self._repaired_schema(at, data)

    def _repaired_schema(self, at: int, data: bytes) -> bytes:
        """A schema whose type is missing becomes an object's; anything that is no object's is replaced, and named."""
        try:
            members = schema.read(_OBJECT, data)
        except ValueError:
            members = {}
        kind = bytes(members.get("type", b'"object"'))
        if data.strip() not in (b"{}", b"null") and (not members or kind not in (b'"object"', b"null")):
            self._dropped.append(f"tools[{at}].parameters (not an object schema)")
            return EMPTY_SCHEMA
        properties = members.get("properties", Raw(b"null"))
        members = {**members, "type": Raw(b'"object"')}
        members["properties"] = properties if bytes(properties).startswith(b"{") else Raw(b"{}")
        return schema.ENCODER.encode(members)


def _description(tool: Tool) -> str:
    if tool.format is None:
        return tool.description
    note = f"The field `input` takes free text in this format: {tool.format.text}"
    return f"{tool.description}\n\n{note}" if tool.description else note


def _with_extras(entry: schema.ToolOut, extras: tuple[tuple[str, Json], ...]) -> Raw:
    members = schema.read(_OBJECT, schema.ENCODER.encode(entry))
    members.update((name, Raw(value.text.encode())) for name, value in extras)
    return Raw(schema.ENCODER.encode(members))
