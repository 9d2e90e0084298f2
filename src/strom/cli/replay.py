"""`strom replay`: recordings as a backend, with faults on request. The work is in `strom.replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strom.cli.options import file_path
from strom.cli.output import plain

if TYPE_CHECKING:
    from pathlib import Path

    from strom.replay.server import Played, ReplayServer


@click.command()
@click.argument("paths", nargs=-1, required=True, type=file_path, metavar="FILE|FOLDER...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8091, show_default=True, help="0: a free one.")
@click.option("--speed", type=click.FloatRange(0.001, 1_000_000), metavar="X", help="So many times faster [1].")
@click.option("--no-timing", is_flag=True, help="As fast as the client reads.")
@click.option("--loop/--once", default=True, show_default=True, help="Play again what was played, or answer 503.")
@click.option("--fault", "faults", multiple=True, metavar="SPEC", help="Break answers: see below; may be repeated.")
@click.option("--seed", type=int, default=0, show_default=True, help="For random bytes.")
def replay(paths: tuple[Path, ...], **flags: Any) -> int:
    """Serve recordings as a backend, in their own protocol, on their own paths, with their own timing.

    A SPEC is NAME[@PLACE][=VALUE], several joined by semicolons; PLACE is a byte (@120) or a token (@5t) of the answer:

    \b
    cut@120  cut@5t=reset  cut@120=half   the connection ends there: close (default), reset, half-close
    stall@5t  stall@5t=2.5                silence for ever, or for so many seconds
    trickle  trickle@100=5                one byte at a time, so many milliseconds apart
    garbage@100=16  giant@100=16777216    random bytes, or a giant frame, put in there
    no-terminator  double-terminator      the frame that proves the end: left out, or twice
    status=429; retry-after=3  html=502   an error, or a page of HTML, instead of the answer
    slow-head=5  gzip  tls                a late head, a compressed body, a refused TLS handshake
    every=3                               the faults beside it strike every third request only (alone: status=503)

    One request may ask for its own faults in the header x-strom-fault or a query parameter of that name.
    """
    import asyncio

    from strom.replay.faults import BadFault, parse_faults
    from strom.replay.server import ReplayOptions, ReplayServer
    from strom.replay.shelf import load

    if flags["no_timing"] and flags["speed"] is not None:
        raise click.UsageError("--speed and --no-timing exclude each other")
    try:
        parse_faults(flags["faults"])
    except BadFault as error:
        raise click.UsageError(error.message) from None
    options = ReplayOptions(
        speed=None if flags["no_timing"] else flags["speed"] or 1.0,
        on_played=_report,
        **{name: flags[name] for name in ("loop", "faults", "seed", "host", "port")},
    )
    recordings = load(*paths)

    async def run() -> int:
        return await _serve(ReplayServer(recordings, options), len(recordings), f"{options.host}:{options.port}")

    return asyncio.run(run())


async def _serve(server: ReplayServer, count: int, address: str) -> int:
    from strom.core.errors import StromError
    from strom.replay.stopping import until_stopped

    try:
        await server.start()
    except OSError as error:
        raise StromError(f"Cannot listen on {address}: {error.strerror or error}. Choose another --port.") from None
    click.echo(f"Replaying {count} recording{'s' if count > 1 else ''} on {server.url}")
    for path in server.paths:
        click.echo(f"  {plain(path)}")
    if server.models:
        click.echo(f"Models: {plain(', '.join(server.models))}")
    try:
        await until_stopped()
    finally:
        await server.close()
    return 0


def _report(played: Played) -> None:
    source = f"  {plain(played.source)}" if played.source else ""
    faults = f"  [{played.faults}]" if played.faults else ""
    click.echo(f"{plain(f'{played.asked.method} {played.asked.target}')}  {played.status}{source}{faults}")
