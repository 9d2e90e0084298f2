"""What stands for an upstream exchange while nothing is sent yet: media being fetched, a queue, the time of a retry."""

from __future__ import annotations

from collections.abc import Callable


class Unsent:
    """The part of an `UpstreamExchange` that is of no meaning then. `abort` is each one's own."""

    __slots__ = ()

    def express(self, take: Callable[[bytes], None]) -> None:
        pass

    def pause_reading(self) -> None:
        pass  # nothing of it reaches the client

    def resume_reading(self) -> None:
        pass
