"""`strom providers`: the provider table, and what of it can be used here and now.

Local ports are asked without a key, as `strom serve` does. Hosts are contacted with --probe only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from strom.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strom.transport.types import UpstreamClient
    from strom.upstreams.discovery import Found
    from strom.upstreams.rows import UpstreamRow

Row = dict[str, Any]
PROBE_S = 5.0
_HEADINGS = ("KIND", "PROTOCOL", "BASE URL", "KEY", "CONFIGURED", "REACHABLE", "SEEN")


@click.command()
@click.option("--probe", is_flag=True, help="Ask hosted providers for their models, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def providers(*, probe: bool, as_json: bool) -> int:
    """List the kinds of providers: where they are, which have a key, which answer.

    CONFIGURED: a variable with a key is set. REACHABLE: a server of that kind answers on a usual local port; hosts are
    asked with --probe only.
    """
    from strom.upstreams.rows import UPSTREAMS

    rows = survey(UPSTREAMS, probe=probe)
    if as_json:
        print_json(rows)
        return 0
    print_table(_HEADINGS, [_cells(row) for row in rows])
    return 0


def survey(table: Mapping[str, UpstreamRow], *, probe: bool) -> list[Row]:
    """One row for each kind, in the order of the table."""
    import asyncio

    found, probed = asyncio.run(_look(table, probe=probe))
    return [
        _describe(kind, row, [server for server in found if server.kind == kind], probed.get(kind))
        for kind, row in table.items()
    ]


async def _look(table: Mapping[str, UpstreamRow], *, probe: bool) -> tuple[list[Found], dict[str, tuple[bool, str]]]:
    """Local servers, and for each host that was asked whether it answers and what it says."""
    import asyncio

    from strom.transport.client import NativeClient
    from strom.upstreams.discovery import discover

    local, outer = NativeClient(environ={}), NativeClient()
    hosts = [(kind, row) for kind, row in table.items() if probe and row.base_url and not row.ports]
    try:
        probes = asyncio.gather(*(_probe(outer, row) for _, row in hosts))
        found, answers = await asyncio.gather(discover(local, table), probes)
    finally:
        local.close()
        outer.close()
    return found, {kind: answer for (kind, _), answer in zip(hosts, answers, strict=True)}


async def _probe(client: UpstreamClient, row: UpstreamRow) -> tuple[bool, str]:
    from strom.conformance.asking import Endpoint
    from strom.transport.types import OutgoingRequest
    from strom.upstreams.rows import auth_style
    from strom.upstreams.settings import Secret
    from strom.upstreams.upstream import auth_headers
    from strom.upstreams.urls import parse_base_url

    variable = _variable(row)
    key = Secret(os.environ[variable].strip()) if variable else None
    headers = [(b"accept", b"application/json"), *auth_headers(auth_style(row, row.protocol), key)]
    if row.protocol == "anthropic":
        headers.append((b"anthropic-version", b"2023-06-01"))
    endpoint = Endpoint(client, parse_base_url(row.base_url or "", versioned=row.versioned), PROBE_S, key)
    capture = await endpoint.ask_for(OutgoingRequest("GET", "/v1/models", headers), PROBE_S)
    match capture.status:
        case 0:
            return False, capture.failure or f"no answer within {PROBE_S:g} s"
        case 200:
            return True, "answers"
        case 401 | 403:
            return True, f"refuses the key in {variable}" if variable else "wants a key"
        case status:
            return True, f"answers with {status}"


def _describe(kind: str, row: UpstreamRow, servers: list[Found], probed: tuple[bool, str] | None) -> Row:
    variable = _variable(row)
    reachable, detail = probed if probed is not None else (None, "")
    if row.ports or servers:
        reachable, detail = bool(servers), "; ".join(_server(server) for server in servers)
    return {
        "kind": kind,
        "protocol": row.protocol,
        "base_url": row.base_url,
        "key_variables": list(row.key_names),
        "key_demanded": row.key_demanded,
        "configured": (variable is not None) if row.key_names else None,
        "reachable": reachable,
        "detail": detail,
    }


def _server(server: Found) -> str:
    if server.needs_key:
        return f"{server.base_url} wants a key"
    models = f"{len(server.models)} model{'' if len(server.models) == 1 else 's'}"
    return f"{server.base_url}, {models}"


def _variable(row: UpstreamRow) -> str | None:
    """The variable that holds a key, by the names this kind usually has."""
    return next((name for name in row.key_names if os.environ.get(name, "").strip()), None)


def _cells(row: Row) -> list[object]:
    variables = " or ".join(row["key_variables"])
    return [
        row["kind"],
        row["protocol"],
        row["base_url"],
        variables,
        row["configured"],
        row["reachable"],
        row["detail"],
    ]
