"""What is known of how endpoints fare, from the calls that go there."""

from __future__ import annotations

from typing import Protocol

from strom.core.errors import StromError
from strom.gateway.plan import Endpoint


class HealthBoard(Protocol):
    """Told of every attempt: `began` when its request is sent, `ended` exactly once for each that began."""

    def began(self, endpoint: Endpoint) -> None: ...

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        """`error` None: it proved its end. `first_token_ms`: from its dispatch; None when no token came."""
        ...


class NoBoard:
    """For a gateway that has one way to go, whatever its health."""

    def began(self, endpoint: Endpoint) -> None:
        pass

    def ended(self, endpoint: Endpoint, error: StromError | None, first_token_ms: float | None) -> None:
        pass
