"""What is seen of an answer. Only text goes to a pipe; a terminal also shows thinking, tool calls and a summary.

Text of a model cannot steer the terminal: control characters are made visible. Every piece is written as it comes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from strom.client.evidence import ToolCall

DIM, RED, OFF = "\x1b[2m", "\x1b[31m", "\x1b[0m"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LONGEST_VALUE = 300


class View(Protocol):
    def begin(self) -> None:
        """A question went out."""

    def text(self, piece: str) -> None: ...

    def thinking(self, piece: str) -> None: ...

    def called(self, call: ToolCall) -> None: ...

    def returned(self, name: str, result: Any, error: str | None) -> None: ...

    def end(self) -> None:
        """The answer is over, however. May be called twice."""

    def note(self, text: str) -> None:
        """Something beside the answer."""

    def problem(self, text: str) -> None: ...


def make_view(out: TextIO, err: TextIO, environ: Mapping[str, str]) -> View:
    """Markdown on a terminal, where rich is installed; else plain, and without any colour if NO_COLOR is set."""
    colour = out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    if colour:
        try:
            from strom.cli.chat_markdown import MarkdownView
        except ImportError:
            pass  # the extra `chat` is not installed
        else:
            return MarkdownView(out)
    return PlainView(out, err, colour=colour)


class PlainView:
    """On a pipe `out` gets the text of the answer alone; notes then go to `err` if somebody looks at it."""

    def __init__(self, out: TextIO, err: TextIO, *, colour: bool = False) -> None:
        self._out = out
        self._err = err
        self._terminal = out.isatty()
        self._dim, self._red, self._off = (DIM, RED, OFF) if colour else ("", "", "")
        self._notes = out if self._terminal else err if err.isatty() else None
        self._thinks = False
        self._last = "\n"

    def begin(self) -> None:
        self._last = "\n"

    def text(self, piece: str) -> None:
        if self._thinks:
            self._end_thinking()
        self._write(clean(piece) if self._terminal else piece)

    def thinking(self, piece: str) -> None:
        if not self._terminal:
            return
        if not self._thinks:
            self._thinks = True
            self._write(self._dim or "[thinking] ")
        self._write(clean(piece))

    def called(self, call: ToolCall) -> None:
        self.note(call_line(call))

    def returned(self, name: str, result: Any, error: str | None) -> None:
        self.note(result_line(name, result, error))

    def end(self) -> None:
        if self._thinks:
            self._end_thinking()
        if self._last != "\n":
            self._write("\n")

    def note(self, text: str) -> None:
        self.end() if self._terminal else None
        if self._notes is not None:
            self._notes.write(f"{self._dim}{clean(text)}{self._off}\n")
            self._notes.flush()

    def problem(self, text: str) -> None:
        self.end()
        self._err.write(f"{self._red}strom: {clean(text)}{self._off}\n")
        self._err.flush()

    def _end_thinking(self) -> None:
        self._thinks = False
        self._write(f"{self._off}\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._last = text[-1]


def clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def call_line(call: ToolCall) -> str:
    return f"→ {call.name} {call.raw if call.invalid else _short(call.arguments)}"


def result_line(name: str, result: Any, error: str | None) -> str:
    return f"← {name} failed: {error}" if error is not None else f"← {name}: {_short(result)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + " …"
