"""What the sync and the async model share: settings, and the way from a call's arguments to a `Job`. Does no I/O."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack

import msgspec

from strom.client.config import SINGLE, CompletionConfig, checked, merge
from strom.client.events import StreamError
from strom.client.evidence import CompletionMetadata, StreamMetrics
from strom.client.failures import StreamFailed
from strom.client.messages import Messages, to_canonical
from strom.client.options import CallOptions, ModelOptions, Unfinished, refuse_unknown
from strom.client.pricing import cost_of, price_table
from strom.client.provider import Address, Provider, resolve
from strom.client.reply import Reply
from strom.client.requests import Wish, build
from strom.client.resuming import Resuming
from strom.client.retry import Retry
from strom.client.run import Job, Run
from strom.client.schemas import shape_of
from strom.client.tool_running import ToolBox
from strom.client.tools import Tool, as_tool
from strom.client.turn import Candidate
from strom.core.errors import BadRequest, StromError, Unsupported
from strom.core.messages import Message, TextPart
from strom.core.record import Cost
from strom.core.usage import Usage
from strom.protocols.codec import Codec
from strom.protocols.table import CODECS
from strom.transport.types import UpstreamClient
from strom.upstreams.timeouts import Timeouts

OtherT = TypeVar("OtherT", bound="ModelCore")
CONTINUE = "Continue exactly where your answer broke off. Do not repeat anything and do not comment on the break."
_JOB_FIELDS = ("run_tools", "max_rounds", "final_round", "parallel_tools", "repair")


class ModelCore:
    """A model at a provider. Safe to share between threads and tasks."""

    def __init__(self, name: str, **options: Unpack[ModelOptions]) -> None:
        """Raises BadRequest when it is not clear which upstream is meant."""
        refuse_unknown(options, ModelOptions, type(self).__name__)
        self.name = name
        self.config: CompletionConfig = checked(options.get("config", CompletionConfig()))
        self.tracer = options.get("tracer")
        self._provider = _resolve(name, options)
        self._prices = price_table(options.get("prices", {}))
        self._retry = _checked_retry(options.get("retry"))
        self._fallbacks = self._providers(options.get("fallbacks", ()))
        self._transport: UpstreamClient | None = options.get("transport")
        self._clock: Callable[[], float] = options.get("clock", time.monotonic)
        self._metrics = StreamMetrics()

    @property
    def last_stream_metrics(self) -> StreamMetrics:
        """Timing of this model's latest finished operation. With several at once, look at each one's own terminal event."""
        return self._metrics

    @property
    def model(self) -> str:
        """What the upstream is asked for."""
        return self._provider.model

    @property
    def provider(self) -> str:
        return self._provider.upstream.name

    @property
    def codec(self) -> Codec:
        return _codec(self._provider)

    def canonical(self, messages: Messages) -> tuple[Message, ...]:
        """Raises BadRequest."""
        return to_canonical(messages, CODECS["openai-chat"])

    def cost(self, usage: Usage, model: str | None = None) -> Cost | None:
        """By the price table this model was given; None when a price or a count is not known."""
        return self._price_of(model or self.model, usage)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._provider.upstream!r})"

    # -- a call

    def _prepare(self, messages: Messages, options: CallOptions, *, whole: bool) -> tuple[Run, ToolBox]:
        """Raises Unsupported, BadRequest, AuthError: whatever can be refused is refused before anything is sent."""
        refuse_unknown(options, CallOptions, "a call")
        correlation_id = options.get("correlation_id") or uuid.uuid4().hex
        single = {name: options[name] for name in SINGLE if name in options}  # type: ignore[literal-required]
        config = merge(options.get("config"), self.config, single)
        tools = tuple(as_tool(given) for given in options.get("tools", ()))
        into = options.get("into")
        earlier = _earlier_text(options.get("continue_from"))
        wish = Wish(
            messages=_conversation(self.canonical(messages), options.get("system"), earlier),
            config=config,
            tools=tools,
            shape=None if into is None else shape_of(into),
            last_round=options.get("max_rounds") == 0,
        )
        job = self._job(wish, options, whole=whole)
        job = msgspec.structs.replace(
            job, correlation_id=correlation_id, earlier_text=earlier, continued=options.get("continue_from") is not None
        )
        by_name: dict[str, Tool] = {tool.name: tool for tool in tools}
        if len(by_name) != len(tools):
            raise BadRequest("Two tools have the same name.", param="tools")
        return Run(job), ToolBox(by_name, correlation_id, options.get("tool_context"), self._clock)

    def _job(self, wish: Wish, options: CallOptions, *, whole: bool) -> Job:
        given: dict[str, Any] = {name: options[name] for name in _JOB_FIELDS if name in options}  # type: ignore[literal-required]
        if given.get("parallel_tools", 1) < 0 or (given.get("max_rounds") or 0) < 0:
            raise BadRequest("parallel_tools and max_rounds cannot be negative.", param="tools")
        fallbacks = self._providers(options["fallbacks"]) if "fallbacks" in options else self._fallbacks
        return Job(
            wish=wish,
            build=lambda current: self._candidates(current, fallbacks),
            correlation_id="",
            retry=_checked_retry(options.get("retry", self._retry)),
            whole=whole,
            tracer=self.tracer,
            price_of=self._price_of,
            on_metrics=self._note_metrics,
            resuming=Resuming() if options.get("resume") else None,
            **given,
        )

    def _over(self, run: Run) -> UpstreamClient | None:
        """What carries its requests; None: the process's connections."""
        resuming = run.job.resuming
        return self._transport if resuming is None else resuming.over(self._transport)

    def _candidates(self, wish: Wish, fallbacks: Sequence[Provider]) -> tuple[Candidate, ...]:
        """A fallback that cannot be asked for this at all is left out."""
        found = [build(wish, self._provider, self.codec)]
        for provider in fallbacks:
            try:
                found.append(build(wish, provider, _codec(provider)))
            except StromError:
                continue
        return tuple(found)

    def _providers(self, models: Sequence[ModelCore | str]) -> tuple[Provider, ...]:
        return tuple(
            model._provider if isinstance(model, ModelCore) else _resolve(model, ModelOptions()) for model in models
        )

    def _note_metrics(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics

    def _price_of(self, model: str, usage: Usage) -> Cost | None:
        names = (model, f"{self.provider}/{model}")
        return cost_of(usage, self._prices, names, datetime.now(UTC).date())

    def _same(self, other: type[OtherT]) -> OtherT:
        """This model in its other colour, with the same settings."""
        twin = other.__new__(other)
        twin.__dict__.update(self.__dict__)
        return twin


def _checked_retry(retry: object) -> Retry | None:
    if retry is not None and not isinstance(retry, Retry):
        raise BadRequest(f"retry has to be a strom.Retry, not {retry!r}.", param="retry")
    return retry


def _resolve(name: str, options: ModelOptions) -> Provider:
    address = Address(
        name=name,
        provider=options.get("provider"),
        base_url=options.get("base_url"),
        protocol=options.get("protocol"),
        api_key=options.get("api_key", ""),
        auth=options.get("auth"),
        timeouts=options.get("timeouts", Timeouts()),
        quirks=options.get("quirks", {}),
    )
    if address.protocol is not None and address.protocol not in CODECS:
        known = ", ".join(sorted(CODECS))
        raise BadRequest(f"There is no protocol {address.protocol!r}; known are {known}.", param="protocol")
    return resolve(address, options.get("environ", os.environ))


def _codec(provider: Provider) -> Codec:
    codec = CODECS.get(provider.upstream.protocol)
    if codec is None:
        raise Unsupported(f"There is no codec for the protocol {provider.upstream.protocol}.")
    return codec


def _conversation(messages: tuple[Message, ...], system: str | None, earlier: str) -> tuple[Message, ...]:
    if system:
        messages = (Message("system", (TextPart(system),)), *messages)
    if not earlier:
        return messages
    return (*messages, Message("assistant", (TextPart(earlier),)), Message("user", (TextPart(CONTINUE),)))


def _earlier_text(unfinished: Unfinished | None) -> str:
    match unfinished:
        case None:
            return ""
        case str():
            return unfinished
        case Reply():
            return unfinished.full_text
        case StreamFailed() | StreamError():
            return unfinished.metadata.text
        case CompletionMetadata():
            return unfinished.text
        case _:
            raise BadRequest(f"There is nothing to continue in a {type(unfinished).__name__}.", param="continue_from")
