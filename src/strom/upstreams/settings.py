"""Providers and models as the gateway uses them: resolved, complete, immutable.

Made by `config`, or by whoever builds a gateway in code. They stand here, below the gateway, because everything that
dispatches needs them and nothing that dispatches may know configuration files.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import msgspec

from strom.core.access import NO_LIMITS, Currency, Limits
from strom.protocols.codec import Quirks
from strom.upstreams.timeouts import SomeTimeouts, Timeouts

ProtocolName = Literal["openai-chat", "openai-responses", "anthropic", "ollama"]
AuthStyle = Literal["bearer", "x-api-key", "api-key", "none"]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Strategy = Literal["weighted", "least-busy", "fastest"]
"""How endpoints of one order are told apart: by drawing lots, by calls under way, by time to the first token."""
Affinity = Literal["off", "conversation"]


class Secret:
    """A key that no repr, log line or format string shows. `reveal` is for whoever puts it on the wire or hashes it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class HealthSettings(msgspec.Struct, frozen=True):
    """When an endpoint of this provider counts as broken, and how it is looked at. Times in seconds."""

    failures: Count = 5
    """So many failures in a row open its circuit."""
    failure_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """This share of the calls that ended within `window_s` opens it, too, once there were `window_calls`."""
    window_s: Seconds = 30.0
    window_calls: Count = 20
    open_s: Seconds = 5.0
    """How long it stays open the first time; twice as long each time that its trial fails."""
    max_open_s: Seconds = 60.0
    """The bound on that, and on what a `Retry-After` of the provider can ask for."""
    probe_s: Seconds | None = None
    """So often its list of models is asked for while its circuit is open or nothing is sent to it. None: never."""


class ProviderSettings(msgspec.Struct, frozen=True):
    """`quirks` are the kind's, with the configuration's on top. `api_key` None: none is sent."""

    name: str
    kind: str
    protocol: ProtocolName
    base_url: str
    auth: AuthStyle = "bearer"
    api_key: Secret | None = None
    region: str | None = None
    sovereignty_class: str | None = None
    retention: str | None = None
    timeouts: Timeouts = Timeouts()
    quirks: Quirks = Quirks()
    health: HealthSettings = HealthSettings()


Amount = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class Price(msgspec.Struct, frozen=True):
    """Per million tokens. What is not priced apart costs as the whole it is part of: cached and written input as input,
    reasoning as output.
    """

    input: Amount
    output: Amount
    currency: Currency
    cached_input: Amount | None = None
    """Input read from the provider's cache."""
    cache_write: Amount | None = None
    """Input written to it."""
    reasoning: Amount | None = None
    valid_from: date | None = None
    """The first day on which it holds, and the last one: of UTC. None: no bound."""
    valid_until: date | None = None


Prices = Price | tuple[Price, ...]
"""Several: the first one that holds on the day of a call is its price."""


class EndpointSettings(msgspec.Struct, frozen=True):
    """One place that serves a model. Tried by rising `order`; endpoints of one order share by `weight`."""

    id: str
    provider: str
    model: str
    """What the upstream is asked for."""
    order: int = 1
    weight: float = 1.0
    context_window: int | None = None
    price: Prices | None = None
    max_concurrent: int | None = None
    """Calls of one process that may be there at once. None: any number."""
    queue: int = 0
    """How many more may wait for a place."""
    queue_timeout_s: float = 30.0


class ModelSettings(msgspec.Struct, frozen=True):
    """A name that clients ask for. `aliases` are shell patterns."""

    name: str
    endpoints: tuple[EndpointSettings, ...]
    aliases: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    """Of all callers of the model together."""
    timeouts: SomeTimeouts = SomeTimeouts()
    """What replaces its providers' clocks."""
    continuation: bool = False
    """A stream whose upstream fails after output goes on at the next endpoint."""
    strategy: Strategy = "weighted"
    affinity: Affinity = "off"
    retries: int = 0
    """How often the last endpoint that failed is asked again before the first token."""
    fallback_models: tuple[str, ...] = ()
    """Whose endpoints come after the model's own."""
