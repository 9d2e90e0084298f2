"""`strom chat`: one question or a session, streamed to the terminal.

    strom chat "Tell me a story"          one answer
    strom chat                            a session
    cat x | strom chat "summarise"        what comes in stands below the prompt; on a pipe, plain text goes out and nothing else

Exit codes: 0 the answer is complete, 1 it is not, 2 wrong usage. Source: product.md section 1.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from strom.cli.backends import BackendCommand, backend_options, backends_of, gateway_key_env
from strom.cli.options import file_path

if TYPE_CHECKING:
    from strom.cli.chat_target import Where
    from strom.client.config import CompletionConfig
    from strom.client.session import SessionOptions


@click.command(cls=BackendCommand)
@click.argument("prompt", nargs=-1)
@click.option("-m", "--model", metavar="MODEL", help="What to ask; by default the first model that is listed.")
@click.option("--url", metavar="URL", help="A gateway [http://127.0.0.1:8080, else local model servers].")
@backend_options
@click.option("-s", "--system", default="", metavar="TEXT", help="System prompt.")
@click.option("--temperature", type=float, help="Sampling temperature.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer, in tokens.")
@click.option(
    "--tools", type=file_path, multiple=True, metavar="FILE", help="Python file whose functions the model may call."
)
@click.option("--resume", type=file_path, metavar="FILE", help="Go on with a session that /save wrote.")
@click.pass_context
def chat(context: click.Context, /, prompt: tuple[str, ...], **flags: Any) -> int:
    """Talk to a model; the answer streams.

    With a PROMPT: one answer. Without: a session, /help lists its commands. Text that is piped in is added to the PROMPT.
    Answers are rendered as Markdown where rich is installed (pip install 'strom[chat]'), else shown as plain text.
    """
    where = _where(context, flags)
    asked = _question(context, " ".join(prompt))

    from strom.cli.chat_session import Chat, run_session
    from strom.cli.chat_target import open_target
    from strom.cli.chat_view import make_view

    options = _options(flags)
    view = make_view(sys.stdout, sys.stderr, os.environ)
    with open_target(where, os.environ) as target:
        talk = Chat(target, target.choose(where.model), view, options)
        if flags["resume"] is not None:
            talk.load(flags["resume"])
        if asked is None:
            return run_session(talk)
        return 0 if talk.ask(asked) else 1


def _where(context: click.Context, flags: dict[str, Any]) -> Where:
    key_env = gateway_key_env(context)
    backends = backends_of(context)
    if len(backends) > 1:
        raise click.UsageError("one --backend is enough to chat", context)
    if backends and flags["url"] is not None:
        raise click.UsageError("--url and --backend exclude each other", context)

    from strom.cli.chat_target import Where

    return Where(flags["model"], flags["url"], key_env, backends[0] if backends else None)


def _question(context: click.Context, prompt: str) -> str | None:
    """The one question, or None for a session."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else _read_pipe()
    text = "\n\n".join(part for part in (prompt.strip(), piped.strip("\n")) if part.strip())
    if text:
        return text
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        return None
    raise click.UsageError("a PROMPT, or text on standard input, is needed where there is no terminal", context)


def _read_pipe() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise click.ClickException("standard input is not UTF-8 text") from None


def _options(flags: dict[str, Any]) -> SessionOptions:
    from strom.cli.chat_tools import load_tools
    from strom.client.options import CallOptions

    call: CallOptions = {"config": _config(flags)}
    if flags["tools"]:
        call["tools"] = [tool for path in flags["tools"] for tool in load_tools(path)]
    return {"system": flags["system"], "options": call}


def _config(flags: dict[str, Any]) -> CompletionConfig:
    from strom.client.config import CompletionConfig

    return CompletionConfig(temperature=flags["temperature"], max_tokens=flags["max_tokens"])
