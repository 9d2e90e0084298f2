"""From canonical messages to the bytes that go out. Everything that can be refused is refused here, before a dispatch."""

from __future__ import annotations

import msgspec

from strom.client.config import CompletionConfig
from strom.client.media import VIDEO_KIND
from strom.client.provider import Provider
from strom.client.schemas import Shape
from strom.client.tools import Tool
from strom.client.turn import Candidate
from strom.core.errors import Unsupported
from strom.core.messages import Json, Message, OpaquePart, Request, ResponseFormat, TextPart, ToolChoice
from strom.core.messages import Tool as CoreTool
from strom.protocols.codec import Codec, Target
from strom.transport.types import Headers, OutgoingRequest

BASE_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"strom"),
]
_ACCEPT_STREAM = (b"accept", b"text/event-stream, application/x-ndjson, application/json")
_ACCEPT_WHOLE = (b"accept", b"application/json")
_TAKES_VIDEO = frozenset(("vllm", "openrouter", "noris", "generic"))
"""Kinds whose Chat endpoint knows video_url parts (see media.VIDEO_KIND); a generic server may, and answers if not."""
_TOOLS_BELONG_TO_HISTORY = frozenset(("anthropic",))
"""Protocols that demand the tools as long as calls stand in the history. Source: Anthropic's 400 "Requests which have
`tool_use` or `tool_result` blocks in the history must define tools"."""


class Wish(msgspec.Struct, frozen=True):
    """One request in canonical terms. `last_round`: no (further) tool may be called. `schema_in_prompt`: see `build`."""

    messages: tuple[Message, ...]
    config: CompletionConfig
    tools: tuple[Tool, ...] = ()
    shape: Shape | None = None
    last_round: bool = False
    schema_in_prompt: bool = False


def build(wish: Wish, provider: Provider, codec: Codec) -> Candidate:
    """Raises Unsupported, BadRequest, AuthError. A schema goes into the prompt where the upstream ignores or refuses it."""
    provider.demand_key()
    upstream = provider.upstream
    quirks = upstream.quirks
    _check_video(wish.messages, upstream.kind, upstream.protocol)
    request = _request(wish, provider)
    streams = not quirks.never_stream
    call = codec.encode_request(request, Target(provider.model, streams, quirks))
    accept = _ACCEPT_STREAM if streams else _ACCEPT_WHOLE
    headers = [*BASE_HEADERS, accept, *call.headers, *upstream.auth_headers]
    outgoing = OutgoingRequest("POST", upstream.target(call.path), headers, call.body)
    return Candidate(
        provider.model, upstream, codec, outgoing, call.tool_names, call.dropped, local=provider.local, streams=streams
    )


def _request(wish: Wish, provider: Provider) -> Request:
    config, protocol = wish.config, provider.upstream.protocol
    tools, choice = _tools(wish, protocol)
    in_prompt = wish.shape is not None and (wish.schema_in_prompt or not provider.upstream.quirks.response_format)
    return Request(
        protocol=protocol,
        model=provider.model,
        messages=_with_schema(wish) if in_prompt else wish.messages,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=config.parallel_tool_calls if tools else None,
        max_output_tokens=config.max_tokens,
        stop=config.stop,
        sampling=config.sampling(),
        response_format=None if in_prompt else _format(wish),
        reasoning=config.thinking(),
        stream=True,
        include_usage=True,
        user=config.user,
        keep_alive=None if config.keep_alive is None else Json(msgspec.json.encode(config.keep_alive).decode()),
        extras=config.extras(protocol),
    )


def _tools(wish: Wish, protocol: str) -> tuple[tuple[CoreTool, ...], ToolChoice | None]:
    if not wish.tools:
        return (), None
    declared = tuple(tool.canonical() for tool in wish.tools)
    if not wish.last_round:
        return declared, wish.config.choice()
    if protocol in _TOOLS_BELONG_TO_HISTORY:
        return declared, ToolChoice("none")
    return (), None


def _format(wish: Wish) -> ResponseFormat | None:
    if wish.shape is not None:
        return ResponseFormat("json_schema", wish.shape.name, wish.shape.schema_text)
    wanted = wish.config.response_format
    return None if wanted is None else wanted.canonical()


def _with_schema(wish: Wish) -> tuple[Message, ...]:
    assert wish.shape is not None
    text = (
        "Answer with one JSON object and nothing else: no prose, no Markdown fence. It must match this JSON schema:\n"
        + wish.shape.schema_text
    )
    if wish.messages[0].role == "system":
        first = wish.messages[0]
        joined = msgspec.structs.replace(first, parts=(*first.parts, TextPart("\n\n" + text)))
        return (joined, *wish.messages[1:])
    return (Message("system", (TextPart(text),)), *wish.messages)


def _check_video(messages: tuple[Message, ...], kind: str, protocol: str) -> None:
    if kind in _TAKES_VIDEO and protocol == "openai-chat":
        return
    for message in messages:
        for part in message.parts:
            if isinstance(part, OpaquePart) and part.kind == VIDEO_KIND:
                raise Unsupported(f"Video cannot be sent to {kind}.", param="messages")
