"""Where a call may go: an endpoint must match every policy that binds the call. Fails closed.

A policy names shell patterns for region, sovereignty class and retention. An endpoint that does not tell one of them matches
no pattern on it. A request can add a policy of its own (`x-strom-policy`) and so only tighten.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Protocol

from strom.core.access import PolicySettings


class Place(Protocol):
    """What an upstream tells of itself."""

    @property
    def region(self) -> str | None: ...

    @property
    def sovereignty_class(self) -> str | None: ...

    @property
    def retention(self) -> str | None: ...


def allows(policy: PolicySettings, place: Place) -> bool:
    return (
        _matches(place.region, policy.regions)
        and _matches(place.sovereignty_class, policy.sovereignty_classes)
        and _matches(place.retention, policy.retentions)
    )


def all_allow(policies: Iterable[PolicySettings], place: Place) -> bool:
    return all(allows(policy, place) for policy in policies)


def _matches(value: str | None, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return True
    return value is not None and any(fnmatchcase(value, pattern) for pattern in patterns)
