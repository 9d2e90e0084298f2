"""`strom policy explain`: which endpoints of a model a caller can reach, and what stands against the others.

It reads the configuration and asks nobody: what it says is what a gateway with this file does with the first attempt and with
every later one. The names are looked up by the gateway's own router, so the two cannot differ.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from strom.cli.options import config_option
from strom.cli.output import print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from strom.config.settings import Settings
    from strom.core.access import KeySettings
    from strom.gateway.routing import Candidate

HEADINGS = ("ENDPOINT", "MODEL", "ORDER", "REGION", "CLASS", "RETENTION", "PROVIDER", "QUALIFIES", "WHY NOT")


@click.group()
def policy() -> None:
    """Look at what policies allow."""


@policy.command()
@click.argument("model")
@click.option("--key", "key_name", metavar="NAME", help="A key of the configuration: its policy and its models bind.")
@click.option("--policy", "wanted", metavar="ID", help="A policy that the request adds (x-strom-policy).")
@config_option("Configuration (TOML) [$STROM_CONFIG].")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(model: str, key_name: str | None, wanted: str | None, path: Path | None, *, as_json: bool) -> int:
    """Say which endpoints of MODEL qualify, and why the others do not. Exits with 1 when none does."""
    from strom.config.load import load_settings
    from strom.config.settings import Overrides

    settings = load_settings(path, Overrides(), os.environ)
    key = _key(settings, key_name) if key_name is not None else None
    rows = [_row(candidate) for candidate in _survey(settings, model, key, wanted)]
    if as_json:
        print_json({"model": model, "key": key_name, "policies": _binding(key, wanted), "endpoints": rows})
    else:
        click.echo(f"Policies that bind: {', '.join(_binding(key, wanted)) or 'none'}")
        print_table(HEADINGS, [_cells(row) for row in rows])
    return 0 if any(row["qualifies"] and not row["fallback"] for row in rows) else 1


def _survey(settings: Settings, model: str, key: KeySettings | None, wanted: str | None) -> list[Candidate]:
    from strom.gateway.routing import Router
    from strom.upstreams.upstream import Upstream

    upstreams = [Upstream(provider) for provider in settings.providers.values()]
    return Router(upstreams, settings.models, settings.policies).survey(model, key, wanted)


def _key(settings: Settings, name: str) -> KeySettings:
    from strom.core.errors import NotFound

    found = next((key for key in settings.keys if key.name == name), None)
    if found is None:
        known = ", ".join(key.name for key in settings.keys) or "none"
        raise NotFound(f"There is no key {name!r} in the configuration. Known: {known}.")
    return found


def _binding(key: KeySettings | None, wanted: str | None) -> list[str]:
    own = key.policy if key is not None else None
    return list(dict.fromkeys(name for name in (own, wanted) if name is not None))


def _row(candidate: Candidate) -> dict[str, Any]:
    endpoint, upstream = candidate.endpoint, candidate.endpoint.upstream
    return {
        "endpoint_id": endpoint.id,
        "model": candidate.model or None,
        "fallback": candidate.fallback,
        "order": endpoint.order,
        "provider": upstream.name,
        "region": upstream.region,
        "sovereignty_class": upstream.sovereignty_class,
        "retention": upstream.retention,
        "qualifies": not candidate.objections,
        "objections": candidate.objections,
    }


def _cells(row: dict[str, Any]) -> list[object]:
    model = f"{row['model']} (fallback)" if row["fallback"] else row["model"]
    places = [row["region"], row["sovereignty_class"], row["retention"], row["provider"]]
    return [row["endpoint_id"], model, row["order"], *places, row["qualifies"], "; ".join(row["objections"])]
