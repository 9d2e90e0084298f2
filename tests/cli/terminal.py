"""The command line on a terminal of its own: a pseudo-terminal that a test types into and reads from."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parents[2] / "src"
LAUNCH = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from strom.cli.main import main
main()
"""
"""With its terminal as the controlling one, so that Ctrl-C reaches it as a signal."""


class Terminal:
    """`seen`: all that was written. `wait_for` goes on from where the last one ended."""

    def __init__(self, *arguments: str, folder: Path, **environment: str) -> None:
        self.seen = ""
        self._at = 0
        self._master, slave = pty.openpty()
        names = {"PATH", "HOME", "LANG"}
        base = {name: value for name, value in os.environ.items() if name in names}
        state = {"XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**base, **state, "PYTHONPATH": str(SOURCES), "PYTHONUTF8": "1", **environment},
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> str:
        """What was written up to and with this text."""
        end = time.monotonic() + PATIENCE_S
        while (found := self.seen.find(text, self._at)) < 0:
            assert time.monotonic() < end, f"waited in vain for {text!r}: {self.seen[self._at :]!r}"
            assert self._read(), f"it ended before {text!r}: {self.seen[self._at :]!r}"
        shown = self.seen[self._at : found + len(text)]
        self._at = found + len(text)
        return shown

    def ended(self) -> int:
        end = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < end, self.seen
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """False: nobody has this terminal open any more."""
        ready, _, _ = select.select([self._master], [], [], 0.1)
        if not ready:
            return self._process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)
