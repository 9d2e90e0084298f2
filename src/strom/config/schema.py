"""The shape of the configuration file: one frozen struct per table, exactly the keys of product.md section 4.

Bounds stand in the types; what needs more than one value to judge (references, duplicates, the environment) is in
`resolve.py`. Where a table already has the form in which the gateway uses it, that struct is taken from where it is used.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from strom.core.access import Budget, Limits, Patterns, PerMinute, PolicySettings, Positive
from strom.upstreams.settings import Affinity, HealthSettings, Prices, ProtocolName, Strategy
from strom.upstreams.timeouts import SomeTimeouts, Timeouts

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
NotNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
OriginText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^/\s]+)$", description='an origin like "https://app.example", or "*"'
    ),
]
Words = Annotated[str, msgspec.Meta(min_length=1, description="text that is not empty")]
ProviderName = Annotated[
    str,
    msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="letters, digits, dots, dashes and underscores"),
]
"""No slash: models are reached as provider/model."""
MemberName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", description="letters, digits, dashes and underscores")
]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]


class TlsTable(msgspec.Struct, frozen=True):
    """`[server.tls]`, PEM. Both or none; the key's file is for its owner alone."""

    cert_file: Words | None = None
    key_file: Words | None = None


class ServerSettings(msgspec.Struct, frozen=True):
    """`[server]`. Port 0 takes any free port."""

    host: Words = "127.0.0.1"
    port: Port = 8080
    workers: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    max_body_bytes: Positive = 33_554_432
    max_head_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 65_536
    max_frame_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 16_777_216
    """An upstream's longest frame or line: streams.md section 10."""
    max_reply_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 67_108_864
    """An upstream's longest whole reply."""
    head_timeout_s: Seconds = 30.0
    body_timeout_s: Seconds = 120.0
    keep_alive_s: Seconds = 75.0
    tls: TlsTable = TlsTable()
    max_connections: Positive = 10_000
    """Open client connections of each process."""
    max_connections_per_address: NotNegativeInt = 0
    """0: no limit but that on all."""
    max_active_calls: NotNegativeInt = 20_000
    """Model calls under way in each process; 0: no limit."""
    max_memory_mb: Positive | None = None
    """While a process holds more, it takes no further model calls. None: no limit."""
    max_receiving_bytes: Positive = 1_073_741_824
    """Request bodies that are being received, all together."""
    min_body_bytes_per_s: Annotated[float, msgspec.Meta(gt=0)] = 500.0
    """How fast a request body has to come on the whole, after `body_timeout_s`."""
    slow_reader_s: Seconds = 300.0
    """How long a client may leave unread what waits for it, before it counts as gone."""
    allowed_origins: tuple[OriginText, ...] = ()
    """Origins of web pages that may use this gateway (CORS); none: no page may."""
    allowed_hosts: tuple[Words, ...] = ()
    """Names by which a gateway that listens on loopback without keys may be asked for, besides localhost and addresses."""
    admin_port: Port | None = None
    """Where alone `/platform` and `/metrics` then answer. None: they answer on `port`."""
    admin_host: Words | None = None
    """None: 127.0.0.1."""
    heartbeat_s: Seconds = 15.0
    shutdown_grace_s: NotNegative = 30.0
    routing_block: MemberName = "strom"
    """Name of the routing block; "off": none."""
    reasoning: Literal["native", "text", "drop"] = "native"
    structured_fallback: Literal["prompt", "refuse"] = "prompt"
    """What becomes of a wanted JSON format that the backend cannot enforce: put into the prompt and checked, or refused."""
    fetch_media: bool = False
    """Whether images and documents given by address are fetched for backends that need their data."""
    media_max_bytes: Positive = 20_971_520
    """All fetched media of one request together."""
    media_max_items: Positive = 10
    media_timeout_s: Seconds = 20.0
    resume_grace_s: Seconds = 60.0
    """How long a resumable stream goes on without a client before it counts as left."""
    resume_retention_s: Seconds = 300.0
    """How long a resumable stream can be read again after its end."""
    resume_buffer_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 16_777_216
    """One resumable stream; a longer one is ended with an error."""
    resume_total_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 268_435_456
    """All resumable streams of a process; ended ones make room."""
    log_level: LogLevel = "info"
    log_format: LogFormat = "console"
    access_log: Literal["auto"] | bool = "auto"
    """A line for each call, at its end. "auto": where the log is JSON."""
    metrics_public: bool = False
    """Whether `/metrics` needs no admin key even where others than this machine can reach the gateway."""


class StoreTable(msgspec.Struct, frozen=True):
    """`[store]`. Records, and responses for clients of the Responses API that did not say `store: false`."""

    url: Words = "sqlite:///strom.db"
    responses: bool = True
    """False: no response is stored, whatever the client says."""
    response_retention_s: Seconds = 3600.0
    """How long a response is kept after its end."""
    max_responses: Positive = 10_000
    max_response_bytes: Positive = 268_435_456
    """All responses together; the oldest make room."""
    max_background: Positive = 32
    """Background responses that run at once, in each process."""
    retention_days: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Older records are removed. None: they are kept."""
    keep_peer: bool = False
    """Whether records hold the address of their caller."""
    journal_dir: Words | None = None
    """Where each process notes its running calls, so that none is lost with it. None: beside the SQLite file; for PostgreSQL
    the user's state folder."""
    auto_upgrade: bool = False
    """Whether an outdated PostgreSQL schema is upgraded at the start. SQLite files always are."""
    encryption_key_env: Words | None = None
    """Variable with the key (32 bytes, base64 or hexadecimal) that seals stored content."""
    encryption_key_file: Words | None = None
    old_encryption_key_envs: tuple[Words, ...] = ()
    """Keys that sealed before, and still open."""
    old_encryption_key_files: tuple[Words, ...] = ()


