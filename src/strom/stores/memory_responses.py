"""Responses in memory: forgotten when the process ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from strom.stores.responses import Events, Place, ResponseLimits, StoredResponse


class _Entry:
    __slots__ = ("cancel", "events", "size_bytes", "stored")

    def __init__(self, stored: StoredResponse) -> None:
        self.stored = stored
        self.events: list[Events] = []
        self.size_bytes = stored.size_bytes
        self.cancel = False


class MemoryResponses:
    """A ResponseStore. The order of `_entries` is that of age."""

    def __init__(self, limits: ResponseLimits, wall: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._wall = wall
        self._lock = threading.Lock()
        self._entries: dict[Place, _Entry] = {}
        self._items: dict[tuple[str, str], list[Place]] = {}
        self._size_bytes = 0

    def put(self, stored: StoredResponse) -> bool:
        if stored.size_bytes > self._limits.max_bytes:
            return False
        with self._lock:
            entry = self._entries.get(stored.place)
            if entry is None:
                entry = self._entries[stored.place] = _Entry(stored)
                self._size_bytes += entry.size_bytes
            else:
                self._forget_items(entry.stored)
                self._grow(entry, stored.size_bytes - entry.stored.size_bytes)
                entry.stored = stored
            for item_id in stored.item_ids:
                self._items.setdefault((stored.place.owner, item_id), []).append(stored.place)
            self._make_room(stored.place)
        return True

    def get(self, place: Place) -> StoredResponse | None:
        with self._lock:
            entry = self._entries.get(place)
            return None if entry is None or self._is_old(entry) else entry.stored

    def with_item(self, owner: str, item_id: str) -> StoredResponse | None:
        with self._lock:
            entries = [self._entries[place] for place in self._items.get((owner, item_id), ())]
            return next((entry.stored for entry in reversed(entries) if not self._is_old(entry)), None)

    def delete(self, place: Place) -> bool:
        with self._lock:
            entry = self._entries.get(place)
            there = entry is not None and not self._is_old(entry)
            self._remove(place)
            return there

    def renew(self, places: Iterable[Place], running_until: float) -> None:
        with self._lock:
            for place in places:
                entry = self._entries.get(place)
                if entry is not None and entry.stored.running_until is not None:
                    entry.stored = msgspec.structs.replace(entry.stored, running_until=running_until)

    def append_events(self, place: Place, events: Events) -> None:
        with self._lock:
            entry = self._entries.get(place)
            if entry is not None:
                entry.events.append(events)
                self._grow(entry, len(events.frames))
                self._make_room(place)

    def events(self, place: Place, after: int = -1) -> list[Events]:
        with self._lock:
            entry = self._entries.get(place)
            batches = list(entry.events) if entry is not None else []
        begun = [number for number, batch in enumerate(batches) if batch.first <= after + 1]
        return batches[begun[-1] if begun else 0 :]

    def ask_cancel(self, place: Place) -> None:
        with self._lock:
            if place in self._entries:
                self._entries[place].cancel = True

    def unwanted(self, places: Iterable[Place]) -> set[Place]:
        with self._lock:
            return {place for place in places if (entry := self._entries.get(place)) is None or entry.cancel}

    def sweep(self) -> None:
        with self._lock:
            for place, entry in list(self._entries.items()):
                if self._is_old(entry):
                    self._remove(place)

    def close(self) -> None:
        with self._lock:
            self._entries.clear()
            self._items.clear()
            self._size_bytes = 0

    # -- under the lock --

    def _is_old(self, entry: _Entry) -> bool:
        """A running one does not age before it counts as lost."""
        stored, now = entry.stored, self._wall()
        return max(stored.created_at, stored.running_until or 0) + self._limits.retention_s <= now

    def _make_room(self, newest: Place) -> None:
        limits, now = self._limits, self._wall()
        for place, entry in list(self._entries.items()):
            full = len(self._entries) > limits.max_count or self._size_bytes > limits.max_bytes
            runs = entry.stored.running_until is not None and entry.stored.running_until > now
            if self._is_old(entry) or (full and not runs and place != newest):
                self._remove(place)
            elif not full:
                return

    def _grow(self, entry: _Entry, size_bytes: int) -> None:
        entry.size_bytes += size_bytes
        self._size_bytes += size_bytes

    def _remove(self, place: Place) -> None:
        entry = self._entries.pop(place, None)
        if entry is not None:
            self._size_bytes -= entry.size_bytes
            self._forget_items(entry.stored)

    def _forget_items(self, stored: StoredResponse) -> None:
        for item_id in stored.item_ids:
            places = self._items.get((stored.place.owner, item_id), [])
            if stored.place in places:
                places.remove(stored.place)
            if not places:
                self._items.pop((stored.place.owner, item_id), None)
