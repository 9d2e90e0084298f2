"""Where a call may go: an endpoint must match every policy that binds the call. Fails closed.

A policy names shell patterns for region, sovereignty class, retention and provider. An endpoint that does not tell one of them
matches no pattern on it. A request can add a policy of its own (`x-strom-policy`) and so only tighten.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Protocol

from strom.core.access import PolicySettings


class Place(Hashable, Protocol):
    """What an upstream tells of itself."""

    @property
    def name(self) -> str: ...

    @property
    def region(self) -> str | None: ...

    @property
    def sovereignty_class(self) -> str | None: ...

    @property
    def retention(self) -> str | None: ...


@lru_cache(maxsize=4096)
def allows(policy: PolicySettings, place: Place) -> bool:
    """Both never change, so the answer does not."""
    return (
        _matches(place.region, policy.regions)
        and _matches(place.sovereignty_class, policy.sovereignty_classes)
        and _matches(place.retention, policy.retentions)
        and _matches(place.name, policy.providers)
    )


def all_allow(policies: Iterable[PolicySettings], place: Place) -> bool:
    return all(allows(policy, place) for policy in policies)


def objections(policy: PolicySettings, place: Place) -> list[str]:
    """Why the policy forbids the place, a reason each; nothing where it allows it."""
    checks = (
        ("region", place.region, policy.regions),
        ("sovereignty class", place.sovereignty_class, policy.sovereignty_classes),
        ("retention", place.retention, policy.retentions),
        ("provider", place.name, policy.providers),
    )
    return [
        f"{policy.id}: {what} {value!r} is none of {', '.join(patterns)}"
        if value is not None
        else f"{policy.id}: its {what} is not told, and must be one of {', '.join(patterns)}"
        for what, value, patterns in checks
        if not _matches(value, patterns)
    ]


def binding_name(policies: Sequence[PolicySettings]) -> str | None:
    """What records call the policies of a call: the one that restricts, all of them where several do, joined by "+"."""
    if len(policies) < 2:
        return policies[0].id if policies else None
    restricting = [policy for policy in policies if _restricts(policy)] or list(policies[-1:])
    return "+".join(policy.id for policy in restricting)


def _restricts(policy: PolicySettings) -> bool:
    parts = (policy.regions, policy.sovereignty_classes, policy.retentions, policy.providers)
    return any(part and "*" not in part for part in parts)


def _matches(value: str | None, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return True
    return value is not None and any(fnmatchcase(value, pattern) for pattern in patterns)
