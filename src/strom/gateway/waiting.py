"""An attempt that waits before it is sent: for a place at its endpoint, or for the time of a retry.

Nothing is dispatched yet, so no clock of the backend runs. The client gets heartbeats when they are due, which tell the place.
In Chat and Messages they are comments, which leave the stream unopened for any kind of attempt; Responses and Ollama have none
that keep clients patient, so theirs are the encoder's own (streams.md section 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.gateway.queue import Place
from strom.gateway.unsent import Unsent
from strom.protocols.codec import StreamEncoder
from strom.transport.timers import Clock

if TYPE_CHECKING:
    from strom.gateway.attempt import UpstreamAttempt
    from strom.gateway.call import Call

COMMENTED = frozenset(("openai-chat", "anthropic"))
"""Protocols whose streams may begin with a comment."""


class Rest(Unsent):
    """The time before a retry. Stands for the exchange, as a place does."""

    def __init__(self, clock: Clock, delay_s: float, call: Call, attempt: UpstreamAttempt) -> None:
        self._timer = clock.call_at(clock.time() + delay_s, lambda: attempt.guarded(lambda: call.wake(attempt, None)))

    def abort(self) -> None:
        self._timer.cancel()


def rest(call: Call, attempt: UpstreamAttempt, delay_s: float) -> None:
    """`call.wake` is called after `delay_s`, unless the attempt is closed before."""
    attempt.waits = True
    attempt.exchange = Rest(call.services.clock, delay_s, call, attempt)


def must_queue(call: Call, attempt: UpstreamAttempt) -> bool:
    """Whether the attempt has to wait for a place: `call.wake` is called when it has one. Raises Overloaded."""
    if attempt.endpoint.max_concurrent is None or attempt.place is not None:
        return False
    place = call.services.queues.enter(
        attempt.endpoint, lambda error: attempt.guarded(lambda: call.wake(attempt, error))
    )
    attempt.place = place
    if place.granted:
        return False
    attempt.waits = True
    attempt.exchange = place
    return True


def waiting_beat(place: Place | None, encoder: StreamEncoder | None) -> bytes:
    """`encoder` None: the protocol has comments."""
    number = place.number if place is not None else 0
    if encoder is None:
        return b": queued, place %d\n\n" % number if number else b": waiting\n\n"
    beat = encoder.heartbeat()
    if number and beat.startswith(b"event:") and beat.endswith(b"}\n\n"):
        return beat[:-3] + b',"place":%d}\n\n' % number
    return beat
