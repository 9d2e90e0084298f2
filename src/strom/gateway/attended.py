"""Exchanges that have more to say to their call than that the client left.

An exchange that is `Attended` is told its call before anything of the answer comes.
Every other one costs the look at its class.
"""

from __future__ import annotations

from strom.gateway.opening import Opening
from strom.gateway.services import Running


class Attended:
    """Derive from it to be told. `attend` comes at most once, before `start`."""

    __slots__ = ()

    def attend(self, call: Running, opening: Opening) -> None:
        """The call is about to begin. `call.stop(error)` ends it, for a reason that its record keeps."""
        raise NotImplementedError
