"""Whether an endpoint is worth asking: a circuit that opens on faults of its upstream, and closes by itself.

    closed ──faults──▶ open ──time──▶ half-open ──a good answer──▶ closed
                        ▲                 │ a fault: open again, twice as long
                        └─────────────────┘

Invariants: only what is the upstream's fault moves it towards open. A client's mistake, a call the client left and a defect of
ours change nothing, whichever state it is in; a trial that ends so is over, and the next call is the next trial. The time it
stays open is bounded. Nothing here reads a clock: every step is given the time, on a monotonic clock, in seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from strom.core.errors import InvalidAnswer, ProviderAuthError, ProviderError, RateLimited, StromError
from strom.upstreams.settings import HealthSettings

State = Literal["closed", "open", "half-open"]
Verdict = Literal["good", "fault", "refused-us", "busy", "neutral"]
COOLING_S = 1.0
"""For an upstream that says it is asked too often, and not for how long."""
MAX_NOTED = 1000
"""Ends that the window remembers at most."""
SPREAD = 0.2
"""An open time is drawn from this share around its length, so that processes do not try again all at once."""


def judge(error: StromError | None) -> Verdict:
    """What the end of an attempt says of its endpoint.

    An answer that is complete and not what was asked for (`InvalidAnswer`) is the model's matter, not the endpoint's.
    """
    match error:
        case None:
            return "good"
        case ProviderAuthError():
            return "refused-us"
        case RateLimited():
            return "busy"
        case InvalidAnswer():
            return "neutral"
        case ProviderError():
            return "fault"
        case _:
            return "neutral"


class Breaker:
    """`draw` gives numbers in [0, 1)."""

    __slots__ = (
        "_ends",
        "_faults_in_window",
        "_open_s",
        "_settings",
        "_trial",
        "cooling_until",
        "failures",
        "open_until",
    )

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._ends: deque[tuple[float, bool]] = deque()
        self._faults_in_window = 0
        self._open_s = 0.0  # the length of the last opening; 0: closed
        self._trial = False
        self.failures = 0
        """Faults in a row."""
        self.open_until = 0.0
        self.cooling_until = 0.0
        """When the upstream said it may be asked again."""

    def state(self, now: float) -> State:
        if not self._open_s:
            return "closed"
        return "open" if now < self.open_until else "half-open"

    def available(self, now: float) -> bool:
        """Whether a call should go here while there are others to go to. Half-open: one at a time."""
        if now < self.cooling_until:
            return False
        return not self._open_s or (now >= self.open_until and not self._trial)

    def ready_at(self, now: float) -> float:
        """When it can be asked again, as far as is known; `now` or earlier: at once."""
        return max(self.cooling_until, self.open_until if self._open_s else 0.0)

    def begin(self, now: float) -> bool:
        """A call is sent. Whether it is the trial of a half-open circuit; then its end is told to `end` as such."""
        if self._open_s and not self._trial and now >= self.open_until:
            self._trial = True
            return True
        return False

    def end(self, verdict: Verdict, now: float, *, trial: bool, retry_after_s: float | None, draw: float) -> None:
        if trial:
            self._trial = False
        match verdict:
            case "good":
                self._note(now, failed=False)
                self.failures = 0
                if trial or self.state(now) != "open":  # one sent before it opened proves nothing of now
                    self._open_s = 0.0
            case "fault" | "refused-us":
                self._note(now, failed=True)
                self.failures += 1
                self._cool(now, retry_after_s)
                self._consider(now, certain=verdict == "refused-us", trial=trial, draw=draw)
            case "busy":
                self._cool(now, retry_after_s if retry_after_s is not None else COOLING_S)
            case "neutral":
                pass

    def invite_trial(self, now: float) -> None:
        """A look at it went well: it may be tried at once."""
        self.open_until = min(self.open_until, now)

    def _consider(self, now: float, *, certain: bool, trial: bool, draw: float) -> None:
        settings = self._settings
        if self._open_s and not trial:
            return  # calls sent before it opened: known
        ended = len(self._ends)
        often = ended >= settings.window_calls and self._faults_in_window >= settings.failure_ratio * ended
        if trial or certain or often or self.failures >= settings.failures:
            longer = self._open_s * 2 if self._open_s else settings.open_s
            self._open_s = min(longer, settings.max_open_s)
            self.open_until = now + self._open_s * (1 - SPREAD + 2 * SPREAD * draw)

    def _cool(self, now: float, retry_after_s: float | None) -> None:
        if retry_after_s is not None:
            wait_s = min(max(0.0, retry_after_s), self._settings.max_open_s)
            self.cooling_until = max(self.cooling_until, now + wait_s)

    def _note(self, now: float, *, failed: bool) -> None:
        ends = self._ends
        ends.append((now, failed))
        self._faults_in_window += failed
        horizon = now - self._settings.window_s
        while ends[0][0] < horizon or len(ends) > MAX_NOTED:
            self._faults_in_window -= ends.popleft()[1]
