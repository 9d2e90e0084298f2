"""What is known of a call when it is admitted."""

from __future__ import annotations

from typing import Protocol

import msgspec

from strom.core.access import KeySettings
from strom.core.record import CallRecord
from strom.gateway.outgoing import Incoming
from strom.gateway.plan import Plan
from strom.transport.types import Headers


class Grant(Protocol):
    """What admission took from the limits for one call. `settle` comes exactly once, whatever becomes of the call."""

    @property
    def headers(self) -> Headers:
        """Rate-limit headers, in the client's protocol, for the answer."""
        ...

    def settle(self, record: CallRecord) -> None: ...


class Opening(msgspec.Struct, frozen=True):
    """`input_estimate`: prompt tokens, for when a number is demanded before one is reported."""

    incoming: Incoming
    plan: Plan
    record: CallRecord
    input_estimate: int
    key: KeySettings | None = None
    grant: Grant | None = None

    def granted(self, grant: Grant) -> Opening:
        return Opening(self.incoming, self.plan, self.record, self.input_estimate, self.key, grant)
