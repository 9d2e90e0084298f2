"""A Messages request → `Request`.

Nothing vanishes: top-level fields without a canonical place go to `extras`, blocks and tools only Anthropic knows stay opaque.
Ids that this protocol's encoder made legal are turned back (core/ids.py), so the upstream sees its own ids again.
Source: protocol-facts.md section 3.1 (SDK types); clients/requests/claude_code.*.json for system messages between turns and
for the billing header, which changes with every version and would spoil other backends' prefix caches (facts, rule 5).
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import (
    Json,
    Message,
    OpaquePart,
    Reasoning,
    Request,
    ResponseFormat,
    Role,
    Sampling,
    TextPart,
    Tool,
    ToolChoice,
)
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.decode_blocks import (
    NAME,
    TEXT,
    json_of,
    optional,
    read_parts,
    read_shape,
    text_part,
)
from strom.wire.splice import split

BILLING_EXTRA = "system[billing]"
"""Claude Code's billing block: kept among the extras, for Anthropic alone."""
BILLING_PREFIX = "x-anthropic-billing-header:"

_REQUEST = msgspec.json.Decoder(schema.RequestIn)
_TOOL = msgspec.json.Decoder(schema.ToolIn)

_CANONICAL = frozenset(
    ("model", "messages", "max_tokens", "system", "stream", "stop_sequences", "temperature", "top_p", "top_k", "tools")
)
_PARTLY: dict[str, frozenset[str]] = {
    "tool_choice": frozenset(("type", "name", "disable_parallel_tool_use")),
    "thinking": frozenset(("type", "budget_tokens", "display")),
    "metadata": frozenset(("user_id",)),
    "output_config": frozenset(("effort", "format")),
    "output_format": frozenset(("type", "schema")),
}
"""Fields of which these members have a canonical place; with any other member the whole is kept as an extra as well."""
_THINKING_TYPES = frozenset(("enabled", "adaptive", "disabled"))


def decode_request(body: bytes) -> Request:
    """Raises BadRequest."""
    try:
        members = split(body)
        wire = schema.read(_REQUEST, body)
        return _request(wire, members)
    except ValueError as error:
        raise BadRequest(f"The request body is not valid: {error}") from None


def _request(wire: schema.RequestIn, members: dict[str, bytes]) -> Request:
    if not wire.messages:
        raise BadRequest("messages: at least one message is required", param="messages")
    system, billing = _system(wire.system)
    messages = tuple(_message(at, message) for at, message in enumerate(wire.messages))
    choice, parallel = _tool_choice(wire.tool_choice)
    return Request(
        NAME,
        wire.model,
        ((Message("system", system), *messages) if system else messages),
        tools=tuple(_tool(at, raw) for at, raw in enumerate(wire.tools or ())),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_output_tokens=wire.max_tokens,
        stop=tuple(wire.stop_sequences or ()),
        sampling=Sampling(temperature=wire.temperature, top_p=wire.top_p, top_k=wire.top_k),
        response_format=_response_format(wire),
        reasoning=_reasoning(wire),
        stream=bool(wire.stream),
        user=(wire.metadata.user_id or "") if wire.metadata else "",
        extras=_extras(members, billing),
    )


# --- top-level fields ----------------------------------------------------------------------------


def _system(system: str | list[Raw] | None) -> tuple[tuple[TextPart, ...], Raw | None]:
    """The text parts, and Claude Code's billing block, if there is one."""
    if not system:
        return (), None
    if isinstance(system, str):
        return (TextPart(system),), None
    parts: list[TextPart] = []
    billing: Raw | None = None
    for at, raw in enumerate(system):
        text = read_shape(TEXT, raw, f"system[{at}]")
        if at == 0 and text.text.startswith(BILLING_PREFIX):
            billing = raw
        else:
            parts.append(text_part(text))
    return tuple(parts), billing


def _tool_choice(choice: schema.ToolChoiceIn | None) -> tuple[ToolChoice | None, bool | None]:
    if choice is None:
        return None, None
    parallel = None if choice.disable_parallel_tool_use is None else not choice.disable_parallel_tool_use
    match choice.type:
        case "auto":
            return ToolChoice("auto"), parallel
        case "any":
            return ToolChoice("required"), parallel
        case "none":
            return ToolChoice("none"), parallel
        case "tool" if choice.name:
            return ToolChoice("named", choice.name), parallel
        case _:
            raise BadRequest("tool_choice: type must be auto, any, none, or tool with a name", param="tool_choice")


def _reasoning(wire: schema.RequestIn) -> Reasoning | None:
    effort = (wire.output_config.effort or "") if wire.output_config else ""
    thinking = wire.thinking
    if thinking is None or thinking.type not in _THINKING_TYPES:
        return Reasoning(effort=effort) if effort else None
    return Reasoning(
        enabled=thinking.type != "disabled",
        effort=effort,
        budget_tokens=thinking.budget_tokens,
        adaptive=thinking.type == "adaptive",
        display=thinking.display or "",
    )


def _response_format(wire: schema.RequestIn) -> ResponseFormat | None:
    wanted = (wire.output_config.format if wire.output_config else None) or wire.output_format
    if wanted is None or wanted.type != "json_schema":
        return None
    return ResponseFormat("json_schema", schema=schema.text_of(wanted.schema))


def _extras(members: dict[str, bytes], billing: Raw | None) -> tuple[tuple[str, Json], ...]:
    extras = [(name, Json(value.decode())) for name, value in members.items() if _is_extra(name, value)]
    if billing is not None:
        extras.append((BILLING_EXTRA, Json(schema.text_of(billing))))
    return tuple(extras)


def _is_extra(name: str, value: bytes) -> bool:
    if name in _CANONICAL or value == b"null":
        return False
    known = _PARTLY.get(name)
    if known is None:
        return True
    inner = split(value)
    kind = inner.get("type", b"").decode().strip('"')
    return not known.issuperset(inner) or (name == "thinking" and kind not in _THINKING_TYPES)


def _tool(at: int, raw: Raw) -> Tool:
    where = f"tools[{at}]"
    tool = read_shape(_TOOL, raw, where)
    if tool.type not in (None, "custom"):
        return Tool(tool.name, opaque=OpaquePart(NAME, tool.type or "", json_of(raw)))
    if not tool.name:
        raise BadRequest(f"{where}: a tool needs a name", param=where)
    known = ("name", "type", "description", "input_schema", "cache_control", "strict")
    extras = tuple((key, Json(value.decode())) for key, value in split(bytes(raw)).items() if key not in known)
    return Tool(
        tool.name,
        tool.description or "",
        schema.text_of(tool.input_schema) if schema.present(tool.input_schema) else "",
        tool.strict,
        cache_control=optional(tool.cache_control),
        extras=extras,
    )


# --- messages ------------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def _message(at: int, message: schema.MessageIn) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise BadRequest(f"messages[{at}].role: must be user, assistant or system", param=f"messages[{at}].role")
    return Message(role, read_parts(message.content, f"messages[{at}].content"))
