"""The command `strom`: its subcommands, and the one place where errors become words and exit codes.

Exit codes: 0 good, 1 failed, 2 wrong usage. A user's mistake never shows a traceback; a defect of ours is one line, and the
traceback comes with STROM_LOG_LEVEL=debug. Source: product.md section 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from strom._version import __version__
from strom.cli.chat import chat
from strom.cli.check import config
from strom.cli.check_url import check_url
from strom.cli.db import db
from strom.cli.keys import keys
from strom.cli.models import models
from strom.cli.openapi import openapi
from strom.cli.policy import policy
from strom.cli.providers import providers
from strom.cli.record import record
from strom.cli.replay import replay
from strom.cli.serve import serve
from strom.cli.traces import traces
from strom.cli.usage import usage
from strom.core.errors import StromError

DEFECT = "this is a defect, please report; run with STROM_LOG_LEVEL=debug for the traceback"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="strom", message="%(prog)s %(version)s")
def cli() -> None:
    """Moves LLM tokens from any backend to any client, and proves whether the answer is complete."""


COMMANDS = (
    serve, chat, models, keys, policy, traces, usage, db, providers, check_url, record, replay, config, openapi,
)  # fmt: skip
for _command in COMMANDS:
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of a command line (None: that of this process)."""
    try:
        outcome = cli.main(args=arguments, prog_name="strom", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 1
    except StromError as error:
        click.echo(f"strom: {error.message}", err=True)
        return 1
    except BrokenPipeError:
        _close_stdout()
        return 1
    except Exception as error:  # noqa: BLE001 - the last resort: a defect is reported, not dumped
        return _report_defect(error)
    return outcome if isinstance(outcome, int) else 0


def _report_defect(error: Exception) -> int:
    if os.environ.get("STROM_LOG_LEVEL", "").lower() == "debug":
        import traceback

        traceback.print_exc()
    click.echo(f"strom: {type(error).__name__}: {error}", err=True)
    click.echo(DEFECT, err=True)
    return 1


def _close_stdout() -> None:
    """The reader of our output has gone: let nothing complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    sys.exit(run())
