"""The resolved configuration: what `load_settings` gives, what the composition root builds the gateway from."""

from __future__ import annotations

import ipaddress

import msgspec

from strom.config.schema import (
    AuthSettings,
    LimitsTable,
    LogLevel,
    ServerSettings,
    SharedTable,
    StoreTable,
    TelemetryTable,
)
from strom.core.access import KeySettings, PolicySettings
from strom.upstreams.settings import ModelSettings, ProtocolName, ProviderSettings, Secret


class Backend(msgspec.Struct, frozen=True):
    """One `--backend URL [--protocol P] [--api-key-env NAME]`."""

    url: str
    protocol: ProtocolName | None = None
    api_key_env: str | None = None


class Overrides(msgspec.Struct, frozen=True):
    """What the command line says. None: nothing. `backends` are added to the file's providers."""

    host: str | None = None
    port: int | None = None
    workers: int | None = None
    log_level: LogLevel | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    backends: tuple[Backend, ...] = ()
    allow_unauthenticated: bool = False


class Settings(msgspec.Struct, frozen=True):
    """`providers` keeps the order of the file. `models` is empty when there are no `[[models]]`: then every provider's models
    are reached as provider/model, and with one provider any name passes.
    """

    server: ServerSettings = ServerSettings()
    store_url: str = "sqlite:///strom.db"
    store: StoreTable = StoreTable()
    store_keys: tuple[Secret, ...] = ()
    """What seals stored content: the first key seals, all of them open."""
    shared_url: str = "memory://"
    shared: SharedTable = SharedTable()
    auth: AuthSettings = AuthSettings()
    telemetry: TelemetryTable = TelemetryTable()
    limits: LimitsTable = LimitsTable()
    providers: dict[str, ProviderSettings] = {}
    models: tuple[ModelSettings, ...] = ()
    policies: tuple[PolicySettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()
    secrets: tuple[Secret, ...] = ()
    """Every key that was read, clients' keys too: what a log must never show."""
    runtime_folder: str | None = None
    """Where the worker processes of one gateway find each other; None: there is one process. No option: made at the start."""
    warnings: tuple[str, ...] = ()
    """What the operator should know, one line each, with its path in the file."""

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the gateway, its admin port included."""
        hosts = [self.server.host]
        if self.server.admin_port is not None and self.server.admin_host is not None:
            hosts.append(self.server.admin_host)
        return all(map(_is_loopback, hosts))

    @property
    def auth_required(self) -> bool:
        """Whether callers must present a key: what "auto" comes to."""
        return not self.on_loopback if self.auth.required == "auto" else self.auth.required


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
