"""What is known of a call when it is admitted."""

from __future__ import annotations

import msgspec

from strom.core.record import CallRecord
from strom.gateway.outgoing import Incoming
from strom.gateway.plan import Plan


class Opening(msgspec.Struct, frozen=True):
    """`input_estimate`: prompt tokens, for when a number is demanded before one is reported."""

    incoming: Incoming
    plan: Plan
    record: CallRecord
    input_estimate: int
