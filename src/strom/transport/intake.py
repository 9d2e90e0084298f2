"""What all connections together may hold of requests that are not complete yet.

One body is bounded by `max_body_bytes`; ten thousand of them at once are not. Invariant: what is taken is given back exactly
once, when its request is complete, refused or gone.
"""

from __future__ import annotations

from collections.abc import Callable


def always() -> bool:
    return True


class Intake:
    """`admits`: whether any further body may come at all; asked before its first byte is awaited."""

    __slots__ = ("_limit_bytes", "admits", "held_bytes")

    def __init__(self, limit_bytes: int, admits: Callable[[], bool] = always) -> None:
        self._limit_bytes = limit_bytes
        self.admits = admits
        self.held_bytes = 0

    def take(self, size: int) -> bool:
        """False: there is no room for so many bytes, and none were taken."""
        if self.held_bytes + size > self._limit_bytes:
            return False
        self.held_bytes += size
        return True

    def give_back(self, size: int) -> None:
        self.held_bytes -= size
