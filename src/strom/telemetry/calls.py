"""Counts calls: an observer of final records.

Labels are resolved once for each combination; after that a call costs a look-up and some additions (a few µs). What is counted
is what the record says; what it does not know is not counted.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

import msgspec

from strom.core.record import Attempt, CallRecord
from strom.telemetry import families as f
from strom.telemetry.cells import Cells
from strom.telemetry.model_names import NONE, OTHER, ModelNames

MAX_KNOWN = 4096
"""Combinations kept at hand. Beyond it all are forgotten and found again: their counts stay."""
MAX_CODES = 100
"""Error codes that have a series of their own; codes of backends are not ours to bound."""

_Key = tuple[str, str, str | None, str | None, str | None, str | None, str | None, int | None]


class _Route(msgspec.Struct, frozen=True):
    """Places of the series of one model at one endpoint."""

    labels: f.Labels
    input: int
    output: int
    cached: int
    reasoning: int
    sent_bytes: int
    first_token: int
    duration: int
    gap: int


class _Outcome(msgspec.Struct, frozen=True):
    calls: int
    route: _Route


class CallMetrics:
    """`begin` and `observe` raise nothing and return at once. `wall` gives Unix seconds, as in the records."""

    def __init__(self, cells: Cells, names: ModelNames, wall: Callable[[], float] = time.time) -> None:
        self._cells = cells
        self._values = cells.values
        self._names = names
        self._wall = wall
        self._overhead = cells.place(f.OVERHEAD)
        self.forget()
        self._codes: set[str] = set()

    def forget(self) -> None:
        """Names may mean something else now: the configuration has changed. Counts stay."""
        self._outcomes: dict[_Key, _Outcome] = {}
        self._routes: dict[f.Labels, _Route] = {}
        self._attempts: dict[tuple[str, str], int] = {}

    def begin(self, record: CallRecord) -> None:
        """Right before the first dispatch."""
        own_s = self._wall() - record.started_at
        values, at = self._values, self._overhead
        values[at + bisect_left(f.OVERHEAD_BUCKETS_S, own_s)] += 1
        if own_s > 0:  # a clock that was set back
            values[at + _OVERHEAD_SUM] += own_s

    def observe(self, record: CallRecord) -> None:
        key = (
            record.status, record.protocol_in, record.protocol_out, record.model_requested,
            record.provider, record.endpoint_id, record.fault, record.http_status,
        )  # fmt: skip
        outcome = self._outcomes.get(key) or self._outcome(key, record)
        values, route = self._values, outcome.route
        values[outcome.calls] += 1
        values[route.sent_bytes] += record.bytes_out
        usage = record.usage
        if usage.input_tokens is not None:
            values[route.input] += usage.input_tokens
        if usage.output_tokens is not None:
            values[route.output] += usage.output_tokens
        if usage.cached_tokens:
            values[route.cached] += usage.cached_tokens
        if usage.reasoning_tokens:
            values[route.reasoning] += usage.reasoning_tokens
        if record.timing.request_duration_ms is not None:
            self._observe_times(record, route)
        attempts = record.attempts
        if attempts:
            self._count_attempt(attempts[-1])
            if len(attempts) > 1:
                self._count_earlier(record, route.labels[0])
        if record.error is not None:
            self._count_error(record.fault or NONE, record.error.code)
        if record.cost_estimate is not None:
            cost = record.cost_estimate
            values[self._cells.place(f.COST, (cost.currency, *route.labels))] += cost.amount

    def _observe_times(self, record: CallRecord, route: _Route) -> None:
        values, timing = self._values, record.timing
        duration_ms, first_ms = timing.request_duration_ms, timing.time_to_first_token_ms
        assert duration_ms is not None
        duration_s = duration_ms / 1000.0
        values[route.duration + bisect_left(f.DURATION_BUCKETS_S, duration_s)] += 1
        values[route.duration + _DURATION_SUM] += duration_s
        if first_ms is None or not record.streamed:
            return
        first_s = first_ms / 1000.0
        values[route.first_token + bisect_left(f.FIRST_TOKEN_BUCKETS_S, first_s)] += 1
        values[route.first_token + _FIRST_TOKEN_SUM] += first_s
        if record.deltas > 1:
            gap_s = (duration_s - first_s) / (record.deltas - 1)
            values[route.gap + bisect_left(f.GAP_BUCKETS_S, gap_s)] += 1
            values[route.gap + _GAP_SUM] += gap_s

    def _count_attempt(self, attempt: Attempt) -> None:
        key = (attempt.endpoint_id, attempt.outcome)
        place = self._attempts.get(key)
        if place is None:
            place = self._attempts[key] = self._cells.place(f.ATTEMPTS, key)
        self._values[place] += 1

    def _count_earlier(self, record: CallRecord, model: str) -> None:
        """The attempts before the last."""
        for earlier, later in pairwise(record.attempts):
            self._count_attempt(earlier)
            family = f.RETRIES if earlier.endpoint_id == later.endpoint_id else f.FALLBACKS
            self._values[self._cells.place(family, (model,))] += 1
        if record.continued:
            self._values[self._cells.place(f.CONTINUED, (model,))] += 1

    def _count_error(self, fault: str, code: str) -> None:
        if code not in self._codes:
            if len(self._codes) < MAX_CODES:
                self._codes.add(code[:100])
            code = code[:100] if code[:100] in self._codes else OTHER
        self._values[self._cells.place(f.ERRORS, (fault, code))] += 1

    def _outcome(self, key: _Key, record: CallRecord) -> _Outcome:
        status, protocol_in, protocol_out, _, provider, endpoint, fault, http_status = key
        model = self._names.label(record)
        route = self._route((model, provider or NONE, endpoint or NONE))
        http_class = f"{http_status // 100}xx" if http_status else NONE
        labels = (status, protocol_in, protocol_out or NONE, *route.labels, fault or NONE, http_class)
        outcome = _Outcome(self._cells.place(f.CALLS, labels), route)
        if model != OTHER:  # what is unknown now may be known by the next call, and is not worth remembering
            if len(self._outcomes) >= MAX_KNOWN:
                self._outcomes.clear()
            self._outcomes[key] = outcome
        return outcome

    def _route(self, labels: f.Labels) -> _Route:
        route = self._routes.get(labels)
        if route is None:
            place = self._cells.place
            tokens = [place(f.TOKENS, (kind, *labels)) for kind in ("input", "output", "cached", "reasoning")]
            others = [place(family, labels) for family in (f.BYTES, f.FIRST_TOKEN, f.DURATION, f.GAP)]
            route = self._routes[labels] = _Route(labels, *tokens, *others)
        return route


_OVERHEAD_SUM = f.OVERHEAD.size - 1
_DURATION_SUM = f.DURATION.size - 1
_FIRST_TOKEN_SUM = f.FIRST_TOKEN.size - 1
_GAP_SUM = f.GAP.size - 1
