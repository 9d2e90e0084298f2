"""Who may call what: policies and keys as plain data, for whoever enforces them.

Patterns are shell patterns (`fnmatch.fnmatchcase`); an empty tuple restricts nothing. A key is kept as its SHA-256, never in
the clear. Product reference: product.md section 4, `[[policies]]` and `[[keys]]`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
PerMinute = Annotated[int, msgspec.Meta(ge=1, le=10**18)]
Patterns = Annotated[
    tuple[str, ...],
    msgspec.Meta(min_length=1, description="a list of patterns, not an empty one: leave it out for no restriction"),
]
"""An empty list may mean nothing as well as everything, so nobody may write one."""
Currency = Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$", description="three capital letters, like EUR")]


class Budget(msgspec.Struct, frozen=True):
    amount: Annotated[float, msgspec.Meta(gt=0, le=1_000_000_000)]
    currency: Currency
    per: Literal["day", "week", "month"] = "month"


class Limits(msgspec.Struct, frozen=True):
    """None: no limit of that kind."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    concurrent: PerMinute | None = None
    budget: Budget | None = None


NO_LIMITS = Limits()


class PolicySettings(msgspec.Struct, frozen=True):
    """What an endpoint must be to serve a call. An endpoint that does not tell a property satisfies no pattern on it."""

    id: Annotated[str, msgspec.Meta(min_length=1, description="text that is not empty")]
    regions: Patterns = ()
    sovereignty_classes: Patterns = ()
    retentions: Patterns = ()
    providers: Patterns = ()
    """Names of `[[providers]]`."""


class KeySettings(msgspec.Struct, frozen=True):
    """A key that clients present. `models`: patterns of the names it may ask for; `policy`: id of a policy, or None.

    `routes`: patterns of the paths it may ask. `name` is what records, budgets and stored responses go by: it stays the same
    while the secret is rotated.
    """

    name: str
    sha256: str
    """Lower-case hex."""
    policy: str | None = None
    models: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    admin: bool = False
    routes: tuple[str, ...] = ()
    may_pin_endpoint: bool = False
    """Whether `x-strom-endpoint` may choose where its calls go."""
    expires_at: float | None = None
    """Unix seconds; from then on the key is refused."""
    disabled: bool = False
    id: str = ""
    """Of a managed key; "" for one of the configuration."""
