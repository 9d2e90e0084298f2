"""`strom record`: a proxy in front of a backend that writes down every exchange. The work is in `strom.replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strom.cli.options import file_path
from strom.cli.output import plain

if TYPE_CHECKING:
    from pathlib import Path

    from strom.replay.recorder import Written
    from strom.upstreams.urls import BaseUrl


@click.command()
@click.option("--backend", required=True, metavar="URL", help="The model server behind the proxy.")
@click.option(
    "--listen", default="127.0.0.1:8090", show_default=True, metavar="HOST:PORT", help="Where clients reach the proxy."
)
@click.option(
    "--out",
    type=file_path,
    required=True,
    metavar="FOLDER|FILE",
    help="A folder for one file per exchange, or one file that ends in .jsonl.",
)
def record(backend: str, listen: str, out: Path) -> int:
    """Record exchanges with a backend, with their timing, for `strom replay`.

    Everything passes through unchanged and at once. Keys are masked before anything is written.
    """
    import asyncio

    from strom.core.errors import ConfigError
    from strom.upstreams.urls import parse_base_url

    try:
        base = parse_base_url(backend)
    except ConfigError as error:
        raise click.UsageError(f"--backend: {error.message}") from None
    return asyncio.run(_run(base, _address(listen), out))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.UsageError("--listen: expected HOST:PORT, for example 127.0.0.1:8090")
    return host.strip("[]"), int(port)


async def _run(base: BaseUrl, address: tuple[str, int], out: Path) -> int:
    from strom.core.errors import StromError
    from strom.replay.recorder import Recorder, Store
    from strom.replay.stopping import until_stopped
    from strom.transport.client import NativeClient
    from strom.transport.listener import Listener

    host, port = address
    store = Store(out)
    try:
        store.prepare()
    except OSError as error:
        raise StromError(f"Cannot write to {out}: {error.strerror or error}.") from None
    client = NativeClient()
    listener = Listener(Recorder(client, base, store, _report).handle)
    try:
        await listener.start(host, port)
    except OSError as error:
        raise StromError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"Recording http://{shown}:{listener.port} -> {base} into {out}")
    try:
        await until_stopped()
    finally:
        await listener.close()
        client.close()
    return 0


def _report(written: Written) -> None:
    recording = written.recording
    status = recording.head.status if recording.head is not None else "-"
    words = (
        plain(f"{recording.asked.method} {recording.asked.target}"),
        f"{status} {recording.ending.kind}",
        f"{len(recording.pieces)} reads",
        f"{recording.ending.t_ms:.0f} ms",
    )
    if written.path is None:
        click.echo(f"{'  '.join(words)}  NOT WRITTEN: {written.error}", err=True)
    else:
        click.echo(f"{'  '.join(words)}  {written.path.name}")
