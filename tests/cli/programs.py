"""A command line as a process of its own: started, waited for by its words, stopped by a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.patience import PATIENCE_S

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONUNBUFFERED": "1"}


class Program:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def until(self, words: str) -> str:
        """The line with these words."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for line in list(self._lines):
                if words in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"{words!r} did not come: {self.output}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """The exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.append(line)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Program]:
    command = [sys.executable, "-m", "strom", *arguments]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    program = Program(process)
    try:
        yield program
    finally:
        program.kill()
