"""`strom db status` and `upgrade`: the schema of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from strom.cli.output import print_json
from strom.cli.place import config_of_store_option, json_option, place_of, store_option

if TYPE_CHECKING:
    from strom.cli.place import Place
    from strom.stores.dialect import Dialect
    from strom.stores.versions import SchemaState


@click.group()
def db() -> None:
    """Look after the store's database."""


@db.command()
@json_option
@store_option
@config_of_store_option
def status(*, as_json: bool, **options: Any) -> int:
    """Say which schema the store has. Exit code 1: not the one that this version needs."""
    from strom.stores.versions import HEAD, look

    dialect = _dialect(place_of(options))
    state = _guarded(dialect, lambda: look(dialect))
    if as_json:
        print_json({"store": dialect.shown, "standing": state.standing, "schema": state.revision, "needed": HEAD})
    else:
        stands = f"schema {state.revision}" if state.revision else "no schema yet"
        click.echo(f"{dialect.shown}: {state.standing}, {stands} (this version needs {HEAD})")
    return 0 if state.standing == "current" else 1


@db.command()
@json_option
@store_option
@config_of_store_option
def upgrade(*, as_json: bool, **options: Any) -> int:
    """Bring the store's schema to that of this version. Gateways of an older version should be stopped first."""
    from strom.stores.versions import HEAD, upgrade_alone

    dialect = _dialect(place_of(options))
    before = _guarded(dialect, lambda: upgrade_alone(dialect))
    if as_json:
        print_json({"store": dialect.shown, "was": before.revision, "schema": HEAD})
    elif before.standing == "current":
        click.echo(f"{dialect.shown} has schema {HEAD} already.")
    else:
        click.echo(
            f"{dialect.shown}: from {f'schema {before.revision}' if before.revision else 'empty'} to schema {HEAD}."
        )
    return 0


def _dialect(place: Place) -> Dialect:
    import os

    from strom.core.errors import ConfigError
    from strom.stores.table import dialect_of
    from strom.stores.urls import parse_store_url

    parsed = parse_store_url(place.store_url())
    if parsed.scheme == "memory":
        raise ConfigError("memory:// has no schema")
    if parsed.scheme == "sqlite" and not os.path.exists(parsed.path):
        raise ConfigError(f"there is no store at {parsed.path}: the first start of a gateway makes it")
    return dialect_of(parsed)


def _guarded(dialect: Dialect, work: Callable[[], SchemaState]) -> SchemaState:
    """Raises ConfigError for whatever the database says."""
    from strom.core.errors import ConfigError
    from strom.stores.reading import plain

    try:
        return work()
    except dialect.errors as error:
        raise ConfigError(f"the store {dialect.shown} cannot be used: {plain(error)}") from None
