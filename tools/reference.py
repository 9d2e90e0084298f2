"""Write the pages of docs/reference that are made from the program: the command line, and the OpenAPI document.

    python tools/reference.py          (make reference)

tests/docs/test_reference.py sees that they are current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from strom.cli.main import cli
from strom.server.platform_openapi import document
from strom.server.platform_operations import OPERATIONS, Operation

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
HEAD = """# Command line

Made from the program's own help (`make reference`). Exit codes everywhere: 0 good, 1 failed, 2 wrong usage. With `--json` a
command prints JSON alone on standard output; words for people go to standard error. Commands for operators look into a store
(`--store`, or that of `--config`) or ask a running gateway (`--url`, with an admin key in the variable that `--api-key-env`
names).
"""
PLATFORM = """# Platform API

Made from the operations themselves (`make reference`). The OpenAPI document is [openapi.json](openapi.json); a gateway serves
its own at `/platform/v1/openapi.json`, and `strom openapi` prints it.

- Where keys are required only admin keys may ask, as `Authorization: Bearer` or `x-api-key`. With `[server] admin_port` the
  paths are at that port alone.
- Lists answer `{"data": […], "next_cursor": …}`; give `next_cursor` back as `cursor` until it is null. `limit`: 1 to 1000.
- What an operation does not know, in query or body, is a 400 that names it. Nothing streams: `stream=true` is one too.
- Errors are problem JSON (RFC 9457, `application/problem+json`): `type`, `title`, `status`, `detail`, `instance` (the id in
  `x-strom-trace-id`), `code`, and `param` where one parameter or member is to blame.
- Times are RFC 3339 in answers; in queries Unix seconds will do too.

| method and path | does | parameters |
|---|---|---|
"""


def pages() -> dict[Path, bytes]:
    """Every page that is made, and what it has to hold."""
    return {
        FOLDER / "cli.md": command_line().encode(),
        FOLDER / "platform.md": platform().encode(),
        FOLDER / "openapi.json": document(),
    }


def command_line() -> str:
    parts = [HEAD]
    for name, command in _commands(cli, "strom"):
        about = inspect.cleandoc(command.help or "")
        parts.append(f"## {name}\n\n{_escaped(about)}\n\n```text\n{_usage(name, command)}\n```\n")
    return "\n".join(parts)


def platform() -> str:
    rows = [
        f"| `{each.method} {each.path.removeprefix('/platform/v1')}` | {each.summary} | {_parameters(each)} |\n"
        for each in OPERATIONS
    ]
    return PLATFORM + "".join(rows) + "\nPaths are below `/platform/v1`.\n"


def _parameters(operation: Operation) -> str:
    query = [f"`{name}`" for name in operation.query.__struct_fields__]
    body = [f"`{name}`" for name in operation.body.__struct_fields__] if operation.body is not None else []
    return ", ".join(query) + ("; " if query and body else "") + ("body: " + ", ".join(body) if body else "")


def _commands(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
    """Those that do something, in the order in which they are added."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def _usage(name: str, command: click.Command) -> str:
    """Without the words that stand above, and without --help."""
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_options(context, formatter)
    lines = formatter.getvalue().rstrip().splitlines()
    return "\n".join(line.rstrip() for line in lines if not re.match(r"\s+(-h, )?--help\s", line))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_bytes(content)
        print(path.relative_to(FOLDER.parents[1]))
