"""What is known of how endpoints fare, from the calls that go there: told by whoever sends, asked by whoever chooses."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from strom.core.errors import StromError
from strom.gateway.plan import Endpoint

Circuit = Literal["closed", "open", "half-open", "cooling"]
"""cooling: the upstream said when it wants to be asked again."""


class Condition(msgspec.Struct, frozen=True):
    """How one endpoint fares, for people and metrics. Of this process alone."""

    circuit: Circuit = "closed"
    in_flight: int = 0
    attempts: int = 0
    """Ended ones, since the process started."""
    faults: int = 0
    """Those that ended by a fault of the upstream."""
    consecutive_faults: int = 0
    retry_in_s: float | None = None
    """Until it is asked again while there are others. None: it may be asked now."""
    time_to_first_token_ms: float | None = None
    """Mean that forgets."""
    last_error: str | None = None
    """Code of the last fault."""


class HealthBoard(Protocol):
    """Told of every attempt: `began` when its request is sent, `ended` exactly once for each that began."""

    def began(self, endpoint: Endpoint) -> None: ...

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        """`error` None: it proved its end. `first_token_ms`: from its dispatch; None when no token came."""
        ...

    def condition(self, endpoint: Endpoint) -> Condition: ...


class HealthView(Protocol):
    """What a choice between endpoints asks."""

    def in_flight(self, endpoint: Endpoint) -> int: ...

    def first_token_ms(self, endpoint: Endpoint) -> float:
        """Expected; 0 where nothing recent is known, so that it gets known."""
        ...

    def ready_at(self, endpoint: Endpoint) -> float | None:
        """None: it may be asked now. Else the time on the board's clock from which it can be tried."""
        ...


class NoBoard:
    """For a gateway that has one way to go, whatever its health."""

    def began(self, endpoint: Endpoint) -> None:
        pass

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        pass

    def in_flight(self, endpoint: Endpoint) -> int:
        return 0

    def first_token_ms(self, endpoint: Endpoint) -> float:
        return 0.0

    def ready_at(self, endpoint: Endpoint) -> float | None:
        return None

    def condition(self, endpoint: Endpoint) -> Condition:
        return Condition()
