"""`--backend URL [--protocol P] [--api-key-env NAME]`, repeated: which protocol and key belong to which URL.

An option belongs to the `--backend` before it; one that stands before the first belongs to the first. Click gathers repeated
options by name and forgets their order, so the order is taken from its parser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from strom.config.settings import Backend

PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "ollama")
_KEY = "strom.backends"
_FIELDS = {"backend": "url", "protocol": "protocol", "api_key_env": "api_key_env"}


class BackendCommand(click.Command):
    """A command with the backend options; `backends_of(context)` gives them grouped."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        taken = dict.fromkeys(_FIELDS, 0)
        pairs: list[tuple[str, str]] = []
        for parameter in order:
            if parameter.name in taken:
                pairs.append((parameter.name, values[parameter.name][taken[parameter.name]]))
                taken[parameter.name] += 1
        ctx.meta[_KEY] = pairs
        return super().parse_args(ctx, args)


def backend_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--api-key-env", multiple=True, metavar="NAME", help="Variable that holds the key of that server."
        ),
        click.option(
            "--protocol", multiple=True, type=click.Choice(PROTOCOLS), help="What that backend speaks [openai-chat]."
        ),
        click.option("--backend", multiple=True, metavar="URL", help="A model server; repeat for several."),
    ):
        command = option(command)
    return command


def gateway_key_env(context: click.Context) -> str | None:
    """For commands that ask a gateway where no --backend is named: then the variable belongs to the gateway."""
    pairs: list[tuple[str, str]] = context.meta.get(_KEY, [])
    if len(pairs) != 1 or pairs[0][0] != "api_key_env":
        return None
    context.meta[_KEY] = []
    return pairs[0][1]


def backends_of(context: click.Context) -> tuple[Backend, ...]:
    """Raises UsageError for an option that belongs to no backend, or twice to one."""
    from strom.config.settings import Backend

    pairs: list[tuple[str, str]] = context.meta.get(_KEY, [])
    if not any(name == "backend" for name, _ in pairs):
        if pairs:
            raise click.UsageError(f"--{pairs[0][0].replace('_', '-')} needs a --backend", context)
        return ()
    groups: list[dict[str, str]] = [{}]
    for name, value in pairs:
        if name == "backend" and "url" in groups[-1]:
            groups.append({})
        if _FIELDS[name] in groups[-1]:
            raise click.UsageError(f"--{name.replace('_', '-')} stands twice for one --backend", context)
        groups[-1][_FIELDS[name]] = value
    return tuple(Backend(**group) for group in groups)  # type: ignore[arg-type]  # click.Choice checked the protocol
