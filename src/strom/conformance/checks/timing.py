"""What only a clock shows: whether tokens leave as they are made, and whether work stops when the client leaves.

Whether a server goes on generating cannot be seen from outside. What can be seen is how long the next short request waits,
against the same request before: a server with free places may hide that it goes on.
"""

from __future__ import annotations

import itertools
import statistics

from strom.conformance.asking import Capture
from strom.conformance.checks.findings import failed, passed, skipped
from strom.conformance.dialects.dialect import SHORT, Ask
from strom.conformance.report import Finding, Timing
from strom.conformance.session import PLAIN, Answer, NotJudged, Session

_LONG = Ask(max_tokens=1024)
_BRIEF = Ask(prompt=SHORT, max_tokens=16)
_BURST_MS = 5.0
_MIN_TOKENS = 8
_MIN_DURATION_MS = 500.0
_GRACE_MS = 1000.0
"""What may be on top of three times the baseline: servers take up to a second to notice (recordings, case abort)."""


async def flow(session: Session) -> Finding:
    """Tokens that took long to make and then come all at once were held back."""
    answer = await session.good_stream(PLAIN)
    times = [token.at_ms for token in answer.reading.tokens]
    if len(times) < _MIN_TOKENS:
        return skipped(f"only {len(times)} deltas")
    timing = measure(answer)
    at_once = times[-1] - times[0] < _BURST_MS
    if at_once and answer.capture.duration_ms >= _MIN_DURATION_MS:
        return failed(f"{len(times)} deltas came at once, after {times[0]:.0f} ms")
    if timing is None or timing.median_gap_ms is None:
        return passed(f"first token after {times[0]:.0f} ms, all {len(times)} deltas in one read")
    gaps = f"gaps of {timing.median_gap_ms:.0f} ms (longest {timing.longest_gap_ms:.0f})"
    beats = f", {timing.heartbeats} heartbeats" if timing.heartbeats else ""
    return passed(f"first token after {times[0]:.0f} ms, {gaps}{beats}")


async def cancelled_stream(session: Session) -> Finding:
    baseline_ms = await _baseline(session)
    body = session.body(_LONG, stream=True)
    capture = await session.post(session.dialect.path, body, leave=lambda seen: len(seen.reads) >= 3)
    if capture.end != "left":
        return skipped(f"the answer was over before the client could leave ({capture.end})")
    return await _after_leaving(session, baseline_ms)


async def cancelled_whole(session: Session) -> Finding:
    baseline_ms = await _baseline(session)
    request = session.request("POST", session.dialect.path, session.body(_LONG, stream=False))
    capture = await session.endpoint.ask_for(request, 0.3 + baseline_ms / 1000)
    if capture.end != "timeout":
        return skipped(f"the answer was over before the client could leave ({capture.end})")
    return await _after_leaving(session, baseline_ms)


def measure(answer: Answer) -> Timing | None:
    """None without a token."""
    times = sorted({token.at_ms for token in answer.reading.tokens})
    if not times:
        return None
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return Timing(
        time_to_first_token_ms=round(times[0], 1),
        request_duration_ms=round(answer.capture.duration_ms, 1),
        median_gap_ms=round(statistics.median(gaps), 1) if gaps else None,
        longest_gap_ms=round(max(gaps), 1) if gaps else None,
        heartbeats=answer.reading.heartbeats,
    )


async def _baseline(session: Session) -> float:
    """Milliseconds of the slower of two short requests. Raises NotJudged when they are not answered."""
    return max([(await _brief(session)).duration_ms for _ in range(2)])


async def _brief(session: Session) -> Capture:
    capture = await session.post(session.dialect.path, session.body(_BRIEF, stream=False))
    if capture.status != 200:
        raise NotJudged(f"there is no baseline: a short request is answered with {capture.status}")
    return capture


async def _after_leaving(session: Session, baseline_ms: float) -> Finding:
    request = session.request("POST", session.dialect.path, session.body(_BRIEF, stream=False))
    capture = await session.endpoint.ask(request)
    if capture.end == "timeout":
        await session.endpoint.wait(request)
    seen = f"the next request took {capture.duration_ms:.0f} ms (before: {baseline_ms:.0f} ms)"
    if capture.status != 200 or capture.duration_ms > 3 * baseline_ms + _GRACE_MS:
        return failed(f"{seen}: generation seems to go on (an inference)")
    return passed(f"{seen} (an inference: parallel places may hide that generation goes on)")
