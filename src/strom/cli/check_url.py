"""`strom check URL`: a conformance report of any endpoint, as a table or as JSON. The checks are in `strom.conformance`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from strom.cli.backends import PROTOCOLS
from strom.cli.output import plain, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strom.conformance.report import ProtocolReport, Report, Result
    from strom.upstreams.settings import ProtocolName

_WIDTH = 22


@click.command("check")
@click.argument("url")
@click.option(
    "--protocol", type=click.Choice((*PROTOCOLS, "all")), help="What to check [the protocols that it speaks]."
)
@click.option("-m", "--model", metavar="MODEL", help="What to ask for [the first model that it lists].")
@click.option("--api-key-env", metavar="NAME", help="Variable that holds a key for the endpoint.")
@click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=30, show_default=True, metavar="S", help="For each answer."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_url(url: str, protocol: str | None, model: str | None, **options: object) -> int:
    """Check whether the endpoint at URL keeps its protocol.

    Sends a few dozen short requests, one after the other, and changes nothing there. Exit code 1 when a check fails.
    """
    report = _examine(url, protocol, model, options)
    if options["as_json"]:
        print_json(report.fields())
    else:
        _show(report)
    return 0 if report.ok else 1


def _examine(url: str, protocol: str | None, model: str | None, options: dict[str, object]) -> Report:
    import asyncio

    from strom.cli.http import key_from
    from strom.conformance.asking import Endpoint
    from strom.conformance.run import examine
    from strom.core.errors import ConfigError
    from strom.transport.client import NativeClient
    from strom.upstreams.urls import parse_base_url

    variable = options["api_key_env"]
    try:
        base = parse_base_url(url)
        key = key_from(str(variable) if variable else None)
    except ConfigError as error:
        raise click.UsageError(error.message) from None

    async def run() -> Report:
        client = NativeClient(environ=_environment(base.origin.host))
        try:
            return await examine(Endpoint(client, base, float(str(options["timeout"])), key), _names(protocol), model)
        finally:
            client.close()

    return asyncio.run(run())


def _environment(host: str) -> dict[str, str]:
    """Proxies are for other machines."""
    import ipaddress

    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    return {} if local else dict(os.environ)


def _names(protocol: str | None) -> Sequence[ProtocolName] | None:
    if protocol == "all":
        return PROTOCOLS  # type: ignore[return-value]  # the same four names
    return None if protocol is None else (protocol,)  # type: ignore[return-value]  # click.Choice checked it


def _show(report: Report) -> None:
    click.echo(f"{plain(report.url)}  model {plain(report.model)}")
    for protocol in report.protocols:
        _show_protocol(protocol)
    counts = report.counts
    notes = "note" if counts["note"] == 1 else "notes"
    click.echo(
        f"\n{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped, {counts['note']} {notes}"
    )
    if not any(protocol.spoken for protocol in report.protocols):
        click.echo("No protocol is spoken there; name one with --protocol to see what is wrong with it.", err=True)


def _show_protocol(protocol: ProtocolReport) -> None:
    if not protocol.checks:
        click.echo(f"\n{protocol.protocol}: not spoken ({plain(protocol.reason)})")
        return
    click.echo(f"\n{protocol.protocol}  POST {protocol.path}")
    for result in protocol.checks:
        _show_result(result)


def _show_result(result: Result) -> None:
    click.echo(f"  {result.verdict.upper()}  {result.check.ljust(_WIDTH)}{plain(result.detail)}")
    if result.verdict in ("fail", "note"):
        click.echo(f"{' ' * (_WIDTH + 8)}rule: {result.rule} ({result.source})")
