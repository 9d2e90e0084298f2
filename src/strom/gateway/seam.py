"""Where a further upstream takes over an answer that broke off: what it repeats is cut away, or the seam is refused.

A model that was given its own text to continue usually goes on with the next character. One that was asked in words may first
repeat the end of it, or begin anew. Nothing is passed on until it is clear which of these came, which takes a few dozen
characters at most, unless the model really repeats the whole answer. What cannot be told apart is passed on as it came.
"""

from __future__ import annotations

MIN_RESTART = 32
"""So many characters like the beginning of the answer are no chance."""
MIN_OVERLAP = 12
MAX_OVERLAP = 400


class SeamBroken(Exception):
    """The answer was begun anew, and came out differently: no text can stand for both."""


class Seam:
    """`earlier`: the answer so far. `prefilled`: the upstream was made to continue it, and repeats nothing knowingly.

    `cut`: white space at the end of `earlier` that the upstream was not shown.
    """

    def __init__(self, earlier: str, *, prefilled: bool, cut: str = "") -> None:
        self._earlier = earlier
        self._held = ""
        self._cut = cut
        self._restarts = len(earlier) >= MIN_RESTART and earlier.find(earlier[:MIN_RESTART], 1) < 0
        """Whether a repeated beginning could be told from text that repeats itself."""
        tail = earlier[-MAX_OVERLAP:]
        self._tails = [] if prefilled else [tail[at:] for at in range(max(0, len(tail) - MIN_OVERLAP + 1))]
        self.joined = False
        """The seam is behind: what comes now passes as it is."""

    def feed(self, text: str) -> str:
        """What of the text goes on to the client. Raises SeamBroken."""
        if self.joined:
            return text
        self._held += text
        if self._cut and self._cut.startswith(self._held):
            return ""  # may all be what the client has already
        return self._judge()

    def finish(self) -> str:
        """No more text will come."""
        if self.joined:
            return ""
        held = self._held
        if self._restarts and len(held) >= MIN_RESTART and self._earlier.startswith(held):
            raise SeamBroken
        return self._join(self._overlap(held))

    def _judge(self) -> str:
        held = self._held
        if self._restarts:
            if self._earlier.startswith(held):
                return ""
            common = _common(self._earlier, held)
            if common == len(self._earlier):
                return self._join(common)
            if common >= MIN_RESTART:
                raise SeamBroken
        if any(len(tail) > len(held) and tail.startswith(held) for tail in self._tails):
            return ""
        return self._join(self._overlap(held))

    def _overlap(self, held: str) -> int:
        """How many characters at the beginning the client has already. Longest tail first."""
        for tail in self._tails:
            if held.startswith(tail):
                return len(tail)
        return _common(self._cut, held)

    def _join(self, known: int) -> str:
        self.joined = True
        passed, self._held, self._earlier, self._tails = self._held[known:], "", "", []
        return passed


def _common(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)
