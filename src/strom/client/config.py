"""What a caller may set for one answer. What is not set is not sent. A config beats single arguments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from strom.core.errors import BadRequest
from strom.core.messages import Json, Reasoning, Sampling, ToolChoice
from strom.core.messages import ResponseFormat as CoreFormat

Effort = Literal["disabled", "enabled", "minimal", "low", "medium", "high", "xhigh", "max"]


class ResponseFormat(msgspec.Struct, frozen=True):
    """What the answer shall look like. The request is recorded by the provider; it is no proof (for that see `into=`)."""

    type: Literal["text", "json_object"] = "text"
    json_schema: Mapping[str, Any] | None = None
    """Only with `json_object`."""

    def canonical(self) -> CoreFormat | None:
        """None for text. Raises BadRequest."""
        if self.json_schema is not None and self.type != "json_object":
            raise BadRequest("json_schema goes with type='json_object' only.", param="response_format")
        if self.type == "text":
            return None
        if self.json_schema is None:
            return CoreFormat("json_object")
        return CoreFormat("json_schema", "response", msgspec.json.encode(self.json_schema).decode())


class CompletionConfig(msgspec.Struct, frozen=True):
    """Sampling, limits, reasoning. None: not set, and then not sent.

    `num_ctx` is Ollama's context size, not a session's `max_context`. `extra`: members that only this provider's protocol
    knows, sent as they are.

    >>> CompletionConfig(temperature=0.7, max_tokens=100).max_tokens
    100
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    num_ctx: int | None = None
    response_format: ResponseFormat | None = None
    reasoning: Effort | None = None
    reasoning_tokens: int | None = None
    tool_choice: str | None = None
    """auto, none, required, or the name of a tool."""
    parallel_tool_calls: bool | None = None
    user: str = ""
    keep_alive: str | int | None = None
    extra: Mapping[str, Any] = {}

    def sampling(self) -> Sampling:
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
        )

    def choice(self) -> ToolChoice | None:
        match self.tool_choice:
            case None:
                return None
            case "auto" | "none" | "required":
                return ToolChoice(self.tool_choice)
            case name:
                return ToolChoice("named", name)

    def thinking(self) -> Reasoning | None:
        if self.reasoning is None and self.reasoning_tokens is None:
            return None
        if self.reasoning == "disabled":
            return Reasoning(enabled=False)
        effort = "" if self.reasoning in (None, "enabled") else str(self.reasoning)
        return Reasoning(enabled=True, effort=effort, budget_tokens=self.reasoning_tokens)

    def extras(self, protocol: str) -> tuple[tuple[str, Json], ...]:
        members = dict(self.extra)
        if self.num_ctx is not None and protocol == "ollama":
            members["options.num_ctx"] = self.num_ctx
        return tuple((name, Json(msgspec.json.encode(value).decode())) for name, value in members.items())


SINGLE = ("temperature", "max_tokens", "num_ctx")
"""What may also be given as an argument of its own."""


def field_names() -> tuple[str, ...]:
    return CompletionConfig.__struct_fields__


def merge(given: CompletionConfig | None, default: CompletionConfig, single: Mapping[str, Any]) -> CompletionConfig:
    """The config of a call. With a config, single arguments beside it are ignored, and a warning says so.

    Raises BadRequest for what is no config, or has values that cannot be one."""
    if given is not None:
        checked(given)
        if single:
            names = ", ".join(sorted(single))
            message = f"config beats single arguments: {names} is ignored; put it into the config"
            warnings.warn(message, DeprecationWarning, stacklevel=4)
        return given
    return checked(msgspec.structs.replace(default, **single)) if single else default


def checked(config: CompletionConfig) -> CompletionConfig:
    """Structs do not look at what they are made of. Raises BadRequest."""
    if not isinstance(config, CompletionConfig):
        raise BadRequest(f"config has to be a CompletionConfig, not a {type(config).__name__}.", param="config")
    try:
        return msgspec.convert(msgspec.structs.asdict(config), CompletionConfig)
    except msgspec.ValidationError as error:
        raise BadRequest(f"config: {error}", param="config") from None
