"""What goes into the core (signals) and what it asks for (actions). Plain data; the shells move it.

Signals carry the time at which they happened, taken where bytes are read, so that a slow reader does not spoil the timing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from strom.client.evidence import ToolCall
from strom.core.errors import StromError
from strom.transport.types import Headers, Origin, OutgoingRequest, TransportFailure

# --- in ------------------------------------------------------------------------------------------


class Sent(msgspec.Struct, frozen=True):
    """The request was handed to the transport."""

    at: float


class Responded(msgspec.Struct, frozen=True):
    at: float
    status: int
    headers: Headers


class Received(msgspec.Struct, frozen=True):
    """All of one read."""

    at: float
    data: bytes


class BodyEnded(msgspec.Struct, frozen=True):
    at: float


class Broke(msgspec.Struct, frozen=True):
    at: float
    failure: TransportFailure


Signal = Sent | Responded | Received | BodyEnded | Broke


# --- out -----------------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    """Hand this to the transport and report what it answers."""

    origin: Origin
    request: OutgoingRequest
    connect_timeout_s: float


class Listen(msgspec.Struct, frozen=True):
    """Wait for the next signal, until `deadline` (on the core's clock); then tell the time."""

    deadline: float


class Pause(msgspec.Struct, frozen=True):
    """Wait so long before going on; a cancellation comes through."""

    seconds: float


class AdmissionRequest(msgspec.Struct, frozen=True):
    """What an admission callback decides about: whether the same bytes may be sent again."""

    correlation_id: str
    provider: str
    model: str
    attempt: int
    """Number of the attempt that failed, from 1."""
    error: StromError
    delivered: bool
    """False: the request provably never reached the upstream."""


class Ask(msgspec.Struct, frozen=True):
    """Ask the admission callback."""

    request: AdmissionRequest


class LetGo(msgspec.Struct, frozen=True):
    """The exchange is of no more use. `whole`: its answer was proven complete, so its connection may serve again."""

    whole: bool


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls, `concurrency` at a time (0: all at once), and give the outcomes back in their order."""

    calls: tuple[ToolCall, ...]
    concurrency: int


class Over(msgspec.Struct, frozen=True):
    """Nothing follows."""


Action = Send | Listen | Pause | Ask | LetGo | RunTools | Over


class ToolOutcome(msgspec.Struct, frozen=True):
    """What a tool gave. `for_model` is the text the model sees; `error` why it failed, or None."""

    call: ToolCall
    data: Any
    for_model: str
    error: str | None = None
    exits: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
