"""Tools in Ollama's words, and what can be said of a tool choice, which Ollama does not know.

A named tool: only that one is sent. None: no tools are sent. Allowed: the others are left out. That a call must come cannot be
said, and is named as lost. A free-text tool goes out as a function with one string field and is unwrapped on the way back.
Source: protocol-facts.md sections 4 and 6.2.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import Request, Tool
from strom.core.tool_names import WRAPPER_SCHEMA, plan_names, upstream_name
from strom.protocols.codec import ToolName
from strom.protocols.ollama.losses import Losses
from strom.protocols.ollama.schema import ENCODER, NAME

MAX_NAME_LENGTH = 64
EMPTY_SCHEMA = b'{"type":"object","properties":{}}'
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


class FunctionOut(msgspec.Struct, omit_defaults=True):
    name: str
    description: str = ""
    parameters: Raw = Raw()


class ToolOut(msgspec.Struct):
    type: str
    function: FunctionOut


class ToolPlan:
    """The tools of one request: their names upstream, the list that is sent, and the way back."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self._request = request
        self._losses = losses
        self._names = plan_names(request.tools, MAX_NAME_LENGTH)
        self.sent = [entry for at, tool in enumerate(request.tools) if (entry := self._entry(at, tool)) is not None]
        self._judge_choice()

    def name(self, namespace: str, name: str) -> str:
        """The name upstream of a tool, declared or only mentioned."""
        return self._names.get((namespace, name)) or upstream_name(namespace, name, MAX_NAME_LENGTH)

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

    def _judge_choice(self) -> None:
        choice, request = self._request.tool_choice, self._request
        if request.parallel_tool_calls is False and self.sent:
            self._losses.add("parallel_tool_calls")
        if choice is None:
            return
        if choice.mode == "required" or choice.required:
            self._losses.add("tool_choice required")
        if choice.mode == "named" and not self.sent:
            raise BadRequest(f"tool_choice: there is no tool {choice.name!r}.", param="tool_choice")
        if choice.mode == "named":
            self._losses.add("tool_choice named (only this tool is offered)")

    def _entry(self, at: int, tool: Tool) -> bytes | None:
        if not self._is_chosen(tool):
            return None
        if tool.opaque is not None:
            if tool.opaque.protocol == NAME:
                return tool.opaque.json.text.encode()
            self._losses.add(f"tools[{at}] {tool.opaque.kind}")
            return None
        if tool.strict:
            self._losses.add(f"tools[{at}].strict")
        if tool.cache_control is not None:
            self._losses.add("cache_control")
        for name, _ in tool.extras:
            self._losses.add(f"tools[{at}].{name}")
        parameters = WRAPPER_SCHEMA.encode() if tool.custom else self._schema(at, tool)
        name = self.name(tool.namespace, tool.name)
        return ENCODER.encode(ToolOut("function", FunctionOut(name, _description(tool), Raw(parameters))))

    def _is_chosen(self, tool: Tool) -> bool:
        choice = self._request.tool_choice
        if choice is None:
            return True
        match choice.mode:
            case "auto" | "required":
                return True
            case "none":
                return False
            case "named":
                return tool.name == choice.name
            case "allowed":
                return tool.name in choice.allowed

    def _schema(self, at: int, tool: Tool) -> bytes:
        """The schema as it came when it is an object; Ollama demands one, so nothing at all is the empty one."""
        data = tool.parameters.encode()
        try:
            if data.strip() and _OBJECT.decode(data):
                return data
        except (msgspec.DecodeError, RecursionError):
            self._losses.add(f"tools[{at}].parameters (no JSON object)")
        return EMPTY_SCHEMA


def _description(tool: Tool) -> str:
    if tool.format is None:
        return tool.description
    note = f"The field `input` takes free text in this format: {tool.format.text}"
    return f"{tool.description}\n\n{note}" if tool.description else note
