"""The tools of one request on their way to a Responses upstream: their names there, the list that is sent, and the way
back.

Free-text tools are native here. Hosted tools of this protocol (web_search …) go out as they came, another's are
dropped and named. Functions from other protocols say `strict` always: left out it would mean true.
Source: protocol-facts.md sections 2.1 and 6.2.
"""

from __future__ import annotations

from msgspec import Raw

from strom.core.messages import Request, Tool
from strom.core.tool_names import plan_names, upstream_name
from strom.protocols.codec import ToolName
from strom.protocols.openai_responses.schema import NAME
from strom.protocols.openai_responses.tools_out import Wire, choice_json, custom_json, function_json

MAX_NAME_LENGTH = 64


class ToolPlan:
    keeps_custom = True
    """Free-text tools and their calls go out as such."""

    def __init__(self, request: Request, dropped: list[str]) -> None:
        self._request = request
        self._dropped = dropped
        self._native = request.protocol == NAME
        self._names = plan_names(request.tools, MAX_NAME_LENGTH)
        self.sent: list[Wire | Raw] = [
            entry for at, tool in enumerate(request.tools) if (entry := self._entry(at, tool)) is not None
        ]

    def name(self, namespace: str, name: str) -> str:
        """The name upstream of a tool, declared or only mentioned."""
        return self._names.get((namespace, name)) or upstream_name(namespace, name, MAX_NAME_LENGTH)

    def table(self) -> dict[str, ToolName]:
        """Names upstream that stand for something else at the client."""
        table: dict[str, ToolName] = {}
        for (namespace, name), upstream in self._names.items():
            if upstream != name or namespace:
                table[upstream] = ToolName(name, namespace)
        return table

    def choice(self) -> str | Wire | None:
        """tool_choice; None leaves it out."""
        choice = self._request.tool_choice
        if choice is None or (not self.sent and choice.mode in ("auto", "none")):
            return None
        if not self.sent:
            self._dropped.append("tool_choice (no tools)")
            return None
        return choice_json(choice, self._request.tools, self._named)

    def _named(self, name: str) -> str:
        """The name upstream of a tool that the tool choice names, wherever it was declared."""
        namespace = next((space for space, tool in self._names if tool == name), "")
        return self.name(namespace, name)

    def _entry(self, at: int, tool: Tool) -> Wire | Raw | None:
        if tool.opaque is not None:
            if tool.opaque.protocol == NAME:
                return Raw(tool.opaque.json.text.encode())
            self._dropped.append(f"tools[{at}] {tool.opaque.kind}")
            return None
        name = self.name(tool.namespace, tool.name)
        strict = tool.strict if self._native else bool(tool.strict)
        wire = custom_json(tool, name) if tool.custom else function_json(tool, name, strict=strict)
        if self._native:
            wire.update((member, Raw(value.text.encode())) for member, value in tool.extras)
        else:
            self._dropped.extend(f"tools[{at}].{member}" for member, _ in tool.extras)
        if tool.cache_control is not None:
            self._name_once("cache_control")
        return wire

    def _name_once(self, what: str) -> None:
        if what not in self._dropped:
            self._dropped.append(what)
