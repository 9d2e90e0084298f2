"""`strom serve`: from flags to settings; `strom.app` does the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from strom.cli.backends import BackendCommand, backend_options, backends_of
from strom.cli.options import config_option

if TYPE_CHECKING:
    from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")


@click.command(cls=BackendCommand)
@backend_options
@config_option()
@click.option("--host", help="Address to listen on [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on [8080].")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that share the port [1].")
@click.option("--tls-cert", metavar="FILE", help="Certificate chain (PEM): serve HTTPS. With --tls-key.")
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM), in a file for its owner alone.")
@click.option("--log-level", type=click.Choice(LEVELS), help="What is logged to stderr [info].")
@click.option("--allow-unauthenticated", is_flag=True, help="Serve callers without a key, on any address.")
@click.pass_context
def serve(context: click.Context, /, path: Path | None, **flags: Any) -> int:
    """Run the gateway.

    Without --backend and --config it looks for model servers on their usual local ports.
    """
    from strom.config.load import load_settings
    from strom.config.settings import Overrides
    from strom.logs import set_up_logging

    names = ("host", "port", "workers", "log_level", "tls_cert", "tls_key", "allow_unauthenticated")
    overrides = Overrides(**{name: flags[name] for name in names}, backends=backends_of(context))
    settings = load_settings(path, overrides, os.environ)
    secrets = [secret.reveal() for secret in settings.secrets]
    set_up_logging(settings.server.log_level, settings.server.log_format, secrets)

    from strom import app

    return app.serve(settings, lambda: load_settings(path, overrides, os.environ))
