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
    """Ends are told without their beginnings: what ends while the circuit is half-open counts as its trial.

    Calls that were sent before may end so, too. A good end of theirs is as much a proof, and their fault as much a warning.
    """

    __slots__ = (
        "_ends",
        "_faults_in_window",
        "_open_s",
        "_trial_at",
        "cooling_until",
        "failures",
        "open_until",
        "settings",
    )

    def __init__(self, settings: HealthSettings) -> None:
        self.settings = settings
        self._ends: deque[tuple[float, bool]] = deque()
        self._faults_in_window = 0
        self._open_s = 0.0  # the length of the last opening; 0: closed
        self._trial_at: float | None = None
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
        """Whether a call should go here while there are others to go to."""
        if now < self.cooling_until:
            return False
        return not self._open_s or (now >= self.open_until and self._trial_is_free(now))

    def ready_at(self) -> float:
        """When it can be asked again, as far as is known. In the past: at once."""
        return max(self.cooling_until, self.open_until if self._open_s else 0.0)

    def begin(self, now: float) -> None:
        """A call is sent."""
        if self._open_s and now >= self.open_until and self._trial_is_free(now):
            self._trial_at = now

    def end(self, verdict: Verdict, now: float, *, retry_after_s: float | None, draw: float) -> None:
        """A call has ended. `draw`: a number in [0, 1)."""
        state = self.state(now)
        if state == "half-open":
            self._trial_at = None
        match verdict:
            case "good":
                self.end_well(now)
            case "fault" | "refused-us":
                self._note(now, failed=True)
                self.failures += 1
                self._cool(now, retry_after_s)
                if state == "half-open" or (state == "closed" and self._is_broken(verdict)):
                    self._open(now, draw)
            case "busy":
                self._cool(now, retry_after_s if retry_after_s is not None else COOLING_S)
            case "neutral":
                pass

    def end_well(self, now: float) -> None:
        """What nearly every end is."""
        self._trial_at = None
        self.failures = 0
        self._note(now, failed=False)
        if self._open_s:
            if now < self.open_until:
                self.invite_trial(now)
            else:
                self._open_s = 0.0

    def invite_trial(self, now: float) -> None:
        """There is a sign of life: it may be tried at once."""
        self.open_until = min(self.open_until, now)

    def _open(self, now: float, draw: float) -> None:
        longer = self._open_s * 2 if self._open_s else self.settings.open_s
        self._open_s = min(longer, self.settings.max_open_s)
        self.open_until = now + self._open_s * (1 - SPREAD + 2 * SPREAD * draw)

    def _is_broken(self, verdict: Verdict) -> bool:
        """Refused credentials are refused again: there is nothing to wait for."""
        settings, ended = self.settings, len(self._ends)
        often = ended >= settings.window_calls and self._faults_in_window >= settings.failure_ratio * ended
        return often or verdict == "refused-us" or self.failures >= settings.failures

    def _trial_is_free(self, now: float) -> bool:
        """A trial that takes longer than the circuit was open bars the way for no others."""
        return self._trial_at is None or now - self._trial_at >= self._open_s

    def _cool(self, now: float, retry_after_s: float | None) -> None:
        if retry_after_s is not None:
            wait_s = min(max(0.0, retry_after_s), self.settings.max_open_s)
            self.cooling_until = max(self.cooling_until, now + wait_s)

    def _note(self, now: float, *, failed: bool) -> None:
        ends = self._ends
        ends.append((now, failed))
        self._faults_in_window += failed
        horizon = now - self.settings.window_s
        while ends[0][0] < horizon or len(ends) > MAX_NOTED:
            self._faults_in_window -= ends.popleft()[1]
