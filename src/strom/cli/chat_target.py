"""Whom `strom chat` asks: --backend, else --url or a gateway that answers, else the provider in -m, else what discovery finds.

Everything becomes `strom.Model`; where several servers were found, names are SERVER/MODEL.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from strom.cli.http import key_from
from strom.client.model import Model
from strom.client.options import ModelOptions
from strom.config.load import load_settings
from strom.config.settings import Backend, Overrides, Settings
from strom.core.errors import BadRequest, ConfigError, StromError
from strom.upstreams.rows import UPSTREAMS
from strom.upstreams.settings import ProviderSettings

KNOCK_S = 1.0
KEY_NAME = "STROM_KEY"


class Where(msgspec.Struct, frozen=True):
    """What the command line says."""

    model: str | None = None
    url: str | None = None
    key_env: str | None = None
    backend: Backend | None = None


class Target:
    """`places`: options of a model for each server. Without any, names are those of the provider table: provider/model."""

    def __init__(self, label: str, places: Mapping[str, ModelOptions], default: str = "") -> None:
        self.label = label
        self._places = dict(places)
        self._default = default

    def choose(self, name: str | None) -> Model:
        """The model of that name, else the first one there is. Raises BadRequest."""
        try:
            name = name or self._default or next(iter(self.names()), "")
        except StromError as error:
            error.message = self.locate(error.message)
            raise
        if not name:
            raise BadRequest(f"{self.label} lists no models: name one with -m MODEL.")
        return self._model(name)

    def locate(self, problem: str) -> str:
        """An error about a server that has no name of its own, with its address."""
        return f"{problem} ({self.label})" if len(self._places) == 1 else problem

    def names(self) -> list[str]:
        """Raises StromError when a server does not tell."""
        several = len(self._places) > 1
        return [
            f"{place}/{name}" if several else name
            for place, options in self._places.items()
            for name in Model("-", **options).models()
        ]

    def _model(self, name: str) -> Model:
        places = self._places
        if not places:
            return Model(name)
        if len(places) == 1:
            return Model(name, **next(iter(places.values())))
        place, _, rest = name.partition("/")
        if place in places and rest:
            return Model(rest, **places[place])
        owner = next((full for full in self.names() if full.partition("/")[2] == name), None)
        if owner is None:
            raise BadRequest(f"Which server has {name!r}? Write SERVER/MODEL; found were {', '.join(places)}.")
        return Model(name, **places[owner.partition("/")[0]])


@contextmanager
def open_target(where: Where, environ: Mapping[str, str]) -> Iterator[Target]:
    """An embedded model runs until the block ends. Raises StromError."""
    if where.backend is not None:
        yield _of_backend(where.backend)
        return
    gateway = where.url or _default_url(environ)
    if where.url is not None or _is_strom(gateway):
        yield _of_gateway(gateway, where.key_env, environ)
    elif where.key_env is not None:
        raise ConfigError(f"No gateway answers at {gateway}: name it with --url.")
    elif _is_provider(where.model):
        yield Target("the provider table", {})
    else:
        yield from _found(environ)


def _is_provider(model: str | None) -> bool:
    return model is not None and "/" in model and model.partition("/")[0] in UPSTREAMS


def _of_backend(backend: Backend) -> Target:
    key = key_from(backend.api_key_env)
    options: ModelOptions = {
        "base_url": backend.url,
        "provider": "generic",
        "protocol": backend.protocol or "openai-chat",
        "api_key": key.reveal() if key else None,
    }
    return Target(backend.url, {"backend": options})


def _of_gateway(url: str, key_env: str | None, environ: Mapping[str, str]) -> Target:
    key = key_from(key_env)
    secret = key.reveal() if key else environ.get(KEY_NAME)
    return Target(url, {"gateway": {"base_url": url, "provider": "generic", "api_key": secret or None}})


def _found(environ: Mapping[str, str]) -> Iterator[Target]:
    from strom.startup import find_backends

    with find_backends(_settings(environ)) as found:
        providers = found.settings.providers
        label = ", ".join(f"{name} at {provider.base_url}" for name, provider in providers.items())
        default = found.announcement.model.removesuffix("MODEL").removesuffix("/")
        yield Target(label, {name: _of_provider(provider) for name, provider in providers.items()}, default)


def _of_provider(provider: ProviderSettings) -> ModelOptions:
    return {
        "provider": provider.kind,
        "base_url": provider.base_url,
        "protocol": provider.protocol,
        "api_key": provider.api_key.reveal() if provider.api_key else None,
        "timeouts": provider.timeouts,
    }


def _settings(environ: Mapping[str, str]) -> Settings:
    return load_settings(None, Overrides(), environ)


def _default_url(environ: Mapping[str, str]) -> str:
    """Where `strom serve` listens with this environment."""
    server = _settings(environ).server
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{host}:{server.port}"


def _is_strom(url: str) -> bool:
    """All answers of a gateway carry its trace header; another server on that port is left to discovery."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=KNOCK_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().getheader("x-strom-trace-id") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def list_names(target: Target) -> list[str]:
    """Empty where a server does not tell."""
    try:
        return target.names()
    except StromError:
        return []
