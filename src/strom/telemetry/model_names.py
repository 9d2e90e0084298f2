"""Names of models as labels: never whatever a client likes to send.

A configured model stands under its own name, whichever alias was asked for. Where nothing is configured, a name counts once a
backend has answered to it, and only so many of them; every other name is "other".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from strom.core.record import CallRecord

OTHER = "other"
NONE = "none"
LONGEST = 128


class Aliased(Protocol):
    @property
    def aliases(self) -> tuple[str, ...]: ...


Find = Callable[[str], str | None]
"""The configured model that a name leads to."""


def find_configured(models: Mapping[str, Aliased], requested: str) -> str | None:
    """In the router's order."""
    for name in (requested, requested.removesuffix(":latest")):
        if name in models:
            return name
        for own, model in models.items():
            if any(fnmatchcase(name, alias) for alias in model.aliases):
                return own
    return None


class ModelNames:
    """`most`: how many names may be learned from use."""

    def __init__(self, find: Find, most: int = 200) -> None:
        self._find = find
        self._most = most
        self._learned: set[str] = set()

    def label(self, record: CallRecord) -> str:
        requested = record.model_requested
        if not requested:
            return NONE
        name = self._find(requested)
        if name is not None:
            return name[:LONGEST]
        if requested in self._learned:
            return requested
        answered = record.provider is not None and (record.complete or record.deltas > 0)
        if answered and len(requested) <= LONGEST and len(self._learned) < self._most:
            self._learned.add(requested)
            return requested
        return OTHER
