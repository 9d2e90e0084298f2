"""Tools, tool choice and output format in Responses' words. Tools are flat here, and a function without `strict` is
strict.

Source: protocol-facts.md sections 2.1, 6.2, 6.8; openai-python 3.57.0 types/responses/tool_choice_*.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Raw

from strom.core.messages import ResponseFormat, Tool, ToolChoice

Wire = dict[str, Any]
"""A JSON object that is put together here; its shape is this module's business."""
EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')


def function_json(tool: Tool, name: str, *, strict: bool | None) -> Wire:
    """`strict` None leaves it out, which means true."""
    wire: Wire = {"type": "function", "name": name}
    if tool.description:
        wire["description"] = tool.description
    wire["parameters"] = Raw(tool.parameters.encode()) if tool.parameters else EMPTY_SCHEMA
    if strict is not None:
        wire["strict"] = strict
    return wire


def custom_json(tool: Tool, name: str) -> Wire:
    wire: Wire = {"type": "custom", "name": name}
    if tool.description:
        wire["description"] = tool.description
    if tool.format is not None:
        wire["format"] = Raw(tool.format.text.encode())
    return wire


def echoed_tools(tools: tuple[Tool, ...]) -> list[Wire | Raw]:
    """The client's tools as it declared them: namespaces are groups again."""
    groups: dict[str, list[Wire | Raw]] = {}
    echoed: list[Wire | Raw] = []
    for tool in tools:
        if not tool.namespace:
            echoed.append(_echoed(tool))
            continue
        if tool.namespace not in groups:
            group = groups[tool.namespace] = []
            echoed.append({"type": "namespace", "name": tool.namespace, "description": "", "tools": group})
        groups[tool.namespace].append(_echoed(tool))
    return echoed


def _echoed(tool: Tool) -> Wire | Raw:
    if tool.opaque is not None:
        return Raw(tool.opaque.json.text.encode())
    if tool.custom:
        return custom_json(tool, tool.name)
    return function_json(tool, tool.name, strict=tool.strict is not False)


def choice_json(choice: ToolChoice, tools: tuple[Tool, ...], name: Callable[[str], str] = str) -> str | Wire:
    """`name`: the name upstream of a tool that is named here."""
    custom = {tool.name for tool in tools if tool.custom}

    def named(tool: str) -> Wire:
        return {"type": "custom" if tool in custom else "function", "name": name(tool)}

    match choice.mode:
        case "auto" | "none" | "required":
            return choice.mode
        case "named":
            return named(choice.name)
        case "allowed":
            mode = "required" if choice.required else "auto"
            return {"type": "allowed_tools", "mode": mode, "tools": [named(tool) for tool in choice.allowed]}


def format_json(wanted: ResponseFormat | None) -> Wire:
    """`text.format`; a schema needs a name here."""
    if wanted is None:
        return {"type": "text"}
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    wire: Wire = {"type": "json_schema", "name": wanted.name or "response"}
    if wanted.description:
        wire["description"] = wanted.description
    wire["schema"] = Raw(wanted.schema.encode()) if wanted.schema else Raw(b"{}")
    if wanted.strict is not None:
        wire["strict"] = wanted.strict
    return wire
