"""Where a command for operators looks: into a store that it opens itself (`--store URL`, `--config FILE`), or at a running
gateway (`--url URL`) that it asks with the admin key in the variable of `--api-key-env`.

The words are the same for every such command. Nothing is imported for the sake of a fast --help.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strom.cli.options import config_option

if TYPE_CHECKING:
    from pathlib import Path

    from strom.cli.http import Api
    from strom.config.settings import Settings

Function = Callable[..., Any]
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
store_option = click.option(
    "--store", metavar="URL", help="The store [that of the configuration, or sqlite:///strom.db]."
)
config_of_store_option = config_option("Use the store of this configuration [$STROM_CONFIG].")
key_option = click.option("--api-key-env", metavar="NAME", help="Variable that holds an admin key for that gateway.")
url_option = click.option("--url", metavar="URL", help="Ask a running gateway.")


def place_options(command: Function) -> Function:
    for option in (json_option, config_of_store_option, store_option, key_option, url_option):
        command = option(command)
    return command


class Place(NamedTuple):
    """What the options say. `store` None: that of the configuration; `path` None: that of the environment, or none."""

    url: str | None
    api_key_env: str | None
    store: str | None
    path: Path | None

    def api(self) -> Api | None:
        """The gateway to ask; None: the place is a store. Raises ConfigError."""
        from strom.cli.http import gateway_api

        return gateway_api(self.url, self.api_key_env) if self.url is not None else None

    def store_url(self) -> str:
        """Raises ConfigError."""
        return self.store if self.store is not None else self.settings().store_url

    @property
    def configured(self) -> bool:
        """Whether there is a configuration file to go by."""
        return self.store is None and (self.path is not None or bool(os.environ.get("STROM_CONFIG")))

    def settings(self) -> Settings:
        """Raises ConfigError."""
        from strom.config.load import load_settings
        from strom.config.settings import Overrides

        return load_settings(self.path, Overrides(), os.environ)


def place_of(options: Mapping[str, Any]) -> Place:
    """Of a command with any of these options. Raises UsageError."""
    place = Place(*(options.get(name) for name in ("url", "api_key_env", "store", "path")))
    if sum(value is not None for value in (place.url, place.store, place.path)) > 1:
        raise click.UsageError("--url, --store and --config exclude each other")
    if place.api_key_env is not None and place.url is None:
        raise click.UsageError("--api-key-env belongs to --url")
    return place
