"""`Request` → a Messages request for an Anthropic upstream, whatever protocol it came in.

What cannot be carried is named in `dropped`; what would change the meaning is refused. Members are written in the API's usual
order. Source: protocol-facts.md sections 3.1, 6.6, 6.8, 6.9.
"""

from __future__ import annotations

from itertools import takewhile

from msgspec import Raw

from strom.core.errors import Unsupported
from strom.core.messages import Request, ResponseFormat, Sampling
from strom.protocols.anthropic_messages import schema
from strom.protocols.anthropic_messages.decode_request import BILLING_EXTRA
from strom.protocols.anthropic_messages.encode_format import fitted_schema
from strom.protocols.anthropic_messages.encode_tools import NAME, ToolPlan
from strom.protocols.anthropic_messages.encode_turns import TurnEncoder
from strom.protocols.codec import Headers, Target, UpstreamCall
from strom.wire.splice import join, split

PATH = "/v1/messages"
HEADERS: Headers = [(b"anthropic-version", b"2023-06-01")]
JSON_INSTRUCTION = "Respond with a single valid JSON object and nothing else: no prose, no Markdown fence."
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_UNCARRIED = (
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
)
_MERGED = frozenset(("thinking", "output_config", "metadata", "tool_choice"))
"""Extras of our own protocol that also have canonical members: merged, the canonical ones win."""


def encode_request(request: Request, target: Target) -> UpstreamCall:
    """Raises Unsupported, BadRequest."""
    dropped: list[str] = []
    tools = ToolPlan(request, dropped)
    members = _RequestEncoder(request, target, tools, dropped).members()
    body = join({name: schema.ENCODER.encode(value) for name, value in members.items()})
    return UpstreamCall(PATH, body, list(HEADERS), tuple(dropped), tools.table())


