"""`strom config check`: every error of a file at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from strom.cli.options import file_path

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def config() -> None:
    """Look at configuration files."""


@config.command()
@click.argument("file", type=file_path)
def check(file: Path) -> int:
    """Check FILE and say everything that is wrong with it."""
    from strom.config.load import load_settings
    from strom.config.settings import Overrides
    from strom.core.errors import ConfigError

    try:
        settings = load_settings(file, Overrides(), os.environ)
    except ConfigError as error:
        lines = error.message.splitlines()
        click.echo(f"{file}: {len(lines)} error{'s' if len(lines) > 1 else ''}", err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)
        return 1
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    counts = {
        "providers": len(settings.providers),
        "models": len(settings.models),
        "policies": len(settings.policies),
        "keys": len(settings.keys),
    }
    click.echo(f"{file}: good ({', '.join(f'{number} {name}' for name, number in counts.items())})")
    return 0
