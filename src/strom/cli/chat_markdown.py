"""An answer as Markdown while it streams. Needs rich (extra `chat`); nothing else imports this.

A live display can redraw no more than a screen. So blocks of Markdown that are whole (all but the last one: nothing that
follows can change them) are printed for good, and only the last block is live, as much of its end as fits the screen.
"""

from __future__ import annotations

from typing import Any, TextIO

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from strom.cli.chat_view import call_line, clean, result_line
from strom.client.evidence import ToolCall

FRAMES_PER_SECOND = 20
_PARSER = MarkdownIt("commonmark").enable("table").enable("strikethrough")


class Tail:
    """The last block, cut at its beginning to what the screen holds."""

    def __init__(self) -> None:
        self.source = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(Markdown(self.source), options.update(height=None), pad=False)
        for line in lines[-max(1, options.size.height - 2) :]:
            yield from line
            yield Segment.line()


class MarkdownView:
    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._tail = Tail()
        self._live: Live | None = None
        self._blocks = 0
        self._thinks = False

    def begin(self) -> None:
        self._blocks = 0

    def text(self, piece: str) -> None:
        self._end_thinking()
        if self._live is None:
            self._live = Live(
                self._tail,
                console=self._console,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
                redirect_stderr=False,
            )
            self._live.start()
        self._tail.source += clean(piece)
        if "\n" in piece:
            self._print_whole_blocks()

    def thinking(self, piece: str) -> None:
        self._end_text()
        self._thinks = True
        self._console.print(Text(clean(piece), style="dim italic"), end="", soft_wrap=True)

    def called(self, call: ToolCall) -> None:
        self.note(call_line(call))

    def returned(self, name: str, result: Any, error: str | None) -> None:
        self.note(result_line(name, result, error))

    def end(self) -> None:
        self._end_thinking()
        self._end_text()

    def note(self, text: str) -> None:
        self.end()
        self._console.print(Text(clean(text), style="dim"))

    def problem(self, text: str) -> None:
        self.end()
        self._console.print(Text(f"strom: {clean(text)}", style="red"))

    def _print_whole_blocks(self) -> None:
        source = self._tail.source
        line = last_block_line(source)
        if line > 0:
            lines = source.splitlines(keepends=True)
            self._tail.source = "".join(lines[line:])
            self._print("".join(lines[:line]))

    def _print(self, source: str) -> None:
        if self._blocks:
            self._console.print()
        self._blocks += 1
        self._console.print(Markdown(source))

    def _end_text(self) -> None:
        live, self._live = self._live, None
        if live is None:
            return
        source, self._tail.source = self._tail.source, ""
        live.stop()
        if source.strip():
            self._print(source)

    def _end_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            self._console.print("\n")


def last_block_line(source: str) -> int:
    """The line at which the last block begins; what stands before it is final."""
    starts = [token.map[0] for token in _PARSER.parse(source) if token.level == 0 and token.map and token.nesting >= 0]
    return starts[-1] if starts else 0
