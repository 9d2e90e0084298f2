"""Where a call may go: endpoints in the order in which they are tried."""

from __future__ import annotations

import msgspec

from strom.core.access import PolicySettings
from strom.core.errors import PermissionDenied
from strom.policies.sovereignty import all_allow
from strom.upstreams.settings import Prices
from strom.upstreams.timeouts import Timeouts
from strom.upstreams.upstream import Upstream


class Endpoint(msgspec.Struct, frozen=True):
    """One model at one upstream. `model` is what the upstream is asked for; "" passes the client's own name through."""

    id: str
    upstream: Upstream
    model: str
    order: int = 1
    weight: float = 1.0
    context_window: int | None = None
    price: Prices | None = None
    own_timeouts: Timeouts | None = None
    """None: its upstream's."""
    max_concurrent: int | None = None
    """Calls of one process that may be there at once."""
    queue: int = 0
    """How many more may wait."""
    queue_timeout_s: float = 30.0

    @property
    def timeouts(self) -> Timeouts:
        return self.own_timeouts or self.upstream.timeouts


class Plan(msgspec.Struct, frozen=True):
    """The endpoints for one call, never empty, and the policy that let them through (None: no policy applies)."""

    endpoints: tuple[Endpoint, ...]
    requested_model: str
    policy_id: str | None = None
    continuation: bool = False
    """A stream whose upstream fails after output goes on at the next endpoint."""

    policies: tuple[PolicySettings, ...] = ()
    """All that bind the call, at every hop."""
    retries: int = 0
    """How often an endpoint that failed is asked again when there is no other."""
    _cleared: set[Upstream] = set()
    """Those that were found to satisfy the policies: neither of the two ever changes."""

    def check(self, endpoint: Endpoint) -> None:
        """Before anything is sent there, whoever chose it and why. Raises PermissionDenied."""
        if not self.policies or endpoint.upstream in self._cleared:
            return
        if not all_allow(self.policies, endpoint.upstream):
            raise PermissionDenied(
                f"The endpoint {endpoint.id!r} does not satisfy the policy {self.policy_id}.", code="policy_refused"
            )
        self._cleared.add(endpoint.upstream)

    def model_for(self, endpoint: Endpoint) -> str:
        return endpoint.model or self.requested_model
