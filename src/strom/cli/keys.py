"""`strom keys create`, `list`, `show`, `rotate`, `revoke`, `disable` and `enable`.

A secret is printed once, alone on standard output (so that it can be piped into a secret store); words about it go to
standard error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from strom.cli.output import print_json, print_table
from strom.cli.place import place_of, place_options

if TYPE_CHECKING:
    from strom.cli.key_source import KeySource, Row

Function = Callable[..., Any]
_AGE = re.compile(r"(\d+)([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BUDGET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Z]{3})(?:\s*/\s*(day|week|month))?\s*")
_COLUMNS = ("NAME", "ID", "STATE", "CREATED", "EXPIRES", "LAST USED", "MODELS", "POLICY", "ADMIN")


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke the keys that callers present."""


def _scope_options(command: Function) -> Function:
    for option in (
        click.option("--budget", metavar="AMOUNT", help="Money, like '20 EUR/month' (or /day, /week)."),
        click.option("--concurrent", type=click.IntRange(1), metavar="N", help="Calls at once."),
        click.option("--tokens-per-minute", type=click.IntRange(1), metavar="N", help="Tokens, in and out."),
        click.option("--requests-per-minute", type=click.IntRange(1), metavar="N", help="Calls."),
        click.option("--expires", metavar="TIME", help="When it ends: a time, or an age like 12h, 30d."),
        click.option("--may-pin-endpoint", is_flag=True, help="Let it choose endpoints (x-strom-endpoint)."),
        click.option("--admin", is_flag=True, help="Let it ask /platform."),
        click.option("--route", "routes", multiple=True, metavar="PATTERN", help="Paths it may ask [all]."),
        click.option("--model", "models", multiple=True, metavar="PATTERN", help="Models it may ask for [all]."),
        click.option("--policy", metavar="ID", help="The policy that binds it."),
    ):
        command = option(command)
    return command


@keys.command()
@click.argument("name")
@place_options
@_scope_options
def create(name: str, **options: Any) -> int:
    """Make a key. Its secret is shown this once and kept nowhere."""
    body = {
        "name": name,
        "policy": options["policy"],
        "models": list(options["models"]),
        "routes": list(options["routes"]),
        "admin": options["admin"],
        "may_pin_endpoint": options["may_pin_endpoint"],
        "limits": {
            "requests_per_minute": options["requests_per_minute"],
            "tokens_per_minute": options["tokens_per_minute"],
            "concurrent": options["concurrent"],
            "budget": _budget(options["budget"]),
        },
        "expires_at": _expiry(options["expires"]),
    }
    return _print_made(_open(options).create(body), options)


@keys.command("list")
@place_options
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Go on where another list ended.")
@click.option("--all", "everything", is_flag=True, help="Also those that were revoked.")
def list_(limit: int, cursor: str | None, *, everything: bool, **options: Any) -> int:
    """List keys, the newest first."""
    rows, following = _open(options).list(limit, cursor)
    shown = [row for row in rows if everything or row["revoked_at"] is None]
    if options["as_json"]:
        print_json({"data": shown, "next_cursor": following})
        return 0
    print_table(_COLUMNS, [_cells(row) for row in shown])
    if following:
        click.echo(f"There is more: --cursor {following}", err=True)
    return 0


@keys.command()
@click.argument("key")
@place_options
def show(key: str, **options: Any) -> int:
    """Show a key: by name, id or prefix. Not its secret, which nobody knows."""
    return _print_row(_open(options).show(key), options)


@keys.command()
@click.argument("key")
@place_options
@click.option("--overlap", default="1d", show_default=True, metavar="AGE", help="How long the old secret stays valid.")
def rotate(key: str, overlap: str, **options: Any) -> int:
    """Give a key a new secret, valid at once; the old one ends after the overlap."""
    return _print_made(_open(options).rotate(key, _age(overlap, "--overlap")), options)


@keys.command()
@click.argument("key")
@place_options
def revoke(key: str, **options: Any) -> int:
    """Revoke a key for good. Running gateways refuse it within 3 seconds."""
    return _print_row(_open(options).revoke(key), options)


@keys.command()
@click.argument("key")
@place_options
def disable(key: str, **options: Any) -> int:
    """Switch a key off until `enable`."""
    return _print_row(_open(options).set_disabled(key, disabled=True), options)


@keys.command()
@click.argument("key")
@place_options
def enable(key: str, **options: Any) -> int:
    """Switch a key on again."""
    return _print_row(_open(options).set_disabled(key, disabled=False), options)


def _open(options: dict[str, Any]) -> KeySource:
    from strom.cli.key_source import open_keys

    return open_keys(place_of(options))


def _print_made(made: Row, options: dict[str, Any]) -> int:
    if options["as_json"]:
        print_json(made)
        return 0
    row = made["key"]
    click.echo(f"Key {row['name']!r} ({row['id']}). Its secret, shown this once:", err=True)
    click.echo(made["secret"])
    return 0


def _print_row(row: Row, options: dict[str, Any]) -> int:
    if options["as_json"]:
        print_json(row)
        return 0
    limits = {name: value for name, value in row["limits"].items() if value is not None}
    shown = {**row, "state": _state(row), "limits": _worded(limits)}
    print_table(("FIELD", "VALUE"), [(name, _cell(value)) for name, value in shown.items()])
    return 0


def _cell(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _worded(limits: Row) -> str:
    words = []
    for name, value in limits.items():
        shown = f"{value['amount']:g} {value['currency']}/{value['per']}" if isinstance(value, dict) else value
        words.append(f"{name} {shown}")
    return ", ".join(words)


def _cells(row: Row) -> tuple[object, ...]:
    times = (row["created_at"], row["expires_at"], row["last_used_at"])
    created, expires, used = [time[:16].replace("T", " ") if time else None for time in times]
    models = ", ".join(row["models"]) or "all"
    return (row["name"], row["id"], _state(row), created, expires, used, models, row["policy"], row["admin"])


def _state(row: Row) -> str:
    from datetime import UTC, datetime

    if row["revoked_at"]:
        return "revoked"
    if row["disabled"]:
        return "disabled"
    expiry = row["expires_at"]
    return "expired" if expiry and datetime.fromisoformat(expiry) <= datetime.now(UTC) else "active"


def _budget(text: str | None) -> Row | None:
    if text is None:
        return None
    match = _BUDGET.fullmatch(text)
    if match is None:
        raise click.BadParameter("expected an amount like '20 EUR/month'", param_hint="--budget")
    return {"amount": float(match[1]), "currency": match[2], "per": match[3] or "month"}


def _expiry(text: str | None) -> str | None:
    """RFC 3339."""
    from datetime import UTC, datetime, timedelta

    if text is None:
        return None
    if _AGE.fullmatch(text):
        return (datetime.now(UTC) + timedelta(seconds=_age(text, "--expires"))).isoformat()
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            "expected a time like 2026-12-31T12:00:00Z, or an age like 30d", param_hint="--expires"
        ) from None
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).isoformat()


def _age(text: str, option: str) -> float:
    match = _AGE.fullmatch(text)
    if match is None:
        raise click.BadParameter("expected an age like 90s, 12h, 30d", param_hint=option)
    return float(int(match[1]) * _UNITS_S[match[2]])
