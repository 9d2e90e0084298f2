"""`Request` → /api/chat for an Ollama upstream, whatever protocol it came in; and the relay of one that is Ollama's own.

Encoded: what is not set is not sent; what cannot be carried is named; what would change the meaning is refused. `stream` is
always said, since its default is true. Relayed: the client's own bytes, member by member; only the model and the stream switch
are ours, and top-level nulls go. Source: protocol-facts.md sections 4, 6.6, 6.8, 6.9; product.md section 2.
"""

from __future__ import annotations

from strom.core.errors import BadRequest, Unsupported
from strom.core.messages import Json, Request
from strom.protocols.codec import Target, UpstreamCall
from strom.protocols.ollama.decode_request import OPTION
from strom.protocols.ollama.encode_messages import MessagesOut
from strom.protocols.ollama.encode_tools import ToolPlan
from strom.protocols.ollama.form import CHAT, Form
from strom.protocols.ollama.losses import Losses
from strom.protocols.ollama.schema import ENCODER, NAME
from strom.wire.splice import join, split

JSON = ENCODER.encode
_LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "max"}
_BUDGETS = ((2048, "low"), (8192, "medium"))
"""Highest budget in tokens of each level; above them: high. Source: protocol-facts.md section 6.6."""


def encode_request(request: Request, target: Target) -> UpstreamCall:
    """Raises Unsupported, BadRequest."""
    losses = Losses()
    tools = ToolPlan(request, losses)
    messages = MessagesOut(request, target, tools.name, losses).encode()
    members: dict[str, bytes] = {"model": JSON(target.model), "messages": JSON(messages)}
    if tools.sent:
        members["tools"] = b"[" + b",".join(tools.sent) + b"]"
    members.update(_wishes(request, target, losses))
    options = _options(request)
    if options:
        members["options"] = join(options)
    members.update(_leftovers(request, losses))
    members["stream"] = JSON(target.stream)
    return UpstreamCall(CHAT.path, join(members), dropped=losses.names(), tool_names=tools.table())


def relay_request(form: Form, body: bytes, target: Target) -> UpstreamCall:
    """Raises BadRequest when `body` is no JSON object."""
    try:
        members = {name: value for name, value in split(body).items() if value != b"null"}
    except ValueError as error:
        raise BadRequest(f"The body is no JSON object: {error}") from None
    members["model"] = JSON(target.model)
    members["stream"] = JSON(target.stream)
    return UpstreamCall(form.path, join(members))


# --- members ---------------------------------------------------------------------------------------


def _wishes(request: Request, target: Target, losses: Losses) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    wanted = request.response_format
    if wanted is not None and not target.quirks.response_format:
        losses.add("response_format")
    elif wanted is not None:
        members["format"] = wanted.schema.encode() if wanted.kind == "json_schema" and wanted.schema else b'"json"'
    think = _think(request, losses)
    if think is not None:
        members["think"] = JSON(think)
    if request.keep_alive is not None:
        members["keep_alive"] = request.keep_alive.text.encode()
    return members


def _think(request: Request, losses: Losses) -> bool | str | None:
    """None: the caller does not say. An effort without thinking is a wish about the whole answer (Anthropic), no switch."""
    reasoning = request.reasoning
    if reasoning is None:
        return None
    if reasoning.enabled is False or reasoning.effort == "none":
        return False
    if request.protocol == "anthropic" and reasoning.enabled is None:
        losses.add("reasoning effort")
        return None
    if reasoning.effort:
        return _level(request, reasoning.effort, losses)
    if reasoning.budget_tokens is not None:
        budget = reasoning.budget_tokens
        return next((level for most, level in _BUDGETS if budget <= most), "high")
    return reasoning.enabled


def _level(request: Request, effort: str, losses: Losses) -> bool | str:
    level = effort if request.protocol == NAME else _LEVELS.get(effort)
    if level is None:
        losses.add(f"reasoning effort {effort}")
        return True
    return level


def _options(request: Request) -> dict[str, bytes]:
    sampling = request.sampling
    known = {
        "num_predict": request.max_output_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": sampling.seed,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "stop": list(request.stop) or None,
    }
    options = {name: JSON(value) for name, value in known.items() if value is not None}
    if request.protocol == NAME:
        for name, value in request.extras:
            if name.startswith(OPTION):
                options.setdefault(name.removeprefix(OPTION), value.text.encode())
    return options


def _leftovers(request: Request, losses: Losses) -> dict[str, bytes]:
    """What has no canonical place: sent to the protocol it came from, named for any other."""
    sampling = request.sampling
    if sampling.n is not None and sampling.n > 1:
        raise Unsupported("n > 1 cannot be sent to an Ollama backend: ask several times.", param="n")
    if request.protocol == NAME:
        members = {name: value.text.encode() for name, value in request.extras if not name.startswith(OPTION)}
        asked = {"logprobs": sampling.logprobs, "top_logprobs": sampling.top_logprobs}
        return members | {name: JSON(value) for name, value in asked.items() if value is not None}
    lost: dict[str, Json | bool | int | str | None] = {
        "logit_bias": sampling.logit_bias,
        "logprobs": sampling.logprobs,
        "top_logprobs": sampling.top_logprobs,
        "user": request.user,
        "metadata": request.metadata,
        "verbosity": request.verbosity,
    }
    for name in [*(name for name, value in lost.items() if value), *request.lost_extras()]:
        losses.add(name)
    return {}
