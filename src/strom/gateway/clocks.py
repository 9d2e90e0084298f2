"""How long a call waits for its upstream, and what it says when it has waited too long.

connect      the transport's own (failures.py words it)
first token  from the dispatch of an attempt to its first token-bearing frame
idle         between frames that show progress; heartbeats show none
throughput   characters of output in a window, from the first token on
total        from the first dispatch of the call, retries and continuations included; the only one that runs on while the
             client is slow

Pure functions over what the call has seen; the timer itself is the call's. Rules: streams.md sections 7 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.core.errors import Cancelled, StromError, TimedOut
from strom.upstreams.timeouts import no_first_token, silent, too_long, too_slow

if TYPE_CHECKING:
    from strom.gateway.attempt import UpstreamAttempt
    from strom.gateway.call import Call

REFUSAL_BODY_S = 10.0
"""How long an upstream may take to send the body of an error whose status is known already."""


def upstream_deadline(call: Call, attempt: UpstreamAttempt) -> float:
    """When something has to be looked at, on the call's clock: the earliest of the clocks that run."""
    timeouts = attempt.timeouts
    due = _progress_deadline(call, attempt)
    if timeouts.total_s is not None and call.dispatched_at is not None:
        due = min(due, call.dispatched_at + timeouts.total_s)
    if timeouts.min_chars_per_s and call.first_token_at is not None:
        due = min(due, call.window_at + timeouts.throughput_window_s)
    return due


def _progress_deadline(call: Call, attempt: UpstreamAttempt) -> float:
    if attempt.waits:
        return float("inf")  # the time of a queue is not the backend's, and ends by itself
    if attempt.refused_at is not None:
        return attempt.refused_at + REFUSAL_BODY_S
    first_token_s = attempt.timeouts.first_token_s
    if not attempt.shows_progress:
        return attempt.started_at + first_token_s * call.settings.whole_reply_factor
    if attempt.evidence.deltas <= attempt.inherited:
        return attempt.started_at + first_token_s
    return call.last_frame_at + attempt.timeouts.idle_s


def expired(call: Call, attempt: UpstreamAttempt, now: float) -> StromError | None:
    """Why the attempt is given up at `now`; None: it may go on. Begins the next throughput window when one is over."""
    timeouts = attempt.timeouts
    if timeouts.total_s is not None and call.dispatched_at is not None and now >= call.dispatched_at + timeouts.total_s:
        return too_long(timeouts.total_s)
    if call.exchange.paused:
        return None
    if _progress_deadline(call, attempt) <= now:
        return _no_progress(call, attempt)
    if not timeouts.min_chars_per_s or call.first_token_at is None:
        return None
    if now < call.window_at + timeouts.throughput_window_s:
        return None
    written = attempt.evidence.output_characters
    rate = (written - call.window_chars) / (now - call.window_at)
    call.window_at, call.window_chars = now, written
    if rate >= timeouts.min_chars_per_s:
        return None
    return too_slow(_name(attempt), rate, timeouts)


def _no_progress(call: Call, attempt: UpstreamAttempt) -> StromError:
    if attempt.refused_at is not None:
        return attempt.refusal()
    name, timeouts = _name(attempt), attempt.timeouts
    if attempt.evidence.deltas > attempt.inherited:
        return silent(name, timeouts)
    if attempt.shows_progress:
        return no_first_token(name, timeouts)
    limit = timeouts.first_token_s * call.settings.whole_reply_factor
    message = f"{name} gave no reply within {limit:g} s; a streamed request shows progress sooner."
    return TimedOut(message, code="first_token_timeout")


def _name(attempt: UpstreamAttempt) -> str:
    return f"The backend {attempt.endpoint.upstream.name!r}"


def is_unread(call: Call, now: float) -> bool:
    """Whether the client has left what waits for it unread for as long as it may."""
    since = call.paused_at
    return call.exchange.paused and since is not None and now - since >= call.settings.slow_reader_s


def departure(call: Call) -> Cancelled:
    """What the record says of a client that is gone. A transport may lose patience with a reader before the call does."""
    if is_unread(call, call.now()):
        seconds = call.settings.slow_reader_s
        return Cancelled(f"The client left its answer unread for {seconds:g} s and was dropped.", code="slow_reader")
    return Cancelled("The client left.")
