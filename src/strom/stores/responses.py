"""What a store of Responses offers: conversations and background responses that clients come back for.

Unlike records these hold message text: nothing lands here unless a client's request says (or leaves standing) `store: true`.
A response is found by its owner alone, under its id or the id of one of its items, until its retention is over; one that
runs does not age. The store is bounded in number and bytes: the oldest that do not run make room. Content that is gone is
overwritten, not only unlinked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec


class Place(NamedTuple):
    """Where a response is kept. `owner`: the name of the caller's key, "" for nobody."""

    owner: str
    id: str


class StoredResponse(msgspec.Struct, frozen=True):
    """`response`: the Response object. `input_items`: a JSON array, the whole conversation before it. Times in Unix seconds.

    `running_until`: for a background response under way, when it counts as lost unless its process renews it.
    """

    place: Place
    response: bytes
    input_items: bytes = b"[]"
    item_ids: tuple[str, ...] = ()
    """Ids under which clients may refer to its items."""
    created_at: float = 0.0
    background: bool = False
    running_until: float | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.response) + len(self.input_items)


class ResponseLimits(msgspec.Struct, frozen=True):
    retention_s: float = 3600.0
    max_count: int = 10_000
    max_bytes: int = 268_435_456


class Events(NamedTuple):
    """Part of a background response's stream. `first`: the number of its first event."""

    first: int
    frames: bytes


class ResponseStore(Protocol):
    """Synchronous and safe to call from any thread. Raises GatewayError when the store itself fails."""

    def put(self, stored: StoredResponse) -> bool:
        """Keep it, instead of an earlier state of the same. False: it is larger than the store may ever hold."""
        ...

    def get(self, place: Place) -> StoredResponse | None: ...

    def with_item(self, owner: str, item_id: str) -> StoredResponse | None:
        """The newest response that holds an item of this id."""
        ...

    def delete(self, place: Place) -> bool:
        """False: there was none."""
        ...

    def renew(self, places: Iterable[Place], running_until: float) -> None: ...

    def append_events(self, place: Place, events: Events) -> None:
        """More of its stream; for a response that is not there, nothing."""
        ...

    def events(self, place: Place, after: int = -1) -> list[Events]:
        """What holds the events with a number over `after`, in order; the first one may begin before it."""
        ...

    def ask_cancel(self, place: Place) -> None:
        """For the process that runs it, which asks with `unwanted`."""
        ...

    def unwanted(self, places: Iterable[Place]) -> set[Place]:
        """Those that someone asked to cancel, or that are gone."""
        ...

    def sweep(self) -> None:
        """Remove what is older than its retention. Every `put` does so too."""
        ...

    def close(self) -> None: ...
