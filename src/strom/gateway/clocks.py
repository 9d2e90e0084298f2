"""How long a call waits for its upstream, and what it says when it has waited too long.

Pure functions over what the call has seen; the timer itself is the call's. Rules: streams.md sections 7 and 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.core.errors import StromError, TimedOut

if TYPE_CHECKING:
    from strom.gateway.call import Call

REFUSAL_BODY_S = 10.0
"""How long an upstream may take to send the body of an error whose status is known already."""


def upstream_deadline(call: Call) -> float:
    """When the patience with the attempt under way ends, on the call's clock."""
    attempt = call.attempt
    assert attempt is not None
    timeouts = attempt.endpoint.upstream.timeouts
    if attempt.refused_at is not None:
        return attempt.refused_at + REFUSAL_BODY_S
    if not attempt.shows_progress:
        return attempt.started_at + timeouts.first_token_s * call.settings.whole_reply_factor
    if call.first_token_at is None:
        return attempt.started_at + timeouts.first_token_s
    return call.last_frame_at + timeouts.idle_s


def time_out_error(call: Call) -> StromError:
    """Why the attempt is given up: its deadline has passed."""
    attempt = call.attempt
    assert attempt is not None
    if attempt.refused_at is not None:
        return attempt.refusal()
    name, timeouts = attempt.endpoint.upstream.name, attempt.endpoint.upstream.timeouts
    if call.first_token_at is not None:
        return TimedOut(f"The backend {name!r} was silent for {timeouts.idle_s:g} s in the middle of its answer.")
    if attempt.shows_progress:
        return TimedOut(f"The backend {name!r} gave no token within {timeouts.first_token_s:g} s.")
    limit = timeouts.first_token_s * call.settings.whole_reply_factor
    return TimedOut(f"The backend {name!r} gave no reply within {limit:g} s; a streamed request shows progress sooner.")
