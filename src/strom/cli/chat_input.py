"""Lines from a terminal, with history by Python's readline where there is one.

The history is kept in XDG_STATE_HOME/strom (~/.local/state/strom), readable by its owner alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Self, TextIO

PROMPT, MORE = "> ", "… "
LONGEST_HISTORY = 1000


class LineReader:
    def __init__(self) -> None:
        self._readline = _readline()
        self._path = _history_path()

    def __enter__(self) -> Self:
        if self._readline is not None:
            with contextlib.suppress(OSError):  # the first time, or not ours to read
                self._readline.read_history_file(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._readline is None:
            return
        with contextlib.suppress(OSError):  # a chat without a home for its history is still a chat
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._readline.set_history_length(LONGEST_HISTORY)
            self._readline.write_history_file(self._path)

    def read(self) -> str | None:
        """None at the end. "" after Ctrl-C, which leaves the line and not the program."""
        lines: list[str] = []
        try:
            while True:
                line = input(MORE if lines else PROMPT)
                if not line.endswith("\\"):
                    return "\n".join([*lines, line])
                lines.append(line[:-1])
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            return ""


@contextlib.contextmanager
def no_echo(terminal: TextIO) -> Iterator[None]:
    """What is typed while an answer is drawn (a Ctrl-C above all) would land in the middle of it. Signals still come."""
    try:
        before = termios.tcgetattr(terminal)
    except (termios.error, OSError, ValueError):
        yield  # no terminal
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _readline() -> ModuleType | None:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _history_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "strom" / "chat_history"
