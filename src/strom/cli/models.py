"""`strom models`: what can be asked for, from a running gateway, a backend, or a configuration file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from strom.cli.backends import BackendCommand, backend_options, backends_of, gateway_key_env
from strom.cli.options import config_option
from strom.cli.output import print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from strom.config.settings import Settings
    from strom.upstreams.upstream import Upstream

Row = dict[str, Any]


@click.command(cls=BackendCommand)
@click.option("--url", metavar="URL", help="A running gateway [http://127.0.0.1:8080].")
@backend_options
@config_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def models(context: click.Context, /, url: str | None, path: Path | None, **flags: Any) -> int:
    """List models: of a running gateway, of a backend, or of a configuration."""
    key_env = gateway_key_env(context)
    backends = backends_of(context)
    if sum((url is not None, bool(backends), path is not None)) > 1:
        raise click.UsageError("--url, --backend and --config exclude each other", context)
    if key_env is not None and path:
        raise click.UsageError("--api-key-env belongs to --url or --backend", context)
    rows = _of_settings(_load(path, backends)) if backends or path else _of_gateway(url or _default_url(), key_env)
    _show(rows, as_json=flags["as_json"])
    return 0


def _load(path: Path | None, backends: tuple[Any, ...]) -> Settings:
    from strom.config.load import load_settings
    from strom.config.settings import Overrides

    return load_settings(path, Overrides(backends=backends), os.environ)


def _default_url() -> str:
    """Where `strom serve` listens with the present environment."""
    server = _load(None, ()).server
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{host}:{server.port}"


def _of_gateway(url: str, key_env: str | None) -> list[Row]:
    from strom.cli.http import gateway_api

    found = gateway_api(url, key_env).get("/v1/models")
    return [{"model": name, "provider": owner} for name, owner in _names(found)]


def _of_settings(settings: Settings) -> list[Row]:
    """Configured models; where there are none, what the providers have, with their name in front if there are several."""
    from strom.upstreams.upstream import Upstream

    if settings.models:
        return [
            {
                "model": model.name,
                "provider": ", ".join(dict.fromkeys(endpoint.provider for endpoint in model.endpoints)),
                "aliases": list(model.aliases),
            }
            for model in settings.models
        ]
    several = len(settings.providers) > 1
    rows: list[Row] = []
    for provider in settings.providers.values():
        names = _of_upstream(Upstream(provider))
        rows += [{"model": f"{provider.name}/{name}" if several else name, "provider": provider.name} for name in names]
    return rows


def _of_upstream(upstream: Upstream) -> list[str]:
    from strom.cli.http import Api
    from strom.core.errors import StromError

    headers = {name.decode(): value.decode("latin-1") for name, value in upstream.auth_headers}
    if upstream.protocol == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    path = "/api/tags" if upstream.protocol == "ollama" else "/v1/models"
    try:
        return [
            name for name, _ in _names(Api(upstream.base, headers, key_option="--api-key-env or api_key_env").get(path))
        ]
    except StromError as error:
        error.message = upstream.redact(error.message)
        raise


def _names(answer: Any) -> list[tuple[str, str | None]]:
    """Names and owners out of an OpenAI-, Anthropic- or Ollama-like list."""
    lists = [answer.get(key) for key in ("data", "models")] if isinstance(answer, dict) else []
    items = next((found for found in lists if isinstance(found, list)), [])
    named = [(item.get("id") or item.get("name"), item.get("owned_by")) for item in items if isinstance(item, dict)]
    return [(name, owner if isinstance(owner, str) else None) for name, owner in named if isinstance(name, str)]


def _show(rows: list[Row], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("No models.", err=True)
    else:
        headings = ["MODEL", "PROVIDER", *(["ALIASES"] if any(row.get("aliases") for row in rows) else [])]
        lines = [[row["model"], row["provider"], ", ".join(row.get("aliases", []))] for row in rows]
        print_table(headings, [line[: len(headings)] for line in lines])
