"""What may be given to a model, and to one call. All by name; what is left out has the default described here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from strom.client.config import CompletionConfig, field_names
from strom.client.events import StreamError
from strom.client.evidence import CompletionMetadata
from strom.client.failures import StreamFailed
from strom.client.reply import Reply
from strom.client.retry import Retry
from strom.client.tools import ToolLike
from strom.client.tracer import Tracer
from strom.transport.types import UpstreamClient
from strom.upstreams.settings import AuthStyle, Price, ProtocolName
from strom.upstreams.timeouts import Timeouts

if TYPE_CHECKING:
    from strom.client.model_core import ModelCore

Unfinished = str | Reply | StreamFailed | StreamError | CompletionMetadata


class ModelOptions(TypedDict, total=False):
    provider: str
    """A row of the provider table; the model's name then goes out as it is."""
    base_url: str
    """With or without /v1."""
    protocol: ProtocolName
    api_key: str | None
    """Empty: the provider's environment variable. None: none is sent."""
    auth: AuthStyle
    config: CompletionConfig
    """Default of every call."""
    timeouts: Timeouts
    quirks: Mapping[str, object]
    """How this server deviates from its protocol (product.md section 4)."""
    prices: Mapping[str, Price | Mapping[str, object]]
    """By shell pattern of the model's name. A model without a price has no cost."""
    retry: Retry | None
    fallbacks: Sequence[ModelCore | str]
    """Asked in order when a request fails before its first token in a way that another may do better."""
    tracer: Tracer | None
    transport: UpstreamClient
    """In place of the process's connections: for tests."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    environ: Mapping[str, str]
    """In place of os.environ, for keys."""


class CallOptions(TypedDict, total=False):
    system: str
    """A system message in front."""
    config: CompletionConfig
    temperature: float
    max_tokens: int
    num_ctx: int
    tools: Iterable[ToolLike]
    run_tools: bool
    """False: the calls are the answer. Default True."""
    max_rounds: int | None
    """Rounds of tool calls, default 10; None: no limit; 0: tools of earlier turns are known, but none may be called."""
    final_round: bool
    """After the last round, one more request without tools (default); False: an error."""
    parallel_tools: int
    """How many calls of one turn run at once; 1 by default, 0: all."""
    tool_context: Any
    into: Any
    """The type of the answer: msgspec Struct, dataclass, TypedDict, pydantic model, plain type, or a JSON schema."""
    repair: bool
    """One more try when the answer is not of the type. Default False."""
    retry: Retry | None
    fallbacks: Sequence[ModelCore | str]
    correlation_id: str
    continue_from: Unfinished
    """Go on deliberately from an incomplete answer: its text, or what carries it."""
    resume: bool
    """Through a Strom gateway: go on by itself after a broken connection, byte for byte. Default False."""


def refuse_unknown(given: Mapping[str, object], known: type, where: str) -> None:
    """A TypedDict checks nothing at run time. Raises TypeError, as a parameter that does not exist would."""
    unknown = [name for name in given if name not in known.__annotations__]
    if not unknown:
        return
    name = unknown[0]
    if known is CallOptions and name in field_names():
        raise TypeError(f"{where} has no option {name!r}: put it into config=strom.CompletionConfig({name}=…)")
    from difflib import get_close_matches

    near = get_close_matches(name, known.__annotations__, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known.__annotations__))}"
    raise TypeError(f"{where} has no option {name!r}; {hint}")
