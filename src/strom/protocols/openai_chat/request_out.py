"""Writes a request for a Chat upstream, and relays one that came in Chat.

Encoded: fields that are not set are not sent (null crashes mlx_lm); what only another protocol knows is left out and named.
Relayed: the client's own bytes, member by member; only the model, the stream switch and the wish for usage are ours, and
top-level nulls go. Source: protocol-facts.md sections 1.1 and 6; product.md section 2; streams.md section 6.
"""

from __future__ import annotations

import msgspec

from strom.core.errors import BadRequest, Unsupported
from strom.core.json_schema import strict_form
from strom.core.messages import Reasoning, Request, ResponseFormat
from strom.protocols.codec import Quirks, Target, UpstreamCall
from strom.protocols.openai_chat.messages_out import MessagesOut
from strom.protocols.openai_chat.tools_out import ToolsOut
from strom.protocols.openai_chat.turns_out import Dropped, arrange
from strom.wire.splice import join, raw_members, split

PATH = "/v1/chat/completions"
ORIGIN = "openai-chat"
JSON = msgspec.json.Encoder().encode
_STREAM_USAGE = b'{"include_usage":true}'
_BINDING = frozenset(("anthropic", "ollama"))
_BUDGETS = ((2048, "low"), (8192, "medium"), (24576, "high"))


class _Schema(msgspec.Struct, omit_defaults=True):
    name: str
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    strict: bool | None = None
    description: str = ""


class _Format(msgspec.Struct, omit_defaults=True):
    type: str
    json_schema: _Schema | None = None


def encode_request(request: Request, target: Target) -> UpstreamCall:
    """Raises Unsupported, BadRequest."""
    quirks, dropped = target.quirks, Dropped()
    tools = ToolsOut(request, quirks, dropped)
    turns = arrange(request.messages, request.protocol, quirks, dropped)
    messages = MessagesOut(request.protocol, quirks, tools.names, dropped)
    members: dict[str, bytes] = {"model": JSON(target.model), "messages": messages.encode(turns)}
    members.update(tools.members())
    members.update(_limits(request, quirks))
    members.update(_sampling(request))
    members.update(_wishes(request, quirks, dropped))
    members.update(_leftovers(request, dropped))
    members["stream"] = JSON(target.stream)
    if target.stream and quirks.stream_usage:
        members["stream_options"] = _STREAM_USAGE
    return UpstreamCall(PATH, join(members), dropped=dropped.names(), tool_names=tools.names.changed)


def _limits(request: Request, quirks: Quirks) -> dict[str, bytes]:
    members = {}
    if request.max_output_tokens is not None:
        name = "max_completion_tokens" if quirks.max_completion_tokens else "max_tokens"
        members[name] = JSON(request.max_output_tokens)
    if request.stop:
        members["stop"] = JSON(request.stop)
    return members


def _sampling(request: Request) -> dict[str, bytes]:
    sampling = request.sampling
    if sampling.n is not None and sampling.n > 1 and request.protocol != ORIGIN:
        raise Unsupported("More than one choice cannot be translated.", param="n")
    members = {}
    for name in sampling.__struct_fields__:
        value = getattr(sampling, name)
        if value is not None:
            members[name] = value.text.encode() if name == "logit_bias" else JSON(value)
    return members


def _wishes(request: Request, quirks: Quirks, dropped: Dropped) -> dict[str, bytes]:
    members = {}
    if request.response_format is not None:
        if quirks.response_format:
            members["response_format"] = JSON(_format(_bound(request, request.response_format, quirks)))
        else:
            dropped.add("response_format")
    effort = _effort(request.reasoning)
    if effort:
        members["reasoning_effort"] = JSON(effort)
    if request.user:
        members["user"] = JSON(request.user)
    if request.verbosity:
        members["verbosity"] = JSON(request.verbosity)
    return members


def _bound(request: Request, wanted: ResponseFormat, quirks: Quirks) -> ResponseFormat:
    """Anthropic's and Ollama's schemas bind the answer without a word more; here `strict` says so, for those that fit it."""
    if not quirks.strict_schemas or request.protocol not in _BINDING or wanted.kind != "json_schema":
        return wanted
    try:
        strict = strict_form(wanted.schema)
    except ValueError as error:
        raise BadRequest(f"response_format: {error}", param="response_format") from None
    return wanted if strict is None else msgspec.structs.replace(wanted, schema=strict, strict=True)


def _format(wanted: ResponseFormat) -> _Format:
    if wanted.kind == "json_object":
        return _Format("json_object")
    schema = msgspec.Raw(wanted.schema.encode()) if wanted.schema else msgspec.UNSET
    return _Format("json_schema", _Schema(wanted.name or "response", schema, wanted.strict, wanted.description))


def _effort(reasoning: Reasoning | None) -> str:
    """The effort as it was given; a token budget by thresholds (protocol-facts.md section 6.6)."""
    if reasoning is None:
        return ""
    if reasoning.enabled is False:
        return "none"
    if reasoning.effort or reasoning.budget_tokens is None:
        return reasoning.effort
    budget = reasoning.budget_tokens
    return next((effort for most, effort in _BUDGETS if budget <= most), "max")


def _leftovers(request: Request, dropped: Dropped) -> dict[str, bytes]:
    """What has no canonical place: sent to the protocol it came from, named for any other."""
    if request.protocol == ORIGIN:
        members = {name: value.text.encode() for name, value in request.extras}
        if request.metadata is not None:
            members["metadata"] = request.metadata.text.encode()
        return members
    for name in request.lost_extras():
        dropped.add(name)
    for name, value in (("metadata", request.metadata), ("keep_alive", request.keep_alive)):
        if value is not None:
            dropped.add(name)
    return {}


# --- the same protocol on both sides ---------------------------------------------------------------


def relay_request(body: bytes, request: Request, target: Target) -> UpstreamCall:
    """Raises BadRequest when `body` is no JSON object."""
    try:
        members = raw_members(body)
        if body.find(b"null") >= 0:
            members = {name: value for name, value in members.items() if bytes(value) != b"null"}
        options = split(bytes(members["stream_options"])) if "stream_options" in members else {}
    except ValueError as error:
        raise BadRequest(f"The body is no JSON object: {error}") from None
    members["model"] = msgspec.Raw(JSON(target.model))
    if target.stream or "stream" in members:
        members["stream"] = msgspec.Raw(JSON(target.stream))
    members.pop("stream_options", None)
    if target.stream and target.quirks.stream_usage:
        members["stream_options"] = msgspec.Raw(join({**options, "include_usage": b"true"}))
    return UpstreamCall(PATH, JSON(members))
