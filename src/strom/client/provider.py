"""From what a program says to the upstream it means.

    Model("ollama/qwen3:8b")                                  a row of the provider table, at its usual address
    Model("anthropic/claude-sonnet-4-5", base_url="http://…")  the same row, elsewhere
    Model("qwen3-8b", base_url="http://host:8080/v1")         any compatible server, or a gateway
    Model("vllm/release/x", provider="noris", base_url="…")   with `provider`, the name goes out as it is

An empty key is looked up in the provider's variables; None sends none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strom.core.errors import AuthError, BadRequest, ConfigError
from strom.protocols.codec import Quirks
from strom.upstreams.rows import UPSTREAMS, auth_style
from strom.upstreams.settings import AuthStyle, ProtocolName, ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.upstream import Upstream


class Address(msgspec.Struct, frozen=True):
    """What a program says about where its model is."""

    name: str
    provider: str | None = None
    base_url: str | None = None
    protocol: ProtocolName | None = None
    api_key: str | None = ""
    auth: AuthStyle | None = None
    timeouts: Timeouts = Timeouts()
    quirks: Mapping[str, object] = {}


class Provider(msgspec.Struct, frozen=True):
    """`local`: a server on one's own machine or network by its kind, not a host. `needs_key`: and there is none."""

    model: str
    upstream: Upstream
    local: bool
    needs_key: tuple[str, ...] = ()

    def demand_key(self) -> None:
        if self.needs_key:
            names = " or ".join(self.needs_key)
            raise AuthError(f"No API key for {self.upstream.name}: set {names}, or give api_key=.")


def resolve(address: Address, environ: Mapping[str, str]) -> Provider:
    """Raises BadRequest, ConfigError."""
    kind, model = _split(address)
    row = UPSTREAMS[kind]
    base_url = address.base_url or row.base_url
    if base_url is None:
        raise BadRequest(f"{kind} has no address of its own: give base_url=.", param="base_url")
    protocol = address.protocol or row.protocol
    key = address.api_key
    if key == "":
        key = next((environ[name] for name in row.key_names if environ.get(name)), None)
    settings = ProviderSettings(
        name=kind,
        kind=kind,
        protocol=protocol,
        base_url=base_url,
        auth=address.auth or auth_style(row, protocol),
        api_key=Secret(key) if key else None,
        timeouts=address.timeouts,
        quirks=_quirks(row.quirks, address.quirks),
    )
    missing = row.key_names if row.key_demanded and not key and address.base_url is None else ()
    return Provider(model, _upstream(settings), bool(row.ports), missing)


def _split(address: Address) -> tuple[str, str]:
    name = address.name
    if address.provider is not None:
        if address.provider not in UPSTREAMS:
            raise BadRequest(f"There is no provider {address.provider!r}; known are {_known()}.", param="provider")
        return address.provider, name
    kind, slash, model = name.partition("/")
    if slash and kind in UPSTREAMS:
        return kind, model
    if address.base_url is None:
        message = f"Which provider serves {name!r}? Write provider/model (known are {_known()}), or give base_url=."
        raise BadRequest(message, param="model")
    return "generic", name


def _known() -> str:
    return ", ".join(sorted(UPSTREAMS))


def _quirks(default: Quirks, given: Mapping[str, object]) -> Quirks:
    if not given:
        return default
    try:
        return msgspec.convert({**msgspec.structs.asdict(default), **given}, Quirks)
    except msgspec.ValidationError as error:
        raise BadRequest(f"quirks: {error}", param="quirks") from None


def _upstream(settings: ProviderSettings) -> Upstream:
    try:
        return Upstream(settings)
    except ConfigError as error:
        raise BadRequest(f"base_url: {error.message}", param="base_url") from None
