"""A request for a Responses upstream: encoded from canonical form, or the client's own bytes.

This protocol has no stop, seed, penalties, n: they are named in `dropped`; more than one choice is refused. `store`
is false unless the client said otherwise: nobody asked the upstream to keep anything. On a relay the bytes of every
member stay as they are; what is changed: model and stream, nulls are removed, call ids OpenAI refuses are mapped, and
reasoning that we packed for another protocol's upstream is left out. Source: protocol-facts.md sections 2.1, 2.4,
6.6, 6.8, 6.9; streams.md section 5.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from strom.core.errors import BadRequest, Unsupported
from strom.core.json_schema import strict_form
from strom.core.messages import Reasoning, Request, ResponseFormat
from strom.protocols.codec import Target, UpstreamCall
from strom.protocols.openai_responses import carry
from strom.protocols.openai_responses.items_out import ItemEncoder, legal_call_id
from strom.protocols.openai_responses.schema import ENCODE, NAME, Loose, members_of, object_of, read, word
from strom.protocols.openai_responses.tool_plan import ToolPlan
from strom.protocols.openai_responses.tools_out import Wire, format_json
from strom.wire.splice import join, split

PATH = "/v1/responses"
_UNCARRIED = (
    "top_k",
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
)
_BINDING = frozenset(("anthropic", "ollama"))
_EFFORT_BELOW = ((2_048, "low"), (8_192, "medium"), (24_576, "high"))
"""Thinking budgets and the effort they amount to. Source: protocol-facts.md section 6.6."""


def encode_request(request: Request, target: Target) -> UpstreamCall:
    """Raises Unsupported, BadRequest."""
    dropped: list[str] = []
    tools = ToolPlan(request, dropped)
    members = _RequestEncoder(request, target, tools, dropped).members()
    body = join({name: ENCODE(value) for name, value in members.items()})
    return UpstreamCall(PATH, body, [], tuple(dropped), tools.table())


class _RequestEncoder:
    def __init__(self, request: Request, target: Target, tools: ToolPlan, dropped: list[str]) -> None:
        self._request = request
        self._target = target
        self._tools = tools
        self._dropped = dropped
        self._native = request.protocol == NAME

    def members(self) -> Wire:
        request, sampling = self._request, self._request.sampling
        if sampling.n is not None and sampling.n > 1:
            raise Unsupported("n > 1 cannot be sent to a Responses backend: ask several times.", param="n")
        members: Wire = {"model": self._target.model}
        own_files = request.protocol.startswith("openai")
        encoder = ItemEncoder(self._target, self._tools, self._dropped, own_files=own_files)
        instructions, items = encoder.encode(request.messages)
        if instructions:
            members["instructions"] = instructions
        members["input"] = items
        self._put_tools(members)
        members.update(
            max_output_tokens=request.max_output_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_logprobs=sampling.top_logprobs,
            reasoning=self._reasoning(request.reasoning),
            text=self._text(),
            user=request.user or None,
            metadata=Raw(request.metadata.text.encode()) if request.metadata is not None else None,
        )
        members = {name: value for name, value in members.items() if value is not None}
        self._put_extras(members)
        self._name_losses()
        members.setdefault("store", False)
        if self._returns_seals(members.get("reasoning")):
            members["include"] = ["reasoning.encrypted_content"]
        members["stream"] = self._target.stream
        return members

    def _put_tools(self, members: Wire) -> None:
        if self._tools.sent:
            members["tools"] = self._tools.sent
        choice = self._tools.choice()
        if choice is not None and self._target.quirks.tool_choice:
            members["tool_choice"] = choice
        elif choice is not None:
            self._dropped.append("tool_choice")
        if self._request.parallel_tool_calls is not None and self._tools.sent:
            members["parallel_tool_calls"] = self._request.parallel_tool_calls

    def _reasoning(self, wanted: Reasoning | None) -> Wire | None:
        if wanted is None:
            return None
        wire: Wire = {}
        effort = "none" if wanted.enabled is False else wanted.effort
        if not effort and wanted.budget_tokens is not None:
            effort = next((word for limit, word in _EFFORT_BELOW if wanted.budget_tokens <= limit), "xhigh")
        if effort:
            wire["effort"] = effort
        shown = (
            wanted.enabled
            and not self._native
            and self._request.protocol != "openai-chat"
            and wanted.display != "omitted"
        )
        summary = wanted.summary or ("auto" if shown else "")
        if summary:
            wire["summary"] = summary
        return wire or None

    def _returns_seals(self, reasoning: Wire | None) -> bool:
        """Whether encrypted reasoning is of use: what is not stored there lives on only if the client sends it back."""
        return self._request.protocol == "anthropic" and reasoning is not None and reasoning.get("effort") != "none"

    def _text(self) -> Wire | None:
        wire: Wire = {}
        if self._request.response_format is not None:
            if self._target.quirks.response_format:
                wire["format"] = format_json(self._bound(self._request.response_format))
            else:
                self._dropped.append("response_format")
        if self._request.verbosity:
            wire["verbosity"] = self._request.verbosity
        return wire or None

    def _bound(self, wanted: ResponseFormat) -> ResponseFormat:
        """Anthropic's and Ollama's schemas bind the answer without a word more; here `strict` says so, for those that fit."""
        fits = self._target.quirks.strict_schemas and self._request.protocol in _BINDING
        if not fits or wanted.kind != "json_schema":
            return wanted
        try:
            strict = strict_form(wanted.schema)
        except ValueError as error:
            raise BadRequest(f"response_format: {error}", param="response_format") from None
        return wanted if strict is None else msgspec.structs.replace(wanted, schema=strict, strict=True)

    def _put_extras(self, members: Wire) -> None:
        if not self._native:
            self._dropped.extend(self._request.lost_extras())
            return
        for name, value in self._request.extras:
            if name not in ("text", "reasoning"):
                members.setdefault(name, Raw(value.text.encode()))
                continue
            extra = members_of(value.text.encode())
            members[name] = {**extra, **members.get(name, {})}

    def _name_losses(self) -> None:
        request = self._request
        if request.stop:
            self._dropped.append("stop")
        self._dropped.extend(name for name in _UNCARRIED if getattr(request.sampling, name) is not None)
        if request.keep_alive is not None:
            self._dropped.append("keep_alive")


# --- the client's own bytes ----------------------------------------------------------------------


class _ItemHead(msgspec.Struct, frozen=True):
    type: Loose = None
    id: Loose = None
    call_id: Loose = None
    encrypted_content: Loose = None


_ITEM_HEAD = msgspec.json.Decoder(_ItemHead)
_ITEMS = msgspec.json.Decoder(list[Raw])
_SIGNS = (b'"call_id"', carry.MARK.encode(), carry.REASONING_ID.encode())


def relay_request(body: bytes, request: Request, target: Target) -> UpstreamCall:
    members = {name: value for name, value in split(body).items() if value != b"null"}
    members["model"] = ENCODE(target.model)
    members.pop("background", None)  # run by the gateway: only so can it be cancelled and resumed with any upstream
    if target.stream:
        members["stream"] = b"true"
    else:
        members.pop("stream_options", None)
        if "stream" in members:
            members["stream"] = b"false"
    if members.get("input", b"").startswith(b"[") and any(sign in members["input"] for sign in _SIGNS):
        members["input"] = _relayed_items(members["input"])
    return UpstreamCall(PATH, join(members))


def _relayed_items(items: bytes) -> bytes:
    """The same bytes, unless an item has to change."""
    before = read(_ITEMS, items)
    after = [item for raw in before if (item := _relayed_item(raw)) is not None]
    return items if after == before else b"[" + b",".join(bytes(item) for item in after) + b"]"


def _relayed_item(raw: Raw) -> Raw | None:
    try:
        head = read(_ITEM_HEAD, raw)
    except ValueError:
        return raw  # no object: the upstream says what it thinks of it
    if head.type == "reasoning" and carry.is_foreign(word(head.encrypted_content), word(head.id)):
        return None
    call_id = word(head.call_id)
    if not call_id or legal_call_id(call_id) == call_id:
        return raw
    return Raw(object_of({**members_of(raw), "call_id": Raw(ENCODE(legal_call_id(call_id)))}))
