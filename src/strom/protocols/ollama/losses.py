"""The names of what a translation to Ollama leaves out, each once, in the order in which they were met."""

from __future__ import annotations


class Losses:
    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        self._names[name] = None

    def names(self) -> tuple[str, ...]:
        return tuple(self._names)