class _RequestEncoder:
    def __init__(self, request: Request, target: Target, tools: ToolPlan, dropped: list[str]) -> None:
        self._request = request
        self._target = target
        self._tools = tools
        self._dropped = dropped
        self._native = request.protocol == NAME
        self._extras = {name: Raw(value.text.encode()) for name, value in request.extras} if self._native else {}

    def members(self) -> dict[str, object]:
        request, target = self._request, self._target
        if request.sampling.n is not None and request.sampling.n > 1:
            raise Unsupported("n > 1 cannot be sent to an Anthropic backend: ask several times.", param="n")
        limit = request.max_output_tokens
        members: dict[str, object] = {
            "model": target.model,
            "max_tokens": limit if limit is not None else target.quirks.default_max_tokens,
        }
        thinking = self._thinking()
        self._put_messages(members)
        self._put_tools(members)
        self._put_sampling(members, request.sampling, thinking=thinking is not None and thinking["type"] != "disabled")
        self._put_output(members, thinking)
        self._put_metadata(members)
        for name, value in self._extras.items():
            if name not in _MERGED and name != BILLING_EXTRA:
                members.setdefault(name, value)
        self._name_losses()
        if target.stream:
            members["stream"] = True
        return members

    # --- messages and tools ---

    def _put_messages(self, members: dict[str, object]) -> None:
        turns = TurnEncoder(self._request, self._target, self._tools, self._dropped)
        messages = self._request.messages
        leading = list(takewhile(lambda message: message.role in ("system", "developer"), messages))
        system: list[schema.TextOut | Raw] = [*turns.system_blocks(leading)]
        if (instruction := self._json_instruction()) is not None:
            system.append(schema.TextOut(instruction))
        if BILLING_EXTRA in self._extras:
            system.insert(0, self._extras[BILLING_EXTRA])
        if len(system) == 1 and isinstance(system[0], schema.TextOut) and system[0].cache_control is None:
            members["system"] = system[0].text
        elif system:
            members["system"] = system
        members["messages"] = turns.encode(messages[len(leading) :], len(leading))

    def _put_tools(self, members: dict[str, object]) -> None:
        if self._tools.sent:
            members["tools"] = self._tools.sent
        if (choice := self._tools.choice()) is not None:
            members["tool_choice"] = choice

    # --- sampling ---

    def _put_sampling(self, members: dict[str, object], sampling: Sampling, *, thinking: bool) -> None:
        if self._request.stop:
            self._put_stop(members)
        wanted = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k")}
        values = {name: value for name, value in wanted.items() if value is not None}
        if not self._native:
            self._fit(values, thinking=thinking)
        members.update(values)

    def _fit(self, values: dict[str, float], *, thinking: bool) -> None:
        """Thinking forbids any of them; newer models take temperature or top_p, not both. Source: facts 6.9."""
        if values.get("temperature", 0) > 1:
            values["temperature"] = 1
            self._dropped.append("temperature (above 1)")
        if thinking:
            self._dropped.extend(name for name, value in values.items() if value != 1)
            values.clear()
        elif "temperature" in values and "top_p" in values and values.pop("top_p") != 1:
            self._dropped.append("top_p (beside temperature)")

    def _put_stop(self, members: dict[str, object]) -> None:
        stop = [text for text in self._request.stop if self._native or text.strip()]
        if len(stop) < len(self._request.stop):
            self._dropped.append("stop (white space only)")
        if stop:
            members["stop_sequences"] = stop

    # --- thinking, format, metadata ---

    def _thinking(self) -> dict[str, object] | None:
        reasoning = self._request.reasoning
        if reasoning is None:
            return None
        if reasoning.enabled is False or reasoning.effort == "none":
            return {"type": "disabled"}
        if reasoning.enabled is None and self._native:
            return None  # effort alone, as the client wrote it
        if self._forced_call() and not self._native:
            self._dropped.append("reasoning (a tool is forced)")
            return None
        display = {"display": reasoning.display} if reasoning.display else {}
        if reasoning.budget_tokens is not None and not reasoning.adaptive:
            return {"type": "enabled", "budget_tokens": reasoning.budget_tokens, **display}
        return {"type": "adaptive", **display}

    def _forced_call(self) -> bool:
        choice = self._request.tool_choice
        return choice is not None and (choice.mode in ("required", "named") or choice.required)

    def _put_output(self, members: dict[str, object], thinking: dict[str, object] | None) -> None:
        if thinking is not None:
            members["thinking"] = thinking
        elif "thinking" in self._extras:
            members["thinking"] = self._extras["thinking"]
        output: dict[str, object] = {}
        if "output_config" in self._extras:
            output.update({name: Raw(value) for name, value in split(bytes(self._extras["output_config"])).items()})
        if (effort := self._effort(thinking)) is not None:
            output["effort"] = effort
        wanted = self._request.response_format
        if wanted is not None and wanted.kind == "json_schema" and self._target.quirks.response_format:
            output["format"] = {"type": "json_schema", "schema": self._schema(wanted)}
        if output:
            members["output_config"] = output

    def _schema(self, wanted: ResponseFormat) -> Raw:
        if self._target.quirks.strict_schemas and not self._native:
            return fitted_schema(wanted.schema, self._dropped)
        return Raw((wanted.schema or "{}").encode())

    def _effort(self, thinking: dict[str, object] | None) -> str | None:
        wanted = self._request.reasoning.effort if self._request.reasoning else ""
        if not wanted or wanted == "none":
            return None
        if self._native:
            return wanted
        effort = _EFFORTS.get(wanted)
        if effort is None:
            self._dropped.append(f"reasoning effort {wanted}")
        return effort if thinking is not None else None

    def _json_instruction(self) -> str | None:
        wanted = self._request.response_format
        if wanted is None or (wanted.kind == "json_schema" and self._target.quirks.response_format):
            return None
        self._dropped.append(f"response_format {wanted.kind} (as an instruction)")
        return f"{JSON_INSTRUCTION} Its JSON schema: {wanted.schema}" if wanted.schema else JSON_INSTRUCTION

    def _put_metadata(self, members: dict[str, object]) -> None:
        metadata = self._extras.get("metadata")
        if metadata is not None:
            members["metadata"] = metadata
        elif self._request.user:
            members["metadata"] = {"user_id": self._request.user}

    def _name_losses(self) -> None:
        request, sampling = self._request, self._request.sampling
        self._dropped.extend(name for name in _UNCARRIED if getattr(sampling, name) is not None)
        others = ("metadata", "verbosity", "keep_alive")
        self._dropped.extend(name for name in others if getattr(request, name))
        if not self._native:
            self._dropped.extend(request.lost_extras())