class SharedTable(msgspec.Struct, frozen=True):
    """`[shared]`: what processes and replicas have in common. `memory://`: the workers of one `strom serve`."""

    url: Words = "memory://"
    on_failure: Literal["closed", "local"] = "closed"
    """When Redis does not answer: refuse calls that have limits, or let each process enforce its share of them."""
    replicas_hint: Positive = 1
    """How many processes there are in all: what "local" divides limits by."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=10_000)] = 250
    """How long an answer of Redis is waited for."""
    lease_s: Annotated[float, msgspec.Meta(ge=5)] = 60.0
    """When the slot of a concurrent call comes back whose process died. Running calls renew theirs."""


class TelemetryTable(msgspec.Struct, frozen=True):
    """`[telemetry]`. Metrics are always on; spans and metrics by OpenTelemetry only where they are sent somewhere."""

    otlp_endpoint: Words | None = None
    """Base URL of a collector (OTLP over HTTP), like http://127.0.0.1:4318. None: what OTEL_* variables say, else none."""
    message_text: bool = False
    """Whether spans carry message text, for endpoints whose retention is not "none"."""
    max_models: Positive = 200
    """How many names of models that are not configured may be labels of metrics; further ones are "other"."""


class AuthSettings(msgspec.Struct, frozen=True):
    """`[auth]`. "auto": no key is asked for on a loopback address, and one is elsewhere."""

    required: Literal["auto"] | bool = "auto"
    allow_unauthenticated: bool = False
    """Said in so many words: without it `required = false` is refused on an address that others can reach."""


class LimitsTable(msgspec.Struct, frozen=True):
    """`[limits]`: what binds all calls together, and how much output a call is taken to want that does not say."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    concurrent: PerMinute | None = None
    budget: Budget | None = None
    assumed_output_tokens: Positive = 1024

    @property
    def of_all(self) -> Limits:
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.concurrent, self.budget)


class ProviderTable(msgspec.Struct, frozen=True):
    name: ProviderName
    kind: str = "generic"
    protocol: ProtocolName | None = None
    base_url: Words | None = None
    api_key_env: Words | None = None
    api_key_file: Words | None = None
    """Instead of `api_key_env`: a file that its owner alone may use."""
    region: Words | None = None
    sovereignty_class: Words | None = None
    retention: Words | None = None
    timeouts: Timeouts = Timeouts()
    health: HealthSettings = HealthSettings()
    quirks: dict[str, Any] = {}
    """Some fields of `strom.protocols.codec.Quirks`."""


class EndpointTable(msgspec.Struct, frozen=True):
    """`id` None: provider/model. `model` None: the name of the model it belongs to."""

    provider: Words
    id: Words | None = None
    model: Words | None = None
    order: Annotated[int, msgspec.Meta(ge=0)] = 1
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    context_window: Positive | None = None
    price: Prices | None = None
    max_concurrent: Positive | None = None
    """Calls that each process lets be there at once. None: any number."""
    queue: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """How many more may wait for a place, in each process. Beyond: the next endpoint, else 503 (529 in Messages)."""
    queue_timeout_s: Seconds = 30.0
    """How long one waits before it goes on likewise."""


class ModelTable(msgspec.Struct, frozen=True):
    name: Words
    aliases: tuple[str, ...] = ()
    strategy: Strategy = "weighted"
    """Between endpoints of one order: lots drawn by weight, "least-busy" (fewest calls under way for its weight), or "fastest"
    (shortest expected time to the first token)."""
    affinity: Affinity = "off"
    """"conversation": the calls of one conversation go to one endpoint of an order while it is healthy and not overloaded."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    """How often the last endpoint is asked again, after a rest, when it failed before the first token."""
    fallback_models: tuple[Words, ...] = ()
    """Models whose endpoints come after this one's own. Policies and the key's `models` bind there, too."""
    endpoints: tuple[EndpointTable, ...] = ()
    limits: Limits = Limits()
    """Of all callers of the model together."""
    timeouts: SomeTimeouts = SomeTimeouts()
    """What replaces the clocks of its providers."""
    continuation: bool = False
    """Whether a stream whose backend fails after output goes on at the next endpoint."""


class KeyTable(msgspec.Struct, frozen=True):
    """Exactly one of `key_env`, `key_file` and `key_sha256` is set."""

    name: Words
    key_env: Words | None = None
    key_file: Words | None = None
    key_sha256: str | None = None
    policy: Words | None = None
    models: Patterns = ()
    limits: Limits = Limits()
    admin: bool = False
    routes: Patterns = ()
    """Patterns of the paths it may ask; none: all."""
    may_pin_endpoint: bool = False
    expires_at: datetime | None = None
    """A time without a zone is UTC."""
    disabled: bool = False


class Document(msgspec.Struct, frozen=True):
    """The whole file."""

    server: ServerSettings = ServerSettings()
    store: StoreTable = StoreTable()
    shared: SharedTable = SharedTable()
    auth: AuthSettings = AuthSettings()
    telemetry: TelemetryTable = TelemetryTable()
    limits: LimitsTable = LimitsTable()
    providers: tuple[ProviderTable, ...] = ()
    models: tuple[ModelTable, ...] = ()
    policies: tuple[PolicySettings, ...] = ()
    keys: tuple[KeyTable, ...] = ()
