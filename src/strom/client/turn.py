"""One request to a model: its attempts, its fallbacks, its clock. Signals in, canonical events and actions out.

    start ──▶ Send ──Sent, Responded, Received …──▶ over
                ▲        │ failed before a token
                └─ Pause ┘ (maybe Ask), or Send to the next candidate

Invariants: every attempt at a candidate sends the same bytes; after the first token-bearing event nothing is sent again;
the clock starts at the first dispatch and is never restarted here; after `over` nothing changes.
Source: streams.md sections 7 and 9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from strom.client.evidence import AttemptReport, RecoveryOutcome, RecoveryReport
from strom.client.patience import Patience
from strom.client.reader import ResponseReader
from strom.client.retry import Admission, Again, Failure, Retry, RetryEvent, Transition, judge, settle
from strom.client.signals import (
    Action,
    AdmissionRequest,
    Ask,
    BodyEnded,
    Broke,
    LetGo,
    Listen,
    Pause,
    Received,
    Responded,
    Send,
    Sent,
    Signal,
)
from strom.client.timing import StreamClock
from strom.core.errors import StromError
from strom.core.events import Completed, Event, Failed
from strom.core.fold import Fold
from strom.protocols.codec import Codec, ToolName
from strom.transport.types import OutgoingRequest
from strom.upstreams.upstream import Upstream


class Candidate(msgspec.Struct, frozen=True):
    """An upstream to ask, and the very bytes to ask it with. `local`: see retry.Failure."""

    model: str
    upstream: Upstream
    codec: Codec
    request: OutgoingRequest
    names: dict[str, ToolName] = {}
    dropped: tuple[str, ...] = ()
    local: bool = False
    streams: bool = True


class Turn:
    """`over` once a terminal event came; `error` is None after a proven end."""

    __slots__ = (
        "_actions",
        "_at",
        "_attempt",
        "_candidates",
        "_correlation_id",
        "_delay_s",
        "_first_failed_at",
        "_last_at",
        "_patience",
        "_retry",
        "attempts",
        "candidate",
        "clock",
        "error",
        "fold",
        "over",
        "reader",
        "recovery",
        "refused",
    )  # fmt: skip

    def __init__(
        self, candidates: tuple[Candidate, ...], retry: Retry | None, correlation_id: str, before: Iterable[Action] = ()
    ) -> None:
        """`before`: actions that the turn before this one left."""
        self._candidates = deque(candidates)
        self._retry = retry
        self._correlation_id = correlation_id
        self._actions: deque[Action] = deque(before)
        self._attempt = 0
        self._at: float | None = None
        self._last_at = 0.0
        self._delay_s = 0.0
        self._first_failed_at: float | None = None
        self.clock = StreamClock()
        self.attempts: list[AttemptReport] = []
        self.recovery: RecoveryReport | None = None
        self.error: StromError | None = None
        self.refused = False
        self.over = False
        self.candidate = self._candidates.popleft()
        self._begin()

    # -- for whoever drives it

    @property
    def has_actions(self) -> bool:
        return bool(self._actions)

    def take_actions(self) -> list[Action]:
        """What is still due."""
        due = list(self._actions)
        self._actions.clear()
        return due

    def next_action(self) -> Action:
        return self._actions.popleft() if self._actions else Listen(self._deadline())

    def take(self, signal: Signal) -> list[Event]:
        """The canonical events a signal brought; a terminal one only when it ends the turn.

        While an action is due, signals are of an exchange that is already given up."""
        if self.over or self._actions:
            return []
        if type(signal) is Received:  # nearly always
            return self._progress(signal.at, self.reader.feed(signal.data))
        match signal:
            case Sent(at):
                self._at = self._last_at = at
                self.clock.dispatch(at)
                self._patience.dispatched(at)
            case Responded(at, status, headers):
                self._last_at = self._patience.last_at = at
                self.reader.respond(status, headers)
            case BodyEnded(at):
                return self._progress(at, self.reader.end())
            case Broke(at, failure):
                return self._progress(at, self.reader.break_off(failure))
        return []

    def tick(self, now: float) -> list[Event]:
        """Time has passed without a signal."""
        if self.over or self._actions or now < self._deadline():
            return []
        error = self._patience.expired(self.candidate.upstream.name, now)
        if error is None:
            return []
        self.reader.refused = True
        return self._progress(now, [Failed(error)])

    def resumed(self, now: float) -> None:
        """The reader was slow, and the socket was not read: that is no silence of the upstream."""
        self._last_at = max(self._last_at, now)
        self._patience.paused_until(now)

    def admitted(self, answer: Admission) -> list[Event]:
        """What the admission callback said."""
        outcome = settle(answer)
        if outcome is None:
            self._repeat()
            return []
        return self._give_up(outcome, self.error or StromError("not admitted"), self._last_at)

    def go_on_from(self, clock: StreamClock) -> None:
        """This request stands in for one that was refused: its clock runs on."""
        clock.ended_at = None
        self.clock = clock
        self._patience = Patience(self.candidate.upstream.timeouts, clock)

    def stop(self, at: float, outcome: str = "cancelled") -> None:
        """Cancelled, closed or broken off: the exchange is let go, the clock stands, nothing follows."""
        if self.over:
            return
        self._report(outcome, at)
        self._settle(at, whole=False)
        self._actions.clear()
        self._actions.append(LetGo(whole=False))
        if self._retry is not None and outcome == "cancelled":
            self.recovery = RecoveryReport("cancelled", self._attempt)

    # -- inside

    def _begin(self) -> None:
        candidate = self.candidate
        self._attempt += 1
        self._at = None
        self.error = None
        self.fold = Fold()
        self.reader = ResponseReader(
            candidate.codec,
            candidate.upstream.quirks,
            candidate.upstream.name,
            candidate.names,
            streams=candidate.streams,
        )
        upstream = candidate.upstream
        self._patience = Patience(upstream.timeouts, self.clock)
        self._actions.append(Send(upstream.origin, candidate.request, upstream.timeouts.connect_s))

    def _deadline(self) -> float:
        return self._patience.deadline()

    def _progress(self, at: float, events: list[Event]) -> list[Event]:
        if not events:
            return events
        self._last_at = at
        self.clock.observe(at, events)
        patience = self._patience
        patience.last_at = at
        if patience.floor:
            patience.count(at, events)
        self.fold.feed(events)
        last = events[-1]
        if type(last) is Completed:
            self._report("ok", at)
            if self._retry is not None:
                self.recovery = RecoveryReport("succeeded", self._attempt)
            self._tell("attempt_succeeded")
            self._settle(at, whole=True)
        elif type(last) is Failed:
            end = self._failed(at, last.error)
            return events[:-1] + end if end else []  # of an attempt that is repeated nobody has seen anything
        return events

    def _failed(self, at: float, error: StromError) -> list[Event]:
        redact = self.candidate.upstream.redact
        error.message = redact(error.message)
        error.args = (error.message,)  # what str and repr show
        error.detail = redact(error.detail) if error.detail else None
        self.error, self.refused = error, self.reader.refused
        if self._first_failed_at is None:
            self._first_failed_at = at
        self._report(error.code, at)
        self._tell("attempt_failed", code=error.code)
        self._actions.append(LetGo(whole=False))
        if self._retry is None:
            return self._give_up(None, error, at)
        verdict = judge(self._retry, self._describe(at, error, self._first_failed_at))
        if not isinstance(verdict, Again):
            return self._give_up(verdict.outcome, error, at)
        self._delay_s = verdict.delay_s
        if verdict.ask:
            self._tell("admission_pending")
            self._actions.append(Ask(self._question(error)))
        else:
            self._repeat()
        return []

    def _describe(self, at: float, error: StromError, first_failed_at: float) -> Failure:
        reader = self.reader
        return Failure(
            error=error,
            status=reader.status,
            headers=reader.headers,
            refused=reader.refused,
            unsent=reader.unsent,
            token_seen=self.clock.first_kind is not None,
            local=self.candidate.local,
            attempt=self._attempt,
            first_failed_at=first_failed_at,
            at=at,
        )

    def _question(self, error: StromError) -> AdmissionRequest:
        name, model = self.candidate.upstream.name, self.candidate.model
        delivered = not self.reader.unsent
        return AdmissionRequest(self._correlation_id, name, model, self._attempt, error, delivered)

    def _repeat(self) -> None:
        self._tell("delay_scheduled", delay_s=self._delay_s)
        self._actions.append(Pause(self._delay_s))
        self._begin()
        self._tell("retry_started")

    def _give_up(self, outcome: RecoveryOutcome | None, error: StromError, at: float) -> list[Event]:
        """This candidate is out: the next one, if no token came and another may do better; else the end."""
        if self._candidates and error.retryable and self.clock.first_kind is None:
            self.candidate = self._candidates.popleft()
            self._attempt = 0
            self._first_failed_at = None
            self._begin()
            self._tell("fallback_started")
            return []
        if outcome is not None:
            self.recovery = RecoveryReport(outcome, self._attempt)
        self.error = error
        self._settle(at, whole=False)
        return [Failed(error)]

    def _settle(self, at: float, *, whole: bool) -> None:
        self.clock.end(at)
        self.over = True
        if whole:
            self._actions.append(LetGo(whole=True))

    def _report(self, outcome: str, at: float) -> None:
        ms = None if self._at is None else max(0.0, (at - self._at) * 1000.0)
        name = self.candidate.upstream.name
        self.attempts.append(AttemptReport(name, self.candidate.model, outcome, ms, self.reader.status))

    def _tell(self, transition: Transition, *, code: str = "", delay_s: float | None = None) -> None:
        if self._retry is not None and self._retry.observer is not None:
            name = self.candidate.upstream.name
            event = RetryEvent(transition, self._correlation_id, name, self._attempt, code, delay_s)
            self._retry.observer(event)
