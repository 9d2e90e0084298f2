"""A Responses request → `Request`.

`instructions` become the leading system message. Namespaces are flattened: their tools carry the group's name. Fields
without a canonical place go to `extras` as they came: previous_response_id, store, background, conversation, include,
prompt and all unknown ones; the server looks for the first four there. A function without `strict` stays without: the
API's default is a best effort that other protocols would take for a demand.
Source: protocol-facts.md sections 2.1, 2.4, 6.2; clients/requests/*.responses.*.json, codex.*.json.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest
from strom.core.messages import (
    Json,
    OpaquePart,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
)
from strom.protocols.openai_responses import request_schema as shapes
from strom.protocols.openai_responses.items_in import Conversation
from strom.protocols.openai_responses.parts_in import read_at
from strom.protocols.openai_responses.request_schema import ChoiceIn, RequestIn, ToolIn
from strom.protocols.openai_responses.schema import NAME, members_of, present, text_of
from strom.wire.splice import split

_CANONICAL = frozenset(RequestIn.__struct_fields__)
_PARTLY: dict[str, frozenset[str]] = {
    "text": frozenset(("format", "verbosity")),
    "reasoning": frozenset(("effort", "summary")),
}
"""Fields of which these members have a canonical place; with any other member the whole is kept as an extra as well."""
_WITHOUT_INPUT = frozenset(("prompt", "previous_response_id", "conversation"))
_TOOL_MEMBERS = frozenset(ToolIn.__struct_fields__)
_PLACE = re.compile(r" - at `\$\.?(.*)`$")


def decode_request(body: bytes) -> Request:
    """Raises BadRequest."""
    try:
        members = split(body)
        body.decode()
        wire = shapes.REQUEST.decode(body)
    except msgspec.ValidationError as error:
        raise _bad_request(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request body is no JSON object: {error}") from None
    return _request(wire, members)


def _bad_request(words: str) -> BadRequest:
    """A validation message as an error that names the member."""
    found = _PLACE.search(words)
    place = found[1] if found is not None else ""
    return BadRequest(f"{place}: {words[: found.start()]}" if found and place else words, param=place or None)


def _request(wire: RequestIn, members: dict[str, bytes]) -> Request:
    if not wire.model:
        raise BadRequest("model: is required", param="model")
    conversation = _conversation(wire, members)
    choice = _tool_choice(wire.tool_choice)
    declared = [*(wire.tools or ()), *conversation.tools]
    text, reasoning = wire.text or shapes.TextIn(), wire.reasoning or shapes.ReasoningIn()
    return Request(
        NAME,
        wire.model,
        conversation.messages,
        tools=tuple(tool for at, raw in enumerate(declared) for tool in _tools(raw, f"tools[{at}]")),
        tool_choice=choice,
        parallel_tool_calls=wire.parallel_tool_calls,
        max_output_tokens=wire.max_output_tokens,
        sampling=Sampling(temperature=wire.temperature, top_p=wire.top_p, top_logprobs=wire.top_logprobs),
        response_format=_response_format(text.format),
        reasoning=_reasoning(reasoning),
        stream=bool(wire.stream),
        user=wire.user or "",
        metadata=Json(text_of(wire.metadata)) if present(wire.metadata) else None,
        verbosity=text.verbosity or "",
        extras=_extras(members, keep_choice=choice is None),
    )


def _conversation(wire: RequestIn, members: dict[str, bytes]) -> Conversation:
    conversation = Conversation()
    if isinstance(wire.instructions, str) and wire.instructions:
        conversation.take(Raw(msgspec.json.encode({"role": "system", "content": wire.instructions})), "instructions")
    elif wire.instructions:
        _take_all(conversation, wire.instructions, "instructions")
    if isinstance(wire.input, str):
        conversation.take(Raw(msgspec.json.encode({"role": "user", "content": wire.input})), "input")
    elif wire.input is not None:
        _take_all(conversation, wire.input, "input")
    elif not any(members.get(name, b"null") != b"null" for name in _WITHOUT_INPUT):
        raise BadRequest("input: is required", param="input")
    return conversation


def _take_all(conversation: Conversation, items: list[Raw], where: str) -> None:
    for at, raw in enumerate(items):
        conversation.take(raw, f"{where}[{at}]")


# --- top-level fields ----------------------------------------------------------------------------


def _reasoning(wire: shapes.ReasoningIn) -> Reasoning | None:
    if not wire.effort and not wire.summary:
        return None
    return Reasoning(
        enabled=wire.effort != "none" if wire.effort else None, effort=wire.effort or "", summary=wire.summary or ""
    )


def _response_format(wire: shapes.FormatIn | None) -> ResponseFormat | None:
    if wire is None or wire.type not in ("json_object", "json_schema"):
        return None
    if wire.type == "json_object":
        return ResponseFormat("json_object")
    schema = text_of(wire.schema) if present(wire.schema) else ""
    return ResponseFormat("json_schema", wire.name or "", schema, wire.strict, wire.description or "")


def _extras(members: dict[str, bytes], *, keep_choice: bool) -> tuple[tuple[str, Json], ...]:
    """`keep_choice`: a tool_choice that has no canonical form is an extra."""
    kept = [name for name, value in members.items() if value != b"null" and _is_extra(name, value)]
    if keep_choice and members.get("tool_choice", b"null") != b"null":
        kept.append("tool_choice")
    return tuple((name, Json(members[name].decode())) for name in kept)


def _is_extra(name: str, value: bytes) -> bool:
    known = _PARTLY.get(name)
    if known is not None:
        return not known.issuperset(member for member, inner in members_of(value).items() if present(inner))
    return name not in _CANONICAL


# --- tools ---------------------------------------------------------------------------------------


def _tools(raw: Raw, where: str, namespace: str = "") -> list[Tool]:
    wire = read_at(shapes.TOOL, raw, where)
    if wire.type == "namespace" and not namespace:
        inner = wire.tools or []
        return [
            tool for at, member in enumerate(inner) for tool in _tools(member, f"{where}.tools[{at}]", wire.name or "")
        ]
    if wire.type == "function" and present(wire.function):
        wire = read_at(shapes.TOOL, wire.function, f"{where}.function")
    if wire.type not in ("function", "custom"):
        return [
            Tool(wire.name or wire.type, namespace=namespace, opaque=OpaquePart(NAME, wire.type, Json(text_of(raw))))
        ]
    if not wire.name:
        raise BadRequest(f"{where}.name: is missing", param=f"{where}.name")
    return [_tool(wire, wire.name, raw, namespace)]


def _tool(wire: ToolIn, name: str, raw: Raw, namespace: str) -> Tool:
    custom = wire.type == "custom"
    return Tool(
        name,
        wire.description or "",
        text_of(wire.parameters) if present(wire.parameters) and not custom else "",
        wire.strict,
        custom=custom,
        format=Json(text_of(wire.format)) if present(wire.format) and custom else None,
        namespace=namespace,
        extras=_tool_extras(raw),
    )


def _tool_extras(raw: Raw) -> tuple[tuple[str, Json], ...]:
    unknown = [(name, value) for name, value in members_of(raw).items() if name not in _TOOL_MEMBERS and present(value)]
    return tuple((name, Json(text_of(value))) for name, value in unknown)


def _tool_choice(choice: str | ChoiceIn | None) -> ToolChoice | None:
    """None also for what only this protocol can choose (a hosted tool): the extras have it."""
    match choice:
        case None:
            return None
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case str():
            raise BadRequest("tool_choice: must be none, auto, required or an object", param="tool_choice")
        case ChoiceIn(type="function" | "custom"):
            name = choice.name or (choice.function.name if choice.function is not None else "")
            if not name:
                raise BadRequest("tool_choice.name: is missing", param="tool_choice.name")
            return ToolChoice("named", name)
        case ChoiceIn(type="allowed_tools"):
            allowed = tuple(tool.name or tool.type for tool in choice.tools or ())
            return ToolChoice("allowed", allowed=allowed, required=choice.mode == "required")
        case ChoiceIn():
            return None
