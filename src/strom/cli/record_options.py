"""Options of all commands that look at records: which of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import click

Function = Callable[..., Any]
STATUSES = ("started", "completed", "incomplete", "failed", "cancelled", "rejected")
"""`strom.core.record.Status`, which is not imported for the sake of a fast --help."""
FAULTS = ("client", "upstream", "gateway")
_AGE = re.compile(r"(\d+)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FILTERS = ("status", "model", "provider", "key_name", "protocol_in", "endpoint", "region", "policy", "fault")


def filter_options(command: Function) -> Function:
    for option in (
        click.option("--until", metavar="TIME", help="Started before: a time, or an age like 10m, 2h, 1d."),
        click.option("--since", metavar="TIME", help="Started then or later."),
        click.option("--fault", type=click.Choice(FAULTS), help="Whose fault it was."),
        click.option("--policy", metavar="ID"),
        click.option("--region", metavar="NAME", help="Where the endpoint is."),
        click.option("--endpoint", metavar="ID"),
        click.option("--protocol", "protocol_in", metavar="P", help="The client's protocol."),
        click.option("--key", "key_name", metavar="NAME", help="The client's key."),
        click.option("--provider", metavar="NAME"),
        click.option("--model", metavar="NAME", help="Asked for, or used."),
        click.option("--status", type=click.Choice(STATUSES)),
    ):
        command = option(command)
    return command


def filter_params(options: dict[str, Any]) -> dict[str, str]:
    """The filter in the words of the platform API."""
    params = {name: options[name] for name in _FILTERS if options[name] is not None}
    for name in ("since", "until"):
        instant = _instant(options[name], f"--{name}")
        if instant is not None:
            params[name] = repr(instant)
    return params


def _instant(text: str | None, option: str) -> float | None:
    from strom.core.errors import BadRequest
    from strom.stores.query import parse_instant

    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age:
        return time.time() - int(age[1]) * _UNITS_S[age[2]]
    try:
        return parse_instant(text, option)
    except BadRequest:
        what = f"{text!r} is no time like 2026-03-01T12:00:00Z and no age like 10m"
        raise click.BadParameter(what, param_hint=option) from None
