"""How long a turn waits for its upstream, and what it says when it has waited too long. Clocks: upstreams/timeouts.py."""

from __future__ import annotations

from strom.client.timing import StreamClock
from strom.core.errors import StromError
from strom.core.events import Event
from strom.core.evidence import TOKENS
from strom.upstreams.timeouts import Timeouts, no_first_token, silent, too_long, too_slow


class Patience:
    """Of one attempt. Times on the clock of whoever drives the turn, in seconds."""

    __slots__ = (
        "_characters",
        "_clock",
        "_dispatched_at",
        "_window_at",
        "_window_from",
        "floor",
        "last_at",
        "timeouts",
    )

    def __init__(self, timeouts: Timeouts, clock: StreamClock) -> None:
        self.timeouts = timeouts
        self.last_at = 0.0
        """When the upstream showed a sign of progress last."""
        self._clock = clock
        self._dispatched_at: float | None = None
        self.floor = timeouts.min_chars_per_s
        self._characters = self._window_from = 0
        self._window_at = 0.0

    def dispatched(self, at: float) -> None:
        self._dispatched_at = self.last_at = self._window_at = at

    def count(self, at: float, events: list[Event]) -> None:
        """Needed where there is a floor, and only there."""
        if not self._characters:
            self._window_at = at
        for event in events:
            if type(event) in TOKENS:
                self._characters += len(event.text)  # type: ignore[union-attr]  # TOKENS lists events with text

    def paused_until(self, now: float) -> None:
        """The reader was slow, and the socket was not read: that is no silence of the upstream."""
        self.last_at = self._window_at = max(self.last_at, now)
        self._window_from = self._characters

    def deadline(self) -> float:
        """When to look at the clocks again."""
        if self._dispatched_at is None:
            return float("inf")
        due = self._progress_deadline(self._dispatched_at)
        started_at = self._clock.dispatched_at
        if self.timeouts.total_s is not None and started_at is not None:
            due = min(due, started_at + self.timeouts.total_s)
        if self._characters:
            due = min(due, self._window_at + self.timeouts.throughput_window_s)
        return due

    def expired(self, name: str, now: float) -> StromError | None:
        """Why the attempt at the upstream of that name is given up; None: it may go on."""
        timeouts, started_at = self.timeouts, self._clock.dispatched_at
        if self._dispatched_at is None:
            return None
        if timeouts.total_s is not None and started_at is not None and now >= started_at + timeouts.total_s:
            return too_long(timeouts.total_s)
        if now >= self._progress_deadline(self._dispatched_at):
            waits_for_first = self._clock.first_kind is None
            return no_first_token(name, timeouts) if waits_for_first else silent(name, timeouts)
        return self._too_slow(name, now)

    def _progress_deadline(self, dispatched_at: float) -> float:
        if self._clock.first_kind is None:
            return dispatched_at + self.timeouts.first_token_s
        return self.last_at + self.timeouts.idle_s

    def _too_slow(self, name: str, now: float) -> StromError | None:
        if not self._characters or now < self._window_at + self.timeouts.throughput_window_s:
            return None
        rate = (self._characters - self._window_from) / (now - self._window_at)
        self._window_at, self._window_from = now, self._characters
        if rate >= self.floor:
            return None
        return too_slow(name, rate, self.timeouts)
