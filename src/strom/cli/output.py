"""What commands print: aligned columns or JSON, plain text always. Foreign text cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click


def plain(value: object) -> str:
    """A value on one line; what is unknown is a dash, and control characters are made visible as �."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(value))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    lines = [list(headings), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headings))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_json(value: Any, *, indent: int | None = 2) -> None:
    import json

    click.echo(json.dumps(value, indent=indent, ensure_ascii=False))
