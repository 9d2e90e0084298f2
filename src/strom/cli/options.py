"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path


def file_path(text: str) -> Path:
    """A click type; whether the file is there is found out by whoever reads it."""
    from pathlib import Path

    return Path(text)


def config_option(help_text: str = "Configuration (TOML).") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--config", "path", type=file_path, metavar="FILE", help=help_text)
