"""`strom policy explain`: which endpoints of a model a caller can reach, and what stands against the others.

Without --url it reads the configuration, and the store only for a key that the configuration does not have; it asks nobody.
What it says is what a gateway does with the first attempt and with every later one: the same code answers both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strom.cli.options import config_option
from strom.cli.output import print_json, print_table
from strom.cli.place import json_option, key_option, place_of, url_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strom.cli.place import Place
    from strom.config.settings import Settings
    from strom.core.access import KeySettings
    from strom.server.platform_types import CandidateRow, Explanation

HEADINGS = ("ENDPOINT", "MODEL", "ORDER", "REGION", "CLASS", "RETENTION", "PROVIDER", "QUALIFIES", "WHY NOT")
PATH = "/platform/v1/policies/explain"


@click.group()
def policy() -> None:
    """Look at what policies allow."""


@policy.command()
@click.argument("model")
@url_option
@key_option
@config_option("Configuration (TOML) [$STROM_CONFIG].")
@click.option("--key", "key_name", metavar="NAME", help="A key by name, id or prefix: its policy and its models bind.")
@click.option("--policy", "wanted", metavar="ID", help="A policy that the request adds (x-strom-policy).")
@json_option
def explain(model: str, key_name: str | None, wanted: str | None, *, as_json: bool, **options: Any) -> int:
    """Say which endpoints of MODEL qualify, and why the others do not. Exits with 1 when none does."""
    import msgspec

    found = _ask(place_of(options), model, key_name, wanted)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        click.echo(f"Policies that bind: {', '.join(found.policies) or 'none'}")
        print_table(HEADINGS, [_cells(row) for row in found.endpoints])
    return 0 if any(row.qualifies and not row.fallback for row in found.endpoints) else 1


def _ask(place: Place, model: str, key_name: str | None, wanted: str | None) -> Explanation:
    """Raises StromError."""
    import msgspec

    from strom.core.errors import ProviderError
    from strom.server.platform_types import Explanation

    api = place.api()
    if api is None:
        return _work_out(place.settings(), model, key_name, wanted)
    params = {"model": model, "key": key_name, "policy": wanted}
    answer = api.get(PATH, {name: value for name, value in params.items() if value is not None})
    try:
        return msgspec.convert(answer, Explanation)
    except msgspec.ValidationError:
        raise ProviderError("the answer is no explanation: is --url the address of a Strom gateway?") from None


def _work_out(settings: Settings, model: str, key_name: str | None, wanted: str | None) -> Explanation:
    from strom.gateway.routing import Router
    from strom.server.platform_policies import explain, find_key
    from strom.upstreams.upstream import Upstream

    key = find_key(_keys(settings, key_name), key_name) if key_name is not None else None
    upstreams = [Upstream(provider) for provider in settings.providers.values()]
    return explain(Router(upstreams, settings.models, settings.policies), model, key, wanted)


def _keys(settings: Settings, wanted: str) -> Iterator[KeySettings]:
    """Those of the configuration; those of the store besides, where there is one and none of these is meant."""
    import os

    from strom.policies.managed_keys import ManagedKeys
    from strom.stores.table import open_key_store
    from strom.stores.urls import parse_store_url

    yield from settings.keys
    parsed = parse_store_url(settings.store_url)
    absent = parsed.scheme == "memory" or (parsed.scheme == "sqlite" and not os.path.exists(parsed.path))
    if absent or any(key.name == wanted for key in settings.keys):
        return
    managed = ManagedKeys(open_key_store(settings.store_url))
    try:
        managed.refresh()
        yield from managed.keys
    finally:
        managed.close()


def _cells(row: CandidateRow) -> list[object]:
    model = f"{row.model} (fallback)" if row.fallback else row.model
    places = [row.region, row.sovereignty_class, row.retention, row.provider]
    return [row.endpoint_id, model, row.order, *places, row.qualifies, "; ".join(row.objections)]
